"""Laws of the export: what another receiver gets is what came; ranges are half-open; nothing is left out."""

from __future__ import annotations

import json
import struct
import subprocess
import time
from pathlib import Path

import pytest

from protocol.otlp.json import read_json
from protocol.otlp.reading import read_protobuf, walk
from tests.commands.test_detections import refused
from tests.forked import ran_raw
from tests.service import TRACE_SVC, Service, until
from tests.wire import request, span

#: More than a chunk, so that chunks join.
SPANS = 620
NAME = "to be exported"
SESSION = {"session.id": "exported"}


@pytest.fixture(scope="module")
def sent(service: Service) -> dict[bytes, bytes]:
    """The spans of a session, as they were sent, by their ids."""
    start = time.time_ns() - 10**9
    spans = [
        span(
            NAME,
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.input.messages": f"message {n}",
                "session.id": "exported",
                "ticket.id": f"T-{n // 10}-of-these",
            },
            trace_id=b"export" + (n // 10 + 1).to_bytes(10, "big"),
            span_id=(n + 1).to_bytes(8, "big"),
            start_ns=start,
            end_ns=start + 10**6,
        )
        for n in range(SPANS)
    ]
    assert service.send(request(*spans).SerializeToString()).status_code == 200
    service.wait_for_spans(SPANS, name=NAME)
    return {one.trace_id + one.span_id: one.SerializeToString() for one in spans}


def exported(service: Service, *arguments: str) -> bytes:
    """What an export writes to standard output."""
    done = ran_raw([TRACE_SVC, "export", *arguments], env=service.env, timeout_s=90)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_otlp_is_what_came_to_the_byte_and_both_forms_are_readable(
    service: Service, sent: dict[bytes, bytes]
) -> None:
    data, found = exported(service, "spans", "--form", "otlp-proto"), {}
    while data:
        (size,) = struct.unpack("!I", data[:4])
        for one in walk(read_protobuf(data[4 : 4 + size])):
            assert found.get(one.trace_id + one.span_id) is None, "nothing is in it twice"
            found[one.trace_id + one.span_id] = one.raw
        data = data[4 + size :]
    assert {key: found[key] for key in sent} == sent
    lines = exported(service, "spans", "--form", "otlp-json").splitlines()
    assert len(lines) > 1
    again = {one.trace_id + one.span_id: one.raw for line in lines for one in walk(read_json(line))}
    assert {key: again[key] for key in sent} == sent


def test_json_lines_hold_rows_with_all_they_said_and_ranges_are_half_open(
    service: Service, sent: dict[bytes, bytes]
) -> None:
    rows = [json.loads(line) for line in exported(service, "spans").splitlines()]
    ours = {bytes.fromhex(row["trace_id"] + row["span_id"]): row for row in rows if row["name"] == NAME}
    assert ours.keys() == sent.keys()
    assert all(row["payload_available"] for row in ours.values())
    assert "message 7" in str(ours[next(key for key in sent if key[-1] == 8)]["input"])
    moments = sorted({row["created_at"] for row in rows})
    first = [json.loads(line) for line in exported(service, "spans", "--to", moments[0]).splitlines()]
    rest = exported(service, "spans", "--from", moments[0]).splitlines()
    assert first == []
    assert len(rest) == len(rows)


def test_a_range_without_spans_says_which_time_it_is_about(service: Service) -> None:
    done = subprocess.run(
        [TRACE_SVC, "export", "spans", "--to", "1990-01-01"], env=dict(service.env), capture_output=True,
        text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == ""
    assert "about when spans arrived, not when they started" in done.stderr


def test_traces_and_sessions_are_rows_of_their_own(service: Service, sent: dict[bytes, bytes]) -> None:
    until(lambda: len(exported(service, "traces").splitlines()) >= SPANS // 10)
    traces = [json.loads(line) for line in exported(service, "traces").splitlines()]
    assert sum(trace["span_count"] for trace in traces if trace["session_id"] == "exported") == SPANS
    sessions = [json.loads(line)["id"] for line in exported(service, "sessions").splitlines()]
    assert sessions.count("exported") == 1


def test_parquet_is_one_table_with_times_numbers_and_what_was_said(
    service: Service, sent: dict[bytes, bytes], tmp_path: Path
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "spans.parquet"
    exported(service, "spans", "--form", "parquet", "--out", str(out))
    table = parquet.read_table(out)
    assert table.schema.field("started_at").type.tz == "UTC"
    rows = [row for row in table.to_pylist() if row["name"] == NAME]
    assert len(rows) == SPANS
    assert "message" in rows[0]["input"]
    assert parquet.ParquetFile(out).num_row_groups > 1
    empty = tmp_path / "none.parquet"
    exported(service, "sessions", "--form", "parquet", "--to", "1960-01-01", "--out", str(empty))
    assert parquet.read_table(empty).num_rows == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("traces", "--form", "otlp-json"), "otlp-json is for spans"),
        (("spans", "--from", "yesterday"), "'yesterday' is not a time"),
        (("spans", "--form", "parquet"), "parquet needs a file"),
        (("spans", "--out", "/"), "already exists"),
    ],
)
def test_what_cannot_be_exported_says_why(service: Service, arguments: tuple[str, ...], said: str) -> None:
    done = subprocess.run(
        [TRACE_SVC, "export", *arguments], env=dict(service.env), capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert said in done.stderr


def test_what_has_a_value_is_exported_alone(service: Service, sent: dict[bytes, bytes]) -> None:
    by_name = ("--where", f"name={NAME}")
    rows = [json.loads(line) for line in exported(service, "spans", *by_name).splitlines()]
    assert len(rows) == len(sent)
    assert {row["name"] for row in rows} == {NAME}
    traces = exported(service, "traces", *by_name, "--where", "session_id=exported").splitlines()
    assert len(traces) == SPANS // 10
    assert exported(service, "spans", *by_name, "--where", "status=error") == b""
    assert exported(service, "traces", *by_name, "--where", "session_id=") == b""


def test_what_says_an_attribute_that_is_no_field_is_exported_with_how_much_was_looked_through(
    service: Service, sent: dict[bytes, bytes]
) -> None:
    of_ticket = ("--where", "attr.ticket.id=T-7-of-these", "--where", f"name={NAME}")
    rows = [json.loads(line) for line in exported(service, "spans", *of_ticket).splitlines()]
    assert {row["attributes"]["ticket.id"] for row in rows} == {"T-7-of-these"}
    assert len(rows) == 10
    done = subprocess.run(
        [TRACE_SVC, "export", "traces", *of_ticket],
        env=dict(service.env), capture_output=True, text=True, timeout=90, check=True,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == 1
    assert f"attr.ticket.id is not a field: searched the payloads of {len(sent)} spans" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("spans", "--where", "nope=1"), "unknown field 'nope'"),
        (("traces", "--where", "name"), "'name' is not FIELD=VALUE"),
        (("sessions", "--where", "name=x"), "sessions are exported whole: leave out --where"),
    ],
)
def test_a_filter_that_cannot_be_read_is_refused(
    service: Service, arguments: tuple[str, ...], said: str
) -> None:
    assert said in refused(service, "export", *arguments)
