"""A history for the benches of reading: spans over thirty days, and all that the tools read beside them.

Made in the database itself, but for the newest hundred spans, which come through the real door and so have
payloads that can be read; the others have only their bytes.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import attrs
import httpx2
import msgspec
import trio

from protocol.detection import RULE, Cause, Detection, Ref, Triage
from protocol.taxonomy import read_taxonomy
from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.store.accounts.audit import OPERATOR
from svc.store.accounts.keys import PostgresKeyStore
from svc.store.accounts.projects import ProjectStore
from svc.store.aggregates.cubes import CubeStore
from svc.store.aggregates.rollups import RollupStore
from svc.store.detection.cases.case_findings import CaseFindings
from svc.store.detection.cases.finding_states import FindingStates
from svc.store.detection.taxonomy import TaxonomyStore
from svc.store.postgres.database import Connection, Database
from svc.store.postgres.partitions import DayPartitions
from tests import wire
from tests.bench.load import text
from tests.service import Service, measured

DAYS = 30
#: Spans with the rare word, each the root of its trace, and tool calls with it.
RARE = 20
#: One span in so many is of the rare model: about one an hour at a million.
RARE_MODEL = 1390
#: Traces with payloads that can be read, and spans of each.
READABLE, STEPS = 10, 10
#: Spans of one transaction: whole traces and sessions.
_CHUNK = 50_000
_WRITERS = 2
#: A statement may take so long on a busy machine.
_FILL_TIMEOUT_S = 7200.0

#: Ten spans a trace, a hundred traces a session; a name that twenty spans have, however many there are; a
#: model that a few spans of every hour have, and one that is gone since twenty days.
_SPANS = """
insert into span (project_id, trace_id, span_id, parent_span_id, kind, name, status, started_at, ended_at,
    created_at, call_site_id, tagged, session_id, user_id, provided_model_name, model_id, provider,
    input_tokens, output_tokens, total_cost, cost_source, input_preview, output_preview, frame)
select $1, decode(md5('trace ' || n / 10), 'hex'), decode(lpad(to_hex(n), 16, '0'), 'hex'),
    case when n % 10 = 0 then null else decode(lpad(to_hex(n - n % 10), 16, '0'), 'hex') end,
    (array['agent','llm','tool','llm','tool','llm','retrieval','llm','tool','llm'])[1 + n % 10],
    case when n % $6::bigint = 0 then 'a needle in the haystack' else 'chat step ' || n % 40 end,
    case when n % 33 = 0 then 'error' else 'ok' end, at,
    at + (5 + n * 7919 % 3000) * interval '1 millisecond', at,
    'shop/' || n % 60, false, 'session-' || n / 1000, 'user-' || n % 500, 'gpt-4o',
    case when n % $7::bigint = 5 then 'o1-mini' when n % 10 = 9 and n < $6::bigint * 7 then 'gpt-3.5-turbo'
        else (array['gpt-4o','gpt-4o-mini','claude-sonnet-4-5'])[1 + n % 3] end,
    'openai', tokens.input, tokens.output, (tokens.input * 2.5 + tokens.output * 10) / 1000000, 'inferred',
    'where is my parcel number ' || n, 'it is on its way, order ' || n, 0
from generate_series($2::bigint, $3::bigint) n
cross join lateral (select $4::timestamptz + n * $5::interval as at) as times
cross join lateral (select 200 + n * 31 % 9000 as input, 20 + n * 17 % 800 as output) as tokens
"""

_TRACES = """
insert into trace (project_id, trace_id, name, started_at, ended_at, first_started_at, last_started_at,
    root_seen, session_id, user_id, call_site_id, span_count, error_count, status, total_tokens, total_cost,
    unpriced_spans, input_preview, output_preview, created_at, stale, due_at)
select project_id, trace_id, min(name) filter (where parent_span_id is null), min(started_at),
    max(ended_at), min(started_at), max(started_at), true, min(session_id), min(user_id), 'shop/0', count(*),
    count(*) filter (where status = 'error'), 'ok', 9600, sum(total_cost), 0,
    min(input_preview) filter (where parent_span_id is null),
    min(output_preview) filter (where parent_span_id is null), min(created_at), false, min(created_at)
from span where project_id = $1 and created_at between $2 and $3 group by project_id, trace_id
"""

_SESSIONS = """
insert into session
select project_id, session_id, min(user_id), min(started_at), max(ended_at) from span
where session_id is not null and project_id = $1 and created_at between $2 and $3 group by 1, 2
"""

#: One call for each span of a tool; some failed, and a few of those say the rare word.
_TOOL_CALLS = """
insert into tool_call (project_id, trace_id, span_id, index, embedded, name, status, error_type,
    error_message, call_site_id, started_at, created_at)
