"""Laws of the plain port beside TLS: who is answered there in the clear."""

from __future__ import annotations

import pytest

from svc.front.server.plain import PlainPort


async def _no_answer(token: str) -> str | None:
    return None


@pytest.mark.parametrize(
    ("client", "server", "expected"),
    [
        (("127.0.0.1", 40000), ("127.0.0.1", 8000), True),
        (("::1", 40000, 0, 0), ("::1", 8000, 0, 0), True),
        # Bound to one address of this machine, whose health check asks there.
        (("10.0.0.5", 40000), ("10.0.0.5", 8000), True),
        (("10.0.0.6", 40000), ("10.0.0.5", 8000), False),
        (("fe80::1%eth0", 40000, 0, 2), ("fe80::2%eth0", 8000, 0, 2), False),
        (None, None, False),
        (("unix", 0), ("unix", 0), False),
    ],
)
def test_health_in_the_clear_is_for_who_stands_on_this_machine(
    client: object, server: object, expected: bool
) -> None:
    plain = PlainPort("traces.example.org", _no_answer)
    scope = {"path": "/actuator/health/readiness", "client": client, "server": server}
    assert plain.lets_in(scope) is expected
    assert not plain.lets_in({**scope, "path": "/v1/traces"})
