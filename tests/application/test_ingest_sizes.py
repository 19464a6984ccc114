"""How many drainers a mode has: as many as its decoders need, and no more than there is work for."""

from __future__ import annotations

import pytest

from svc.application.ingest_sizes import drainers
from svc.config.table import read_settings


@pytest.mark.parametrize("mode", ["memory", "disk"])
@pytest.mark.parametrize(
    ("setting", "decoders", "effective"), [("1", "0", 1), ("2", "1", 2), ("2", "4", 5), ("8", "2", 8)]
)
def test_there_is_a_drainer_for_each_decoder_and_one_that_writes(
    mode: str, setting: str, decoders: str, effective: int
) -> None:
    env = {
        "SVC_INGEST_SPOOL_MODE": mode,
        "SVC_INGEST_DRAINERS": setting,
        "SVC_INGEST_DECODERS": decoders,
    }
    assert drainers(read_settings(env)) == effective


@pytest.mark.parametrize(("consumers", "effective"), [("1", 1), ("4", 4), ("64", 8)])
def test_in_kafka_mode_there_are_no_more_drainers_than_partitions(consumers: str, effective: int) -> None:
    env = {"SVC_INGEST_SPOOL_MODE": "kafka", "SVC_INGEST_SPOOL_KAFKA_CONSUMERS": consumers}
    assert drainers(read_settings(env)) == effective
