"""Usage exports of providers, as lines by day and model.

Owns: which columns say what, and how a file is recognised. Called for `trace-svc reconcile`, its REST route
and its page. Money is decimal, as it was written; a file is bounded in bytes and rows before it is read.

Read are, as CSV (tabs and semicolons, too) or JSON: OpenAI's costs and usage, of the dashboard and of the
API; Anthropic's cost and usage, of the console and of the Admin API; OpenRouter's activity; rows of Bedrock
in a Cost and Usage Report of AWS, 1 and 2.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import attrs

from svc.domain.billing.rows import NoExport, Row, rows_in

#: What a file may weigh and hold.
MOST_BYTES: Final = 32 * 1024 * 1024
MOST_ROWS: Final = 200_000
MOST_DAYS: Final = 92

_CENTS: Final = Decimal(100)
#: Beyond it is no bill, but a mistake or an attack.
_MOST_COST: Final = Decimal(10) ** 9
_MOST_TOKENS: Final = 10**15
_NAME_CHARS: Final = 200

OTHER_PRODUCT: Final = "of another product of AWS"
NOTHING_USED: Final = "without usage or cost"
NO_MODEL: Final = "(no model)"


@attrs.frozen
class BillLine:
    """One line: what a model's calls of a day cost or used. None where the file does not say."""

    day: date
    model: str
    cost: Decimal | None = None
    #: Input with what was cached, and output with what was reasoned.
    tokens: int | None = None
    calls: int | None = None


@attrs.frozen
class Bill:
    """A file, read. `skipped` are rows that say nothing about calls of models, by reason."""

    provider: str
    title: str
    lines: tuple[BillLine, ...] = attrs.field(repr=False)
    skipped: Mapping[str, int]

    @property
    def first(self) -> date:
        """The first day."""
        return min(line.day for line in self.lines)

    @property
    def last(self) -> date:
        """The last day, which belongs to it."""
        return max(line.day for line in self.lines)


@attrs.frozen
class _Export:
    """How one export is recognised and read: a row is a line, or the reason why it is none."""

    provider: str
    title: str
    columns: frozenset[str]
    read: Callable[[Row], BillLine | str]


def read_bill(data: bytes | str) -> Bill:
    """A file as a bill. Raises `NoExport`."""
    if len(data) > MOST_BYTES:
        raise NoExport(f"the file is larger than {MOST_BYTES >> 20} MiB; export fewer days")
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data.removeprefix("\ufeff")
    except UnicodeDecodeError:
        raise NoExport("the file is no text: give the CSV or JSON that the provider exports") from None
    rows = rows_in(text)
    export: _Export | None = None
    lines: list[BillLine] = []
    skipped: Counter[str] = Counter()
    for number, row in enumerate(rows, 1):
        if number > MOST_ROWS:
            raise NoExport(f"the file has more than {MOST_ROWS:,} rows; export fewer days, or by day")
        export = export or _recognised(row)
        line = _read_row(export, row, number)
        if isinstance(line, str):
            skipped[line] += 1
        else:
            lines.append(line)
    if export is None:
        raise NoExport("the file has no rows")
    if not lines:
        raise NoExport(f"the file ({export.title}) has no row about the use of a model")
    bill = Bill(export.provider, export.title, tuple(lines), dict(skipped))
    if (bill.last - bill.first).days >= MOST_DAYS:
        raise NoExport(
            f"the file covers {bill.first} to {bill.last}; at most {MOST_DAYS} days are compared at once"
        )
    return bill


def _read_row(export: _Export, row: Row, number: int) -> BillLine | str:
    try:
        return export.read(row)
    except _Unread as error:
        raise NoExport(f"row {number} of the file ({export.title}): {error}") from None


class _Unread(Exception):
    """A value that is not what its column holds."""


def _recognised(row: Row) -> _Export:
    for export in _EXPORTS:
        if export.columns <= row.keys():
            return export
    known = "; ".join(dict.fromkeys(export.title for export in _EXPORTS))
    columns = ", ".join(list(row)[:8])
    raise NoExport(f"no export that is known has these columns: {columns[:300]}. Known are: {known}")