select project_id, trace_id, span_id, 0, false, 'tool-' || n % 7, status,
    case when status = 'error' then 'TimeoutError' end,
    case when n % ($4::bigint / 5) = 2 then 'a needle was in it' when status = 'error'
        then 'no answer for order ' || n end,
    call_site_id, started_at, created_at
from span cross join lateral (select ('x' || encode(span_id, 'hex'))::bit(64)::bigint as n) as number
where kind = 'tool' and project_id = $1 and created_at between $2 and $3
"""

#: A payload of 1.5 KB for each trace, which nobody can unpack.
_PAYLOADS = """
insert into span_payload (project_id, trace_id, started_at, frame, body)
select project_id, trace_id, date_trunc('day', started_at, 'UTC'), 0,
    decode(repeat(encode(sha512(trace_id), 'hex'), 24), 'hex')
from trace where project_id = $1 and created_at between $2 and $3
"""

_EVENTS = """
insert into classifier_event (project_id, classifier_id, severity, confidence, subject_kind,
    subject_trace_id, call_site_id, summary, created_at)
select project_id, 'classifier-' || get_byte(trace_id, 15) % 9, 'medium', 'high', 'trace', trace_id,
    call_site_id, 'the answer repeats itself', created_at
from trace where get_byte(trace_id, 15) % 10 = 0 and project_id = $1 and created_at between $2 and $3
"""

_ALL_BUILT = (
    "insert into cube_progress (project_id, dataset, built_until)"
    " select $1, name, '9999-01-01Z' from unnest(array['spans','tool_calls','traces']) as datasets (name)"
    " on conflict (project_id, dataset) do update set built_until = excluded.built_until",
    "insert into metric_rollup_progress (project_id, built_until) values ($1, '9999-01-01Z')"
    " on conflict (project_id) do update set built_until = excluded.built_until",
)
_NOTHING_BUILT = (
    "delete from cube_progress where project_id = $1",
    "delete from metric_rollup_progress where project_id = $1",
)


def trace_id(number: int) -> bytes:
    """The id of a trace of the history."""
    return hashlib.md5(f"trace {number}".encode(), usedforsecurity=False).digest()


async def fill(env: dict[str, str], spans: int) -> tuple[str, str]:
    """Everything but the newest spans. Returns an admin key, and the id of a finding with evidence."""
    async with open_store(read_settings(env)) as store:
        database = store.database
        now = datetime.now(UTC)
        start = now - timedelta(days=DAYS)
        step = timedelta(days=DAYS) / spans
        project = await ProjectStore(database).make_default()
        assert project is not None
        project_id = project.id
        days = DayPartitions(database)
        await days.ensure([(start + timedelta(days=day)).date() for day in range(DAYS + 2)], now)
        # The service builds meanwhile, and must not take an hour for complete whose rows are still to come.
        await _say_built(database, project_id, _ALL_BUILT)
        chunks = iter(range(0, spans, _CHUNK))

        async def insert_chunks() -> None:
            for first in chunks:
                await _insert_chunk(database, project_id, spans, first, start, step)

        async with trio.open_nursery() as nursery:
            for _ in range(_WRITERS):
                nursery.start_soon(insert_chunks)
        await _say_built(database, project_id, _NOTHING_BUILT)
        finding_id = await _detected(database, project_id, now)
        await _built(database, now)

        async def analyze(connection: Connection) -> None:
            await connection.execute("vacuum analyze")

        await database.run(analyze, transaction=False, timeout_s=_FILL_TIMEOUT_S)
        minted = await PostgresKeyStore(database).create(project_id, "bench", "admin", actor=OPERATOR)
        return minted.plaintext, str(finding_id)


async def _say_built(database: Database, project_id: int, statements: Sequence[str]) -> None:
    async def work(connection: Connection) -> None:
        for sql in statements:
            await connection.execute(sql, project_id)

    await database.run(work)


async def _insert_chunk(
    database: Database, project_id: int, spans: int, first: int, start: datetime, step: timedelta
) -> None:
    """The spans from one number on, and what belongs to them; traces and sessions end with a chunk."""
    last = min(first + _CHUNK, spans) - 1
    of_chunk = project_id, start + first * step, start + last * step

    async def work(connection: Connection) -> None:
        await connection.execute(_SPANS, project_id, first, last, start, step, spans // RARE, RARE_MODEL)
        for sql in (_TRACES, _SESSIONS, _PAYLOADS, _EVENTS):
            await connection.execute(sql, *of_chunk)
        await connection.execute(_TOOL_CALLS, *of_chunk, spans // RARE)

    await database.run(work, timeout_s=_FILL_TIMEOUT_S)


async def _built(database: Database, now: datetime) -> None:
    """Cubes and roll-ups, up to the last full hour."""

    async def build(store: CubeStore | RollupStore) -> None:
        while (await store.build(now, 500)).more:
            pass

    async with trio.open_nursery() as nursery:
        nursery.start_soon(build, CubeStore(database))
        nursery.start_soon(build, RollupStore(database))


async def _detected(database: Database, project_id: int, now: datetime) -> UUID:
    """Five hundred cases, a finding behind each, and a taxonomy. The finding of C-1 has 2,000 refs."""
    many = [Ref("member", trace_id=trace_id(number)) for number in range(2_000)]
    few = [Ref("exemplar", trace_id=trace_id(number), rank=number) for number in range(1, 4)]
    findings, cases = FindingStates(database), CaseFindings(database)
    first: UUID | None = None
    for number in range(500):
        at = now - timedelta(minutes=number)
        site = f"shop/{number % 60}"
        seen = Detection(
            Cause("tool-errors", "error_type", f"{number}"), "tools time out", "measured",
            (0.1, 0.5, 0.9)[number % 3], "call_site", f"{number}", site, at, at, trace_count=3,
            call_site_id=site,
        )  # fmt: skip
        fired = await findings.fire(project_id, seen, few if number else few + many)
        first = first or fired.finding_id
        await findings.rule(project_id, fired.finding_id, Triage("positive", "confirm", ""), RULE, at)
        await cases.open(project_id, fired.finding_id, RULE, at)
    modes = [
        {"id": f"mode-{number}", "name": "repeats itself", "severity": "low", "scope": "trace", "layer": "A"}
        for number in range(100)
    ]
    await TaxonomyStore(database).replace(project_id, read_taxonomy({"failure_modes": modes}))
    assert first is not None
    return first


def send_readable(service: Service) -> str:
    """The newest traces, sent as an exporter does. Returns the id of one."""
    dice = random.Random(7)
    traces = [dice.randbytes(16) for _ in range(READABLE)]
    spans = []
    for trace in traces:
        for number in range(STEPS):
            said = [{"role": "user", "parts": [{"type": "text", "content": text(dice, 2000)}]}]
            chat = {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "gpt-4o",
                "gen_ai.usage.input_tokens": 500,
                "gen_ai.usage.output_tokens": 60,
                "gen_ai.input.messages": msgspec.json.encode(said).decode(),
                "user.id": "readable",
            }
            spans.append(
                wire.span(
                    f"turn {number}",
                    chat,
                    trace_id=trace,
                    span_id=(number + 1).to_bytes(8, "big"),
                    parent=(1).to_bytes(8, "big") if number else b"",
                    start_ns=time.time_ns() - 1_000_000_000,
                    end_ns=time.time_ns(),
                )
            )
    assert service.send(wire.request(*spans).SerializeToString()).status_code == 200
    service.wait_for_spans(READABLE * STEPS, user_id="readable")
    return traces[0].hex()


@attrs.frozen
class History:
    """A service with so many spans, a key for MCP, a finding with evidence, a trace with payloads."""

    service: Service
    spans: int
    admin_key: str
    finding_id: str
    readable: str

    def sign_in(self, client: httpx2.Client) -> None:
        """Make the first account, or sign in as it; the cookie stays with the client."""
        form = {"email": "owner@example.org", "password": "correct horse battery"}
        origin = {"Origin": str(client.base_url).rstrip("/")}
        answers = (client.post(way, data=form, headers=origin) for way in ("/signup", "/login"))
        assert any(answer.status_code == 303 for answer in answers)


@contextmanager
def history(spans: int, kept: Path | None = None) -> Iterator[History]:
    """A service that is filled with so many spans.

    `kept` is a folder where histories are left. One of this size is asked as it is there; what the present
    code has to build of it is built before.
    """
    folder = None if kept is None else kept / f"{spans}"
    told = None if folder is None else folder / "history.json"
    if folder is not None and told is not None and told.exists():
        with measured(folder / "data", upgrades=True) as service:
            trio.run(_caught_up, dict(service.env))
            yield History(service, spans, **msgspec.json.decode(told.read_bytes()))
        return
    with measured(None if folder is None else _made(folder)) as service:
        started_s = time.perf_counter()
        admin_key, finding_id = trio.run(fill, dict(service.env), spans)
        readable = send_readable(service)
        print(f"filled with {spans:,} spans in {time.perf_counter() - started_s:.0f} s", flush=True)
        made = History(service, spans, admin_key, finding_id, readable)
        if told is not None:
            told.write_bytes(
                msgspec.json.encode(attrs.asdict(made, filter=attrs.filters.exclude("service", "spans")))
            )
        yield made


def _made(folder: Path) -> Path:
    """Where the data of a kept history lies; the embedded server's account has to reach it."""
    folder.mkdir(mode=0o711, parents=True)
    return folder / "data"


async def _caught_up(env: dict[str, str]) -> None:
    """Build what is not built yet."""
    async with open_store(read_settings(env)) as store:
        await _built(store.database, datetime.now(UTC))
