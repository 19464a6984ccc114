"""Laws of `trace-svc import export`: what is taken back is the same, once, however often it is killed."""

from __future__ import annotations

import json
import re
import shlex
import struct
import subprocess
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from protocol.otlp.json import read_json
from protocol.otlp.reading import envelope, read_protobuf, walk
from tests.forked import ran_raw
from tests.service import PLAIN, TRACE_SVC, Service, running, until
from tests.wire import event, link, request, span

NAME = "moved"
#: More than a page and a group.
TRACES = 400
DAY_NS = 86_400 * 10**9
WHOSE = {"session.id": "moved"}
CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.usage.output_tokens": 3,
    "gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "what?"}]}]',
}
SAID = re.compile(r"^(\S.*?)  +(.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def instance() -> Iterator[Service]:
    """An instance in which projects are made without ado."""
    with running(SVC_AUTH_DISABLED="true") as service:
        yield service


def history() -> bytes:
    """Traces of two spans that say all that a span can, over the last days, as an export writes them."""
    now_ns, whole = time.time_ns(), b""
    for part in range(0, TRACES, 100):
        made = []
        for n in range(part, part + 100):
            start = now_ns - (n % 5 + 1) * DAY_NS - n * 1_000_003
            trace = b"moved" + n.to_bytes(11, "big")
            root = span(
                NAME,
                {"user.id": f"u{n % 7}", "nested": [1, {"a": 1.5, "b": None}], **WHOSE},
                trace_id=trace,
                span_id=(2 * n + 1).to_bytes(8, "big"),
                start_ns=start,
                end_ns=start + 2 * 10**9,
                links=[link(b"\1" * 16, b"\2" * 8, {"why": "because"})],
            )
            call = span(
                "chat gpt-4o",
                {**CALL, "gen_ai.usage.input_tokens": n, "raw": b"\0\xff", **WHOSE},
                trace_id=trace,
                span_id=(2 * n + 2).to_bytes(8, "big"),
                parent=root.span_id,
                start_ns=start + 7,
                end_ns=start + 10**9 + 11,
                status_code=0 if n % 9 else 2,
                status_message="" if n % 9 else "it failed",
                events=[event("exception", {"exception.type": "Odd"}, time_ns=start + 123)],
            )
            call.trace_state, call.flags, call.dropped_attributes_count = "a=b", 1, 2
            made += [root, call]
        sent = request(*made, resource={"service.name": "mover"}, schema_url="http://s").SerializeToString()
        whole += struct.pack("!I", len(sent)) + sent
    return whole


@pytest.fixture(scope="module")
def filled(instance: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The history as a file, which was moved into the default project."""
    file = tmp_path_factory.mktemp("history") / "spans.otlp"
    file.write_bytes(history())
    told = imported(instance, file, project="default")
    assert told["stored"] == f"{2 * TRACES:,} spans"
    return file


def ran(service: Service, *words: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    return ran_raw([TRACE_SVC, *words], env=service.env, stdin=stdin, timeout_s=120)


def exported(service: Service, form: str, project: str) -> bytes:
    done = ran(service, "export", "spans", "--form", form, "--project", project)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported(service: Service, file: Path | str, *words: str, project: str) -> dict[str, str]:
    done = ran(service, "import", "export", str(file), "--project", project, *words)
    assert done.returncode == 0, done.stderr
    return dict(SAID.findall(done.stdout.decode()))


def fresh(service: Service) -> str:
    """A project that nothing was sent to."""
    slug = f"moved-{uuid.uuid4().hex[:8]}"
    answer = httpx2.post(
        f"{service.url}/api/orgs/default/projects", json={"name": slug, "slug": slug}, timeout=30, **PLAIN
    )
    assert answer.status_code in (200, 201), answer.text
    return slug


@pytest.mark.parametrize(
    "form",
    [
        "otlp-proto",
        *(pytest.param(form, marks=pytest.mark.release) for form in ("otlp-json", "jsonl", "parquet")),
    ],
)
def test_what_was_exported_is_exported_again_as_it_was_and_twice_adds_nothing(
    instance: Service, filled: Path, tmp_path: Path, form: str
) -> None:
    project, file = fresh(instance), tmp_path / "spans"
    if form == "parquet":
        words = ("--project", "default", "--form", form, "--out", str(file))
        assert ran(instance, "export", "spans", *words).returncode == 0
        form = "jsonl"
        first = exported(instance, form, "default")
    else:
        first = exported(instance, form, "default")
        file.write_bytes(first)
    # That twice adds nothing is a law of what is stored, whatever it was read from.
    for stored in (2 * TRACES, 0) if form == "jsonl" else (2 * TRACES,):
        told = imported(instance, file, project=project)
        assert told["stored"] == f"{stored:,} spans"
        assert told["already here"] == f"{2 * TRACES - stored:,} spans"
        assert told["given"].startswith(f"{TRACES:,} traces, {2 * TRACES:,} spans")
        assert told["now here"].startswith(f"{TRACES:,} traces, {2 * TRACES:,} spans")
        assert told["compared"] == "equal"
    assert said(form, exported(instance, form, project)) == said(form, first)


def said(form: str, export: bytes) -> object:
    """What an export says, whatever its order."""
    if form == "jsonl":
        return sorted(export.splitlines())
    requests = map(read_json, export.splitlines()) if form == "otlp-json" else frames(export)
    found = {one.trace_id + one.span_id: envelope(one) for sent in requests for one in walk(sent)}
    assert len(found) == 2 * TRACES
    return found


def frames(data: bytes) -> Iterator[Any]:
    while data:
        (size,) = struct.unpack("!I", data[:4])
        yield read_protobuf(data[4 : 4 + size])
        data = data[4 + size :]


def test_the_first_export_is_what_was_moved_in_to_the_byte(instance: Service, filled: Path) -> None:
    given, found = said("otlp-proto", filled.read_bytes()), exported(instance, "otlp-proto", "default")
    assert said("otlp-proto", found) == given


def test_history_stands_when_it_was_and_a_dry_run_stores_nothing(instance: Service, filled: Path) -> None:
    project = fresh(instance)
    told = imported(instance, filled, "--dry-run", project=project)
    assert told["would send"].startswith(f"{2 * TRACES:,} spans; those that are already here")
    # Only some of it: what started in the last two days and a bit.
    low = (datetime.now(UTC) - timedelta(days=2, hours=1)).isoformat()
    told = imported(instance, filled, "--since", low, project=project)
    rows = [json.loads(line) for line in exported(instance, "jsonl", project).splitlines()]
    assert told["stored"] == f"{len(rows):,} spans"
    assert told["out of range"] == f"{2 * TRACES - len(rows):,} spans"
    assert 0 < len(rows) < 2 * TRACES
    assert all(row["created_at"] == row["ended_at"] for row in rows)


def test_what_the_term_of_retention_would_throw_away_is_left_out_and_said(
    instance: Service, filled: Path
) -> None:
    project = fresh(instance)
    answer = httpx2.put(
        f"{instance.url}/api/orgs/default/projects/{project}/retention",
        json={"traces": 2, "detections": None}, timeout=30, **PLAIN,
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    done = ran(instance, "import", "export", "-", "--project", project, stdin=filled.read_bytes())
    assert done.returncode == 0, done.stderr
    assert b"keeps traces that started on" in done.stderr
    told = dict(SAID.findall(done.stdout.decode()))
    old = int(told["too old"].split()[0].replace(",", ""))
    assert 0 < old < 2 * TRACES
    assert told["stored"] == f"{2 * TRACES - old:,} spans"
    assert told["compared"] == f"all spans but the {old:,} left out are here"


def test_at_the_disk_budget_an_import_ends_and_with_more_it_goes_on(instance: Service, filled: Path) -> None:
    project = fresh(instance)
    disk = json.loads(instance.command("disk", "--json"))
    used = disk["database_bytes"] + disk["wal_bytes"]
    words = (TRACE_SVC, "import", "export", str(filled), "--project", project)

    def moved(budget: float) -> subprocess.CompletedProcess[bytes]:
        env = {**instance.env, "SVC_DISK_BUDGET_BYTES": str(int(budget))}
        return subprocess.run(words, env=env, capture_output=True, timeout=120, check=False)

    full = moved(used)
    assert full.returncode == 1
    assert b"% of the disk budget of" in full.stderr
    assert b"give the same command again, and it goes on where it was" in full.stderr
    done = moved(used / 0.88)
    assert b"at 100 % this import ends" in done.stderr
    assert done.returncode == 0, done.stderr
    assert dict(SAID.findall(done.stdout.decode()))["stored"] == f"{2 * TRACES:,} spans"


def test_a_run_that_is_killed_goes_on_and_everything_is_there_once(
    instance: Service, filled: Path, tmp_path: Path
) -> None:
    project, file = fresh(instance), tmp_path / "spans.jsonl"
    file.write_bytes(exported(instance, "jsonl", "default"))
    made = instance.command("keys", "create", "--scope", "query", "--name", "k", "--project", project)
    key = made.strip()
    asked = {"dataset": "spans"}
    words = ("import", "export", str(file), "--project", project)
    killed = subprocess.Popen([TRACE_SVC, *words, "--rate", "400"], env=dict(instance.env))
    # Its first page is stored; the rest of its second is waited for.
    until(lambda: instance.ask("count", asked, key)["count"] >= 500)
    killed.kill()
    killed.wait(30)
    done = ran(instance, *words)
    assert done.returncode == 0, done.stderr
    assert dict(SAID.findall(done.stdout.decode()))["compared"] == "equal"
    assert instance.ask("count", asked, key)["count"] == 2 * TRACES
    assert not list((instance.data_dir / "import").iterdir()), "nothing is left to remember"


@pytest.mark.parametrize(
    ("text", "words", "held"),
    [
        ("", (), "no spans"),
        ("", ("--from", "2026-01-01T00:00:00Z"), "no spans in this range"),
        ("", ("--dry-run",), "no spans"),
        ("{}\n", (), "no spans that can be read"),
    ],
)
def test_a_file_that_holds_nothing_is_said_to_hold_nothing(
    instance: Service, tmp_path: Path, text: str, words: tuple[str, ...], held: str
) -> None:
    (file := tmp_path / "empty.jsonl").write_text(text)
    told = imported(instance, file, *words, project="default")
    assert told["empty"] == f"the source holds {held}: there was nothing to import"
    assert "compared" not in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("export", "/there/is/none"), "/there does not exist. Put it there"),
        (("phoenix", "localhost"), "is no address"),
        (("langfuse", "http://127.0.0.1:9"), "LANGFUSE_PUBLIC_KEY"),
        (("langfuse", "/there/is/none"), "no file of observations"),
        (("export", "-", "--from", "yesterday"), "is not a time"),
    ],
)
def test_what_cannot_be_imported_says_why(instance: Service, words: tuple[str, ...], said: str) -> None:
    """Before any database is opened."""
    done = ran(instance, "import", *words)
    assert done.returncode == 1
    assert said in done.stderr.decode()


@pytest.mark.release
def test_the_commands_of_the_page_do_what_it_says(instance: Service, filled: Path, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "deploy" / "moving.md").read_text(encoding="utf-8")
    script = "\n".join(re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    assert script.count("trace-svc") == 3
    named = {"FOLDER": str(tmp_path), "PROJECT": fresh(instance)}
    path = f"{Path(TRACE_SVC).parent}:{instance.env['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", script],
        env={**instance.env, **named, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "nothing was stored; run it without --dry-run to import" in done.stdout
    assert re.search(r"^compared +equal$", done.stdout, re.MULTILINE)
    # Every other command of the page is one that there is, with its arguments.
    for line in re.findall(r"^trace-svc import .*$", page, re.MULTILINE):
        asked = ran_raw([TRACE_SVC, *shlex.split(line.split("#")[0])[1:], "--help"], timeout_s=30)
        assert asked.returncode == 0, line