def _money(value: Any) -> Decimal | None:
    """An amount; None for an empty one."""
    if value is None or value == "":
        return None
    try:
        amount = Decimal(str(value).replace("$", "").replace(",", ""))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or abs(amount) > _MOST_COST or len(amount.as_tuple().digits) > 40:
        raise _Unread(f"{str(value)[:40]!r} is no amount")
    return amount


def _number(value: Any) -> int | None:
    if value is None or value == "":
        return None
    amount = _money(value)
    if amount is None or amount < 0:
        raise _Unread(f"{str(value)[:40]!r} is no count")
    return int(amount)


def _sum(row: Row, *columns: str) -> int | None:
    numbers = [_number(row.get(column)) for column in columns]
    return sum(number or 0 for number in numbers) if any(number is not None for number in numbers) else None


def _day(value: Any) -> date:
    if isinstance(value, int | Decimal) or (isinstance(value, str) and value.isdigit() and len(value) < 12):
        try:
            return datetime.fromtimestamp(int(value), UTC).date()
        except (ValueError, OverflowError, OSError):
            raise _Unread(f"{str(value)[:40]!r} is no time") from None
    try:
        moment = datetime.fromisoformat(str(value)[:40])
    except ValueError:
        raise _Unread(f"{str(value)[:40]!r} is no day") from None
    return (moment if moment.tzinfo is None else moment.astimezone(UTC)).date()


def _name(value: Any) -> str:
    text = str(value).strip() if value is not None else ""
    return text[:_NAME_CHARS] or NO_MODEL


def _line(
    day: Any, model: Any, cost: Any = None, tokens: int | None = None, calls: Any = None
) -> BillLine | str:
    amount = _money(cost)
    if amount is None and tokens is None:
        return NOTHING_USED
    if tokens is not None and tokens > _MOST_TOKENS:
        raise _Unread("more tokens than there can be")
    return BillLine(_day(day), _name(model), amount, tokens, _number(calls))


def _dollars(currency: Any) -> None:
    if currency not in (None, "") and str(currency).upper() != "USD":
        raise _Unread(f"amounts are in {str(currency)[:10]!r}; only USD can be compared")


def _item_model(item: Any) -> str:
    """The model of an item such as `gpt-4o-2024-08-06, cached input`."""
    return str(item or "").partition(",")[0]


def _openai_cost(row: Row) -> BillLine | str:
    _dollars(row.get("amount_currency"))
    return _line(
        row.get("start_time_iso") or row.get("start_time"),
        _item_model(row.get("line_item")),
        row.get("amount_value"),
    )


def _openai_cost_api(row: Row) -> BillLine | str:
    value = row.get("amount")
    amount: Row = value if isinstance(value, dict) else {}
    _dollars(amount.get("currency"))
    return _line(row.get("start"), _item_model(row.get("line_item")), amount.get("value"))


def _openai_usage(row: Row) -> BillLine | str:
    return _line(
        row.get("start") or row.get("start_time_iso") or row.get("start_time"),
        row.get("model"),
        None,
        _sum(row, "input_tokens", "output_tokens"),
        row.get("num_model_requests"),
    )


def _anthropic_cost(row: Row) -> BillLine | str:
    return _line(row.get("usage_date_utc"), row.get("model"), row.get("cost_usd"))


def _anthropic_usage(row: Row) -> BillLine | str:
    columns = [column for column in row if column.startswith(("usage_input_tokens", "usage_output_tokens"))]
    return _line(row.get("usage_date_utc"), row.get("model_version"), None, _sum(row, *columns))


def _anthropic_cost_api(row: Row) -> BillLine | str:
    _dollars(row.get("currency"))
    cents = _money(row.get("amount"))
    return _line(row.get("start"), row.get("model"), None if cents is None else cents / _CENTS)


def _anthropic_usage_api(row: Row) -> BillLine | str:
    written = row.get("cache_creation")
    tokens = _sum(row, "uncached_input_tokens", "cache_read_input_tokens", "output_tokens")
    if isinstance(written, dict):
        tokens = (tokens or 0) + (_sum(written, *written) or 0)
    return _line(row.get("start"), row.get("model"), None, tokens)


