"""Bits of groups of traces by what each took, cost or belongs to: no look at any trace of them.

Reads the tables `trace_code` and `trace_code_page` of `svc.store.aggregates.trace_codes`, for
`svc.store.reads.traces.trace_groups`, which names groups that have codes only. Pure: it writes SQL.

How: a value that is asked for is looked up among those of the group, which are numbered from one in order.
Which traces have a number of at least so many is told by the bits of these numbers, the lowest bit first:
where the bound has it, those that have it too and are no less in the bits below; where it has not, those
that have it or are no less. Traces without a value have the number nought.
"""

from __future__ import annotations

from typing import Final, Literal

from svc.store.aggregates.trace_codes import BYTEWISE, CODED, PLANES
from svc.store.postgres.clauses import Where

Sign = Literal[">=", "<=", "=", "<>"]


def _no_less(code: str) -> str:
    """Those whose number is at least this one, which is one or more."""
    bits_left = "every"
    for plane in range(PLANES):
        bits, unset = f"coalesce(planes[{plane + 1}], none)", f"{code} & {1 << plane} = 0"
        bits_left = (
            f"(({bits_left} | case when {unset} then {bits} else none end)"
            f" & case when {unset} then every else {bits} end)"
        )
    return f"case when {code} > most then none when {code} = 1 then known else {bits_left} end"


def _equal(code: str) -> str:
    """Those whose number is this one."""
    planes = (
        f"case when {code} & {1 << plane} = 0 then ~coalesce(planes[{plane + 1}], none)"
        f" else coalesce(planes[{plane + 1}], none) end"
        for plane in range(PLANES)
    )
    return f"case when same then {' & '.join(planes)} else none end"


#: Of the value's place among those of the group (`upto`, `same`), the traces that meet the condition. A trace
#: without a value meets none but that it is not a value.
_BITS: Final[dict[Sign, str]] = {
    ">=": _no_less("least"),
    "<=": f"known & ~({_no_less('(upto + 1)')})",
    "=": _equal("upto"),
    "<>": f"~({_equal('upto')})",
}


def meeting(where: Where, field: str, sign: Sign, value: object, within: str) -> str:
    """A statement of `hour, began, part, held`: of each group the traces whose field meets this.

    `within` is more of a clause, over the groups' `began`. The parameters are added to those of `where`.
    """
    values, kind = ("numbers", "numeric") if CODED[field].number else ("texts", "text")
    literal = f"{where.value(value)}::{kind}" + ("" if CODED[field].number else f" {BYTEWISE}")

    def place(table: str) -> tuple[str, str]:
        upto = f"width_bucket({literal}, {table}.{values})"
        return upto, f"({table}.{values}[{upto}] = {literal}) is true"

    (beside, same), (paged, same_of_page) = place("c"), place("p")
    # The codes and the page of the dictionary by their keys; `offset 0` keeps that one a look-up for each
    # group, and has the place computed once.
    return (
        f"select hour, began, part, {_BITS[sign]} as held from (select *, ~none as every,"
        " upto - same::integer + 1 as least"
        " from (select c.hour, c.began, c.part, most, planes, known, known # known as none,"
        f" coalesce(page.upto, case when stride = 1 then {beside} else 0 end) as upto,"
        f" coalesce(page.same, {same}) as same from trace_code c left join lateral"
        f" (select p.place * c.stride + {paged} as upto, {same_of_page} as same from trace_code_page p"
        " where c.stride > 1 and p.project_id = $1 and p.field = c.field and p.began = c.began"
        f" and p.hour = c.hour and p.part = c.part and p.place = {beside} - 1 offset 0) as page on true"
        f" where c.project_id = $1 and c.field = {where.value(field)}{within} offset 0) as placed"
        " offset 0) as placed"
    )
