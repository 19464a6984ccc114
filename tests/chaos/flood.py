"""A generator that remembers every span id that was acknowledged, and the comparison with what is stored."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

import httpx2
import trio

from protocol.otlp.reading import read_protobuf, walk
from svc.application.open_store import open_store
from svc.config.table import read_settings
from svc.store.postgres.database import Connection
from tests.bench.load import fresh, make_template
from tests.chaos.attacks import row
from tests.service import PLAIN, until

SPANS = 10


class Flood:
    """Sends batches of ten spans from a few threads, through every interruption, until it is told to stop.

    `acknowledged` holds the ids that got a 200, `returned` those that got a 503, `maybe` those whose answer
    was never heard. An answer that is neither a 200 nor a 503 ends its thread and stands in `surprises`.
    """

    def __init__(self, url: str, write_key: str, *, threads: int = 3) -> None:
        self.url, self._key = url, write_key
        self.acknowledged: set[bytes] = set()
        self.maybe: set[bytes] = set()
        self.returned: set[bytes] = set()
        self.refused = 0
        self.surprises: list[str] = []
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(seed,)) for seed in range(threads)]

    def __enter__(self) -> Flood:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Stop and wait for the last answers."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _send(self, seed: int) -> None:
        template = make_template(seed, SPANS)
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/x-protobuf"}
        while not self._stop.is_set():
            with httpx2.Client(headers=headers, timeout=30, **PLAIN) as client:
                while not self._stop.is_set():
                    body = bytes(fresh(template))
                    ids = {span.trace_id + span.span_id for span in walk(read_protobuf(body))}
                    try:
                        response = client.post(f"{self.url}/v1/traces", content=body)
                    except httpx2.TransportError:
                        with self._lock:
                            self.maybe |= ids
                        self._stop.wait(0.1)
                        break
                    if response.status_code == 200:
                        with self._lock:
                            self.acknowledged |= ids
                    elif response.status_code == 503:
                        with self._lock:
                            self.returned |= ids
                        self.refused += 1
                        self._stop.wait(0.1)
                    else:
                        self.surprises.append(f"{response.status_code} {response.text}")
                        return

    def until_more(self, spans: int = 0) -> None:
        """Wait until so many more spans are acknowledged."""
        seen = len(self.acknowledged)

        def come() -> bool:
            assert not self.surprises
            return len(self.acknowledged) > seen + spans

        until(come, timeout_s=60)


def stored(env: Mapping[str, str]) -> Counter[bytes]:
    """How often each span id stands in the database that an environment names."""

    async def work(connection: Connection) -> Counter[bytes]:
        rows = await connection.fetch("select trace_id || span_id as id, count(*) as n from span group by 1")
        return Counter({row["id"]: row["n"] for row in rows})

    async def main() -> Counter[bytes]:
        async with open_store(read_settings(env), as_it_is=True) as store:
            return await store.database.run(work)

    return trio.run(main)


def compare(flood: Flood, found: Counter[bytes], attack: str = "", rounds: int = 1) -> None:
    """Zero missing, zero doubled, nothing invented, only 200 and 503. Prints the row of an attack."""
    missing = flood.acknowledged - found.keys()
    doubled = [span for span, count in found.items() if count > 1]
    invented = found.keys() - flood.acknowledged - flood.maybe
    if attack:
        print(row(attack, rounds, len(flood.acknowledged), len(missing), len(doubled)))
    assert not flood.surprises
    assert (len(missing), len(doubled), len(invented)) == (0, 0, 0)