def _openrouter_generation(row: Row) -> BillLine | str:
    return _line(
        row.get("created_at"),
        row.get("model_permaslug"),
        row.get("cost_total"),
        _sum(row, "tokens_prompt", "tokens_completion"),
        1,
    )


def _openrouter_day(row: Row) -> BillLine | str:
    return _line(
        row.get("date"),
        row.get("model_permaslug") or row.get("model"),
        row.get("usage"),
        _sum(row, "prompt_tokens", "completion_tokens"),
        row.get("requests"),
    )


#: What stands around the model in a type of usage: a region before, a kind of tokens behind.
_REGION: Final = re.compile(r"^[A-Z]{2,4}\d?-(?:MP:)?")
_KIND: Final = re.compile(
    r"[-_](?:mantle-)?(?:input|output|cache|prompt|text|response|inputtoken|outputtoken).*$", re.IGNORECASE
)
_PER_UNIT: Final = ((re.compile(r"1\s*k\b.*token", re.I), 1000), (re.compile(r"1\s*m\b.*token", re.I), 10**6))


def _cur(prefix: Callable[[str, str], str]) -> Callable[[Row], BillLine | str]:
    """Rows of a Cost and Usage Report, whose columns are spelled in one of two ways."""

    def column(row: Row, group: str, name: str) -> Any:
        return row.get(prefix(group, name))

    def read(row: Row) -> BillLine | str:
        product = f"{column(row, 'lineItem', 'ProductCode')} {column(row, 'product', 'ProductName')}"
        if "bedrock" not in f"{product} {row.get('product') or ''}".lower():
            return OTHER_PRODUCT
        _dollars(column(row, "lineItem", "CurrencyCode"))
        usage_type = str(column(row, "lineItem", "UsageType") or "")
        tokens = None
        if "token" in usage_type.lower() and (amount := _money(column(row, "lineItem", "UsageAmount"))):
            unit = f"{column(row, 'pricing', 'unit') or ''}"
            factor = next((number for pattern, number in _PER_UNIT if pattern.search(unit)), 1)
            tokens = int(amount * factor)
        model = column(row, "product", "model") or _KIND.sub("", _REGION.sub("", usage_type))
        line_type = str(column(row, "lineItem", "LineItemType") or "Usage")
        if "usage" not in line_type.lower():
            model, tokens = f"({line_type.lower()})", None
        return _line(
            column(row, "lineItem", "UsageStartDate"), model, column(row, "lineItem", "UnblendedCost"), tokens
        )

    return read


def _first(group: str, name: str) -> str:
    return f"{group}/{name}"


def _second(group: str, name: str) -> str:
    return "_".join(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", part).lower() for part in (group, name))


def _columns(*names: str) -> frozenset[str]:
    return frozenset(names)


_EXPORTS: Final[Sequence[_Export]] = (
    _Export("openai", "OpenAI costs", _columns("amount_value", "line_item"), _openai_cost),
    _Export("openai", "OpenAI costs", _columns("amount", "line_item"), _openai_cost_api),
    _Export("openai", "OpenAI usage", _columns("num_model_requests", "input_tokens"), _openai_usage),
    _Export("anthropic", "Anthropic cost", _columns("usage_date_utc", "cost_usd"), _anthropic_cost),
    _Export("anthropic", "Anthropic usage", _columns("usage_date_utc", "model_version"), _anthropic_usage),
    _Export("anthropic", "Anthropic usage", _columns("uncached_input_tokens"), _anthropic_usage_api),
    _Export("anthropic", "Anthropic cost", _columns("amount", "currency", "start"), _anthropic_cost_api),
    _Export(
        "openrouter",
        "OpenRouter activity",
        _columns("created_at", "cost_total", "model_permaslug"),
        _openrouter_generation,
    ),
    _Export("openrouter", "OpenRouter activity", _columns("date", "usage", "model"), _openrouter_day),
    _Export(
        "aws",
        "AWS Cost and Usage Report",
        _columns("lineItem/UsageStartDate", "lineItem/UnblendedCost"),
        _cur(_first),
    ),
    _Export(
        "aws",
        "AWS Cost and Usage Report",
        _columns("line_item_usage_start_date", "line_item_unblended_cost"),
        _cur(_second),
    ),
)
