"""Cases, findings, evidence and the taxonomy: what detectors write and what is read back."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pytest
import trio

from protocol.detection import EVIDENCE_ROLES, Cause, Detection, Ref
from protocol.taxonomy import BadTaxonomy, read_taxonomy
from svc.commands.taxonomy import HELP, read_file
from svc.store.accounts.projects import ProjectStore
from svc.store.detection.cases import CaseStore
from svc.store.detection.findings import FINDINGS_SHOWN, FindingStore
from svc.store.detection.taxonomy import ModeFilter, TaxonomyStore
from svc.store.postgres.database import Connection, Database
from tests.store.spans.test_writing import NOW, fetch, one, rows, store_of

MISSING = UUID(int=0)


def detection(number: int = 1, **fields: Any) -> Detection:
    made = Detection(
        detector="error-rate",
        subject_kind="call_site",
        subject_id=f"site-{number}",
        subject_label=f"Site {number}",
        title="errors rose",
        basis="measured",
        severity="medium",
        onset_at=NOW,
        metric="error_rate",
        call_site_id=f"site-{number}",
    )
    return attrs.evolve(made, **fields)


def cause(number: int = 1, **fields: Any) -> Cause:
    made = Cause(
        title=f"cause {number}",
        detector="tool-errors",
        cause_kind="error_type",
        cause_key=f"Timeout-{number}",
        status="open",
        first_seen_at=NOW,
        last_seen_at=NOW + timedelta(seconds=number),
        trace_count=3,
        triage_source="rule",
        confirmed=True,
    )
    return attrs.evolve(made, **fields)


async def page(cases: CaseStore, state: Any = "open", limit: int = 50, **asked: Any) -> list[dict[str, Any]]:
    """Every case of a state, page by page."""
    found: list[dict[str, Any]] = []
    cursor = None
    asked = {"detector": None, "call_site_id": None} | asked
    while True:
        answer = await cases.page(1, state=state, limit=limit, cursor=cursor, **asked)
        found += answer["cases"]
        cursor = answer["next_cursor"]
        if cursor is None:
            return found


async def test_references_have_neither_gaps_nor_races(store: Database) -> None:
    cases = CaseStore(store)
    references: list[str] = []

    async def open_some(project: int, first: int) -> None:
        for number in range(first, first + 5):
            opened = await cases.open(project, detection(number), NOW)
            references.append(f"{project} {opened.reference}")

    async with trio.open_nursery() as nursery:
        for first in (0, 5, 10, 15):
            nursery.start_soon(open_some, 1, first)
            nursery.start_soon(open_some, 2, first)
    assert sorted(references) == sorted(f"{project} C-{n}" for project in (1, 2) for n in range(1, 21))


async def test_a_number_is_not_lost_when_opening_fails(store: Database) -> None:
    cases = CaseStore(store)
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the database says of it
        await cases.open(1, detection(severity="terrible"), NOW)
    assert (await cases.open(1, detection(), NOW)).reference == "C-1"


async def test_detectors_that_see_the_same_thing_at_once_open_one_case(store: Database) -> None:
    cases = CaseStore(store)
    new: list[bool] = []

    async def see() -> None:
        new.append((await cases.open(1, detection(current_value=0.5), NOW)).new)

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(see)
    assert sorted(new) == [False] * 5 + [True]
    (case,) = await page(cases)
    assert (case["reference"], case["current_value"], case["metric"]) == ("C-1", 0.5, "error_rate")


async def test_open_cases_are_worst_first_then_most_recently_opened(store: Database) -> None:
    cases = CaseStore(store)
    for number, severity in enumerate(("low", "high", "medium", "high", "low")):
        await cases.open(1, detection(number, severity=severity), NOW + timedelta(minutes=number))
    assert [case["reference"] for case in await page(cases, limit=2)] == ["C-4", "C-2", "C-3", "C-5", "C-1"]
    assert [case["reference"] for case in await page(cases, call_site_id="site-3")] == ["C-4"]
    assert await page(cases, detector="other") == []


async def test_resolved_cases_are_newest_closure_first(store: Database) -> None:
    cases = CaseStore(store)
    for number in range(4):
        await cases.open(1, detection(number, severity="high" if number else "low"), NOW)
    for number, closed in ((1, 5), (2, 9), (3, 1)):
        await run(
            store,
            "update detection_case set state = 'resolved', resolved_at = $2 where number = $1",
            number,
            NOW + timedelta(hours=closed),
        )
    assert [case["reference"] for case in await page(cases, "resolved", 1)] == ["C-2", "C-1", "C-3"]
    assert [case["reference"] for case in await page(cases)] == ["C-4"]
    assert await page(cases, "muted") == []
    # What was resolved and comes back is a new case.
    assert (await cases.open(1, detection(0), NOW)).new


async def run(store: Database, sql: str, *values: Any) -> None:
    async def work(connection: Connection) -> None:
        await connection.execute(sql, *values)

    await store.run(work)


async def test_a_case_is_found_by_id_and_by_reference(store: Database) -> None:
    cases = CaseStore(store)
    opened = await cases.open(1, detection(), NOW)
    by_id = await cases.one(1, str(opened.id))
    assert by_id is not None
    assert by_id == await cases.one(1, "C-1") == await cases.one(1, " c-1 ")
    assert [(event["kind"], event["actor"]) for event in by_id["events"]] == [("opened", "error-rate")]
    for name in ("C-2", "C-0", "C-1x", "1", "", "C-99999999999999999999", str(MISSING)):
        assert await cases.one(1, name) is None
    assert await cases.one(2, "C-1") is None


async def test_the_report_of_a_case_is_null_while_it_runs(store: Database) -> None:
    cases = CaseStore(store)
    opened = await cases.open(1, detection(), NOW)
    case = await cases.one(1, "C-1")
    assert case is not None
    assert (case["rca"], case["rca_report_id"], case["rca_available"]) == (None, None, False)
    await run(
        store,
        "with r as (insert into rca_report (project_id, case_id, status, started_at)"
        " values (1, $1, 'running', $2) returning id)"
        " update detection_case set rca_report_id = r.id from r where number = 1",
        opened.id,
        NOW,
    )
    case = await cases.one(1, "C-1")
    assert case is not None
    assert case["rca"] is None
    assert case["rca_report_id"] is not None
    assert case["rca_available"] is False
    await run(store, """update rca_report set status = 'done', report = '{"summary": "a timeout"}'""")
    case = await cases.one(1, "C-1")
    assert case is not None
    assert (case["rca"], case["rca_available"]) == ({"summary": "a timeout"}, True)


async def test_a_case_shows_the_exemplars_that_are_still_there(store: Database) -> None:
    traces = [bytes([n]) * 16 for n in (1, 2)]
    await store_of(store).write(rows(*(one(1, trace_id=trace, name="ask") for trace in traces)))
    refs = [Ref("exemplar", trace_id=trace, rank=n) for n, trace in enumerate((*traces, b"\x09" * 16), 1)]
    finding = await FindingStore(store).open(1, cause(), [Ref("member", trace_id=traces[0]), *refs])
    await CaseStore(store).open(1, detection(finding_id=finding), NOW)
    case = await CaseStore(store).one(1, "C-1")
    assert case is not None
    assert case["finding_id"] == str(finding)
    assert [(e["trace_id"], e["rank"], e["duration_ms"]) for e in case["exemplars"]] == [
        (traces[0].hex(), 1, 1000.0),
        (traces[1].hex(), 2, 1000.0),
    ]


async def evidence(store: Database, finding: UUID, **asked: Any) -> Any:
    asked = {"role": None, "count_only": False, "limit": 100, "cursor": None} | asked
    return await FindingStore(store).evidence(1, finding, **asked)


async def test_evidence_is_one_ref_a_row_and_pages_in_order(store: Database) -> None:
    trace, session = bytes(range(1, 17)), "s"
    await store_of(store).write(rows(one(1, attributes={"session.id": session})))
    refs = [
        Ref("member", trace_id=trace, span_id=(1).to_bytes(8, "big")),
        *(Ref("exemplar", trace_id=trace, rank=n) for n in range(1, 6)),
        Ref("witness", session_id=session),
        Ref("member", session_id=session, trace_id=trace),
    ]
    finding = await FindingStore(store).open(1, cause(), refs)
    found: list[Any] = []
    cursor = None
    while True:
        answer = await evidence(store, finding, limit=3, cursor=cursor)
        found += answer["refs"]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert found == [
        *({"role": "exemplar", "grain": "trace", "trace_id": trace.hex(), "rank": n} for n in range(1, 6)),
        {"role": "member", "grain": "span", "trace_id": trace.hex(), "span_id": f"{1:016x}"},
        {"role": "member", "grain": "trace", "session_id": session, "trace_id": trace.hex()},
        {"role": "witness", "grain": "session", "session_id": session},
    ]
    assert answer["counts"] == answer["recorded_counts"]
    assert answer["counts"] == {"exemplar": 5, "member": 2, "baseline": 0, "witness": 1, "changepoint": 0}
    only = await evidence(store, finding, role="member")
    assert [ref["role"] for ref in only["refs"]] == ["member", "member"]
    counted = await evidence(store, finding, count_only=True)
    assert (counted["refs"], counted["next_cursor"], counted["counts"]) == ([], None, answer["counts"])
    assert await evidence(store, MISSING) is None


async def test_counts_below_recorded_counts_mean_aged_out_data(store: Database) -> None:
    await store_of(store).write(rows(one(1)))
    trace = bytes(range(1, 17))
    refs = [
        Ref("member", trace_id=trace),
        Ref("member", trace_id=b"\x07" * 16),
        # Its trace is there, and the span is not; the other way round it is the trace that tells.
        Ref("member", trace_id=trace, span_id=b"\x07" * 8),
        Ref("member", session_id="gone"),
        Ref("member", trace_id=b"\x07" * 16, session_id="s"),
    ]
    finding = await FindingStore(store).open(1, cause(), refs)
    answer = await evidence(store, finding)
    assert (answer["counts"]["member"], answer["recorded_counts"]["member"]) == (1, 5)
    assert [ref["trace_id"] for ref in answer["refs"]] == [trace.hex()]
    assert answer["counts"].keys() == answer["recorded_counts"].keys() == set(EVIDENCE_ROLES)


async def listed(store: Database, **asked: Any) -> Any:
    asked = {"status": None, "call_site_id": None, "detector": None, "confirmed_only": True} | asked
    return await FindingStore(store).list(1, **asked)


async def test_unconfirmed_findings_are_withheld_and_counted(store: Database) -> None:
    findings = FindingStore(store)
    await findings.open(1, cause(1), [])
    await findings.open(1, cause(2, confirmed=False, triage_source="agent"), [])
    await findings.open(1, cause(3, confirmed=False, triage_source="agent", status="closed"), [])
    confirmed = await listed(store)
    assert ([row["title"] for row in confirmed["findings"]], confirmed["withheld"]) == (["cause 1"], 2)
    everything = await listed(store, confirmed_only=False)
    assert [row["title"] for row in everything["findings"]] == ["cause 3", "cause 2", "cause 1"]
    assert everything["withheld"] == 0
    assert (await listed(store, status="closed"))["withheld"] == 1
    assert "evidence" not in everything["findings"][0]


async def test_a_listing_holds_200_findings_of_each_triage_source(store: Database) -> None:
    await run(
        store,
        "insert into finding (project_id, title, detector, cause_kind, cause_key, status, first_seen_at,"
        " last_seen_at, trace_count, triage_source, confirmed) select 1, 't', 'd', 'k', n::text, 'open', $1,"
        " $1, 1, case when n < 260 then 'rule' else 'agent' end, true from generate_series(1, 300) n",
        NOW,
    )
    assert len((await listed(store))["findings"]) == FINDINGS_SHOWN + 41


async def test_a_cause_seen_again_keeps_its_evidence_and_recurs(store: Database) -> None:
    findings = FindingStore(store)
    first = await findings.open(1, cause(evidence={"rate": 0.5}), [Ref("member", trace_id=b"\x01" * 16)])
    again = await findings.open(1, cause(last_seen_at=NOW + timedelta(hours=1)), [])
    assert first == again
    finding = await findings.one(1, first)
    assert finding is not None
    assert (finding["evidence"], finding["recurrences"]) == ({"rate": 0.5}, 1)
    assert finding["last_seen_at"] == "2026-11-20T13:00:00.000000Z"
    assert len(await fetch(store, "select from finding_evidence")) == 1
    assert await findings.one(1, MISSING) is None


# --- the taxonomy -----------------------------------------------------------------------------------------

FILE = HELP[HELP.index("  packs:") :]


async def test_importing_a_file_twice_is_the_same_as_once(store: Database, tmp_path: Path) -> None:
    path = tmp_path / "taxonomy.yaml"
    path.write_text(FILE, encoding="utf-8")
    project = await ProjectStore(store).make_default()
    shelf = TaxonomyStore(store)
    await shelf.replace(project.id, read_file(path))
    once = await shelf.failure_modes(project.id, ModeFilter())
    await shelf.replace(project.id, read_file(path))
    assert await shelf.failure_modes(project.id, ModeFilter()) == once
    (mode,) = once
    assert (mode["id"], mode["severity"], mode["compliance_tags"]) == ("invented-order", "high", ["accuracy"])
    (intent,) = await fetch(store, "select call_site_id, intent, shape from call_site_intent")
    assert tuple(intent) == ("reply", "Answers the customer", "chat")
    await shelf.replace(project.id, read_taxonomy({}))
    assert await shelf.failure_modes(project.id, ModeFilter()) == []


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({}, ["b", "c", "a"]),
        ({"severity": "high"}, ["b"]),
        ({"scope": "chain"}, ["c"]),
        ({"layer": "B"}, ["c"]),
        ({"chain_id": "flow"}, ["c"]),
        ({"pack_id": "p"}, ["a"]),
        ({"call_site_id": "reply"}, ["a"]),
        ({"compliance_tag": "gdpr"}, ["b", "c"]),
        ({"compliance_tag": "gdpr", "severity": "high"}, ["b"]),
        ({"pack_id": "other"}, []),
    ],
)
async def test_filters_of_failure_modes(store: Database, asked: dict[str, Any], ids: list[str]) -> None:
    modes = [
        {"id": "a", "severity": "low", "scope": "single_call", "call_site_id": "reply", "pack_id": "p"},
        {"id": "b", "severity": "high", "scope": "trace", "compliance_tags": ["soc2", "gdpr"]},
        {"id": "c", "severity": "medium", "scope": "chain", "chain_id": "flow", "layer": "B"}
        | {"compliance_tags": ["gdpr"]},
    ]
    taxonomy = read_taxonomy(
        {
            "packs": [{"id": "p", "name": "P"}],
            "chains": [{"id": "flow", "name": "Flow"}],
            "failure_modes": [{"name": mode["id"], "layer": "A", **mode} for mode in modes],
        }
    )
    project = await ProjectStore(store).make_default()
    await TaxonomyStore(store).replace(project.id, taxonomy)
    found = await TaxonomyStore(store).failure_modes(project.id, ModeFilter(**asked))
    assert [mode["id"] for mode in found] == ids


@pytest.mark.parametrize(
    ("text", "offender"),
    [
        ("failure_modes: [{id: a}]", "name"),
        ("failure_mods: []", "failure_mods"),
        ("packs: [{id: a, name: x}, {id: a, name: y}]", "'a' more than once"),
        ("failure_modes: [{id: a, name: x, severity: dire, scope: trace, layer: A}]", "dire"),
        ("failure_modes: [{id: a, name: x, severity: low, scope: trace, layer: A, pack_id: p}]", "pack 'p'"),
        (
            "failure_modes: [{id: a, name: x, severity: low, scope: trace, layer: A, chain_id: c}]",
            "chain 'c'",
        ),
        ('packs: [{id: a, name: "\\0"}]', "U+0000"),
        ("[1, 2]", "object"),
        ("{", "taxonomy.yaml"),
        ("!!python/object/apply:os.system [true]", "taxonomy.yaml"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_offender(
    tmp_path: Path, text: str, offender: str
) -> None:
    path = tmp_path / "taxonomy.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadTaxonomy, match=re.escape(offender)):
        read_file(path)


def test_json_is_a_taxonomy_file_as_well(tmp_path: Path) -> None:
    path = tmp_path / "taxonomy.json"
    path.write_text('{"packs": [{"id": "p", "name": "P"}]}')
    assert [pack.id for pack in read_file(path).packs] == ["p"]
