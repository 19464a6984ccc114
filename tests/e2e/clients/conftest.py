"""What the tests of real clients share: the stand-in for models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.clients.standin import StandIn, standing_in


@pytest.fixture(scope="module")
def standin() -> Iterator[StandIn]:
    with standing_in() as found:
        yield found
