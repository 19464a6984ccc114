"""`trace-svc reprice` and `remap` beside a running service: preview, kill, and the end that counts."""

from __future__ import annotations

import os
import re
import subprocess
import time
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import trio

from svc.application.open_store import Store, open_store
from svc.config.table import read_settings
from svc.domain.pricing.project_prices import ModelPrice
from svc.store.spans.project_prices import ProjectPriceStore
from tests.e2e.mcp import beside
from tests.service import TRACE_SVC, Service, until
from tests.store.spans.test_writing import PROJECT
from tests.wire import request, span

CALLS = 300


def command(service: Service, *words: str, prices: Path) -> subprocess.Popen[str]:
    env = {**service.env, "SVC_PRICES_FILE": str(prices)}
    return subprocess.Popen(
        [TRACE_SVC, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def told(service: Service, *words: str, prices: Path) -> str:
    process = command(service, *words, prices=prices)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def test_history_is_repriced_beside_the_running_service_even_after_a_kill(
    service: Service, tmp_path: Path
) -> None:
    model, session = f"house-{uuid.uuid4()}", str(uuid.uuid4())
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": 1000,
        "session.id": session,
    }
    calls = [
        span(trace_id=os.urandom(16), span_id=os.urandom(8), attributes=call, start_ns=time.time_ns(),
             end_ns=time.time_ns())
        for _ in range(CALLS)
    ]  # fmt: skip
    assert service.send(request(*calls).SerializeToString()).status_code == 200
    service.wait_for_spans(CALLS, session_id=session, cost_source="unpriced")
    prices = tmp_path / "prices.toml"
    prices.write_text(f'[[price]]\nmodel = "{model}"\ninput = 2\n')

    preview = told(service, "reprice", prices=prices)
    assert re.search(rf"would change +{CALLS} spans in {CALLS} traces", preview), preview
    assert "run `trace-svc reprice --apply` to change it" in preview
    assert service.ask(
        "count", {"dataset": "spans", "filters": {"session_id": session, "cost_source": "unpriced"}}
    ) == {"count": CALLS}

    killed = command(service, "reprice", "--apply", prices=prices)
    # Wherever in its run that finds it: before, between two steps, after.
    time.sleep(0.8)
    killed.kill()
    killed.communicate(timeout=30)
    told(service, "reprice", "--apply", prices=prices)
    service.wait_for_spans(CALLS, session_id=session, cost_source="inferred")
    rows = service.ask("search", {"dataset": "spans", "filters": {"session_id": session}, "limit": 100})[
        "rows"
    ]
    assert {row["fields"]["total_cost"] for row in rows} == {0.002}

    remapped = told(service, "remap", prices=prices)
    assert re.search(r"would change +0 spans in 0 traces", remapped), remapped


def test_fields_are_as_old_as_the_history_once_that_was_read_again(service: Service, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("")

    async def young(store: Store) -> Any:
        return await store.database.fetch(
            "select field from attribute_key where field = 'attr.young' and promoted_at is not null"
        )

    async def promoted(store: Store) -> Any:
        await store.database.fetch(
            "insert into attribute_key (project_id, field, state, spans, hashes, last_seen_at, promoted_at)"
            " values ($1, 'attr.young', 'promoted', 1, '', now(), now())",
            PROJECT,
        )

    beside(service, promoted)
    told(service, "remap", prices=prices)
    assert beside(service, young)
    told(service, "reprice", "--apply", prices=prices)
    assert beside(service, young)
    told(service, "remap", "--apply", prices=prices)
    assert not beside(service, young)


def send_call(service: Service, model: str, session: str) -> None:
    """One call of a thousand tokens."""
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": 1000,
        "session.id": session,
    }
    now_ns = time.time_ns()
    one = span(
        trace_id=os.urandom(16), span_id=os.urandom(8), attributes=call, start_ns=now_ns, end_ns=now_ns
    )
    assert service.send(request(one).SerializeToString()).status_code == 200


def test_a_project_prices_its_calls_from_then_on_and_its_history_when_asked(
    service: Service, tmp_path: Path
) -> None:
    model, session = f"house-{uuid.uuid4()}", str(uuid.uuid4())

    def costs() -> list[float | None]:
        found = service.ask("search", {"dataset": "spans", "filters": {"session_id": session}, "limit": 100})[
            "rows"
        ]
        return [row["fields"]["total_cost"] for row in found]

    async def set_price() -> None:
        async with open_store(read_settings(dict(service.env))) as store:
            price = ModelPrice(model, None, Decimal(3), Decimal(6))
            await ProjectPriceStore(store.database).replace(PROJECT, [price], actor="me", slug="default")

    send_call(service, model, session)
    service.wait_for_spans(1, session_id=session, cost_source="unpriced")
    trio.run(set_price)

    def priced() -> bool:
        # Decoders hear of it within a few seconds.
        send_call(service, model, session)
        return 0.003 in costs()

    until(priced, every_s=0.5)
    assert None in costs()
    no_file = tmp_path / "prices.toml"
    no_file.write_text("")
    told(service, "reprice", "--apply", prices=no_file)
    until(lambda: set(costs()) == {0.003})
