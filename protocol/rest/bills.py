"""A provider's bill beside what was traced, over REST and on the command line.

Money is USD as decimal text, to the digit; days are UTC.
"""

from __future__ import annotations

import msgspec


class BillSent(msgspec.Struct, forbid_unknown_fields=True):
    """A usage export of a provider, as text: CSV or JSON."""

    text: str


class BilledSite(msgspec.Struct):
    """A call site's part of a row. `unpriced` calls have no cost, `given` ones the exporter's own."""

    call_site_id: str
    calls: int
    cost: str
    unpriced: int
    given: int


class BilledTrace(msgspec.Struct):
    """A trace's part of a row. `cost` is null when none of its calls has one."""

    trace_id: str
    calls: int
    cost: str | None


class BilledDay(msgspec.Struct):
    """One model on one day. Null where a side does not say. `difference` is billed less ours."""

    day: str
    model: str
    our_models: list[str]
    billed_cost: str | None
    our_cost: str | None
    difference: str | None
    billed_tokens: int | None
    our_tokens: int | None
    billed_calls: int | None
    our_calls: int
    unpriced_calls: int
    agrees: bool
    reasons: list[str]
    call_sites: list[BilledSite]
    traces: list[BilledTrace]


class BillReconciled(msgspec.Struct):
    """The bill beside ours. `rows` are cut at a bound, `all_rows` says of how many; sums are over all."""

    provider: str
    export: str
    first_day: str
    last_day: str
    lines: int
    skipped: dict[str, int]
    billed_cost: str | None
    our_cost: str
    difference: str | None
    agreeing_rows: int
    all_rows: int
    rows: list[BilledDay]
