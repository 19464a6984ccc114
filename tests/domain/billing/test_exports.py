"""Usage exports of providers: every real form is read to the digit, and nothing else is taken for one."""

from __future__ import annotations

import csv
import io
import json
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from svc.domain.billing import exports
from svc.domain.billing.exports import NOTHING_USED, OTHER_PRODUCT, BillLine, read_bill
from svc.domain.billing.rows import NoExport
from tests.domain.billing import made_up
from tests.examples import examples

DAY = date(2025, 11, 20)
OPUS = "claude-opus-4-5-20251101"


@pytest.mark.parametrize(
    ("text", "provider", "lines"),
    [
        (
            made_up.OPENAI_COSTS,
            "openai",
            (
                BillLine(DAY, "gpt-4o-2024-08-06", Decimal("0.8958740000000000")),
                BillLine(DAY, "gpt-4o-2024-08-06", Decimal("0.10")),
            ),
        ),
        (
            made_up.OPENAI_COSTS_API,
            "openai",
            (BillLine(DAY, "gpt-4o-mini-2024-07-18", Decimal("0.1234567890123456789")),),
        ),
        (made_up.OPENAI_USAGE, "openai", (BillLine(DAY, "gpt-4o-2024-08-06", None, 1200, 12),)),
        (made_up.OPENAI_USAGE_API, "openai", (BillLine(DAY, "gpt-4o", None, 1500, 5),)),
        (
            made_up.ANTHROPIC_COST,
            "anthropic",
            (
                BillLine(DAY, "Claude Opus 4.5", Decimal("0.05")),
                BillLine(DAY, "Claude Opus 4.5", Decimal("1.13")),
            ),
        ),
        (made_up.ANTHROPIC_USAGE, "anthropic", (BillLine(DAY, OPUS, None, 150),)),
        (made_up.ANTHROPIC_COST_API, "anthropic", (BillLine(DAY, OPUS, Decimal("1.2345")),)),
        (made_up.ANTHROPIC_USAGE_API, "anthropic", (BillLine(DAY, OPUS, None, 150),)),
        (
            made_up.OPENROUTER,
            "openrouter",
            (BillLine(DAY, "openai/gpt-4o-2024-08-06", Decimal("0.0123"), 10526, 1),),
        ),
        (
            made_up.OPENROUTER_API,
            "openrouter",
            (BillLine(DAY, "openai/gpt-4o-2024-08-06", Decimal("0.0123"), 10526, 3),),
        ),
        (
            made_up.CUR,
            "aws",
            (
                BillLine(DAY, "Claude4.6Opus", Decimal("0.0625"), 12_500),
                BillLine(date(2025, 11, 1), "(tax)", Decimal("0.01")),
            ),
        ),
        (made_up.CUR_2, "aws", (BillLine(DAY, "anthropic.claude-opus-4-6", Decimal("0.001"), 2000),)),
    ],
)
def test_a_real_form_is_read_to_the_digit(text: str, provider: str, lines: tuple[BillLine, ...]) -> None:
    bill = read_bill(text)
    assert (bill.provider, bill.lines) == (provider, lines)
    # As a file of Windows, with tabs, and as bytes with a mark before.
    if not text.startswith("{"):
        assert read_bill(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()).lines == lines


def as_objects(text: str) -> list[dict[str, Any]]:
    """The rows of a report as a query of it in JSON has them: numbers as numbers, nothing as null."""
    rows: list[dict[str, Any]] = []
    for row in csv.DictReader(io.StringIO(text)):
        fields: dict[str, Any] = {name: field or None for name, field in row.items()}
        for name, field in row.items():
            if name.replace("_", "").lower().endswith(("usageamount", "unblendedcost")):
                fields[name] = float(field)
            elif field.startswith("{"):
                fields[name] = json.loads(field)
        rows.append(fields)
    return rows


@pytest.mark.parametrize("form", ["list", "lines", "data"])
@pytest.mark.parametrize("report", [made_up.CUR, made_up.CUR_2])
def test_a_report_of_aws_in_json_says_what_it_says_in_csv(report: str, form: str) -> None:
    rows = as_objects(report)
    text = {
        "list": json.dumps(rows),
        "lines": "\n".join(json.dumps(row) for row in rows),
        "data": json.dumps({"data": rows}),
    }[form]
    in_json, in_csv = read_bill(text), read_bill(report)
    assert in_json == in_csv
    assert in_json.provider == "aws"


def test_rows_that_say_nothing_of_a_model_are_counted() -> None:
    assert read_bill(made_up.OPENAI_COSTS).skipped == {NOTHING_USED: 1}
    assert read_bill(made_up.CUR).skipped == {OTHER_PRODUCT: 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file has no rows"),
        ("a,b\n1,2\n", "no export that is known has these columns: a, b"),
        (made_up.OPENAI_COSTS.replace(",usd,", ",eur,"), "amounts are in 'eur'; only USD"),
        (
            made_up.OPENAI_COSTS.replace("0.10,", "ten,"),
            "row 2 of the file .OpenAI costs.: 'ten' is no amount",
        ),
        (made_up.OPENAI_COSTS.replace("0.10,", "1e99,"), "'1e99' is no amount"),
        (made_up.OPENAI_COSTS.replace("0.10,", "NaN,"), "'NaN' is no amount"),
        (made_up.OPENROUTER.replace("137,", "-137,"), "'-137' is no count"),
        (made_up.ANTHROPIC_COST.replace("2025-11-20", "yesterday"), "'yesterday' is no day"),
        (made_up.ANTHROPIC_COST.replace("2025-11-20", "2025-02-20", 1), "at most 92 days"),
        ('{"data": [1]}', "no list of objects"),
        ('{"data": ', "begins as JSON and is none"),
        ("[" * 100_000, "begins as JSON and is none"),
        ('{"date":"2025-11-20","model":"m","usage":' + "9" * 5000 + "}", "begins as JSON and is none"),
        ("usage_date_utc,cost_usd\n" + "x" * 200_000 + ",1\n", "the file is no CSV"),
    ],
)
def test_what_is_no_export_says_why(text: str, words: str) -> None:
    with pytest.raises(NoExport, match=words):
        read_bill(text)


def test_a_file_is_bounded_in_bytes_and_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "MOST_ROWS", 1)
    assert len(read_bill(made_up.OPENROUTER).lines) == 1
    with pytest.raises(NoExport, match="more than 1 rows"):
        read_bill(made_up.ANTHROPIC_COST)
    with pytest.raises(NoExport, match="larger than 32 MiB"):
        read_bill(b" " * (exports.MOST_BYTES + 1))
    with pytest.raises(NoExport, match="the file is no text"):
        read_bill(b"PK\x03\x04\xff\xfe")


@settings(max_examples=examples(200), deadline=None)
@given(some.sampled_from(sorted(vars(made_up))), some.data())
def test_a_damaged_file_is_refused_in_words_or_read(name: str, data: some.DataObject) -> None:
    text = getattr(made_up, name)
    if not isinstance(text, str) or name.startswith("__"):
        return
    start = data.draw(some.integers(0, len(text)))
    stop = data.draw(some.integers(start, len(text)))
    put = data.draw(some.text(max_size=6))
    with suppress(NoExport):
        assert read_bill(text[:start] + put + text[stop:]).lines
