"""How large a machine must be for so many spans a day, worked out from figures that were measured.

Called by `trace-svc size` and for the table of deploy/sizing.md. Every figure names the sentence it was taken
from, and a test compares the two. Knows nothing of the machine it runs on.
"""

from __future__ import annotations

from math import ceil
from typing import Any, Final

import attrs

_DAY_S: Final = 86_400
_GIB: Final = 2**30


@attrs.frozen
class Figure:
    """A measured value; `source` is a file in deploy/ and the words there that hold the number as `text`."""

    value: float
    text: str
    source: tuple[str, str]


_BENCHMARKS: Final = "BENCHMARKS.md"
_RUNNING: Final = "README.md"

#: The slowest whole run of `make bench` on two cores, with the machine at half its speed.
STORED_SPANS_S: Final = Figure(6388, "6,388", (_BENCHMARKS, "`make bench` stored 6,388 and 6,973 spans/s"))
BENCH_CORES: Final = Figure(2, "two", (_BENCHMARKS, "virtual machines with two x86_64 cores"))
BENCH_SPAN_BYTES: Final = Figure(4000, "4 KB", (_BENCHMARKS, "Spans of about 4 KB (20 attributes"))
MILLION_BYTES: Final = Figure(3.2e9, "3.2 GB", (_RUNNING, "| a million spans on disk | 3.2 GB"))
MILLION_SPAN_BYTES: Final = Figure(4400, "4.4 KB", (_RUNNING, "4.4 KB spans with no repeated text"))
#: Of conversations that are sent along again with each turn, the larger of two shares.
RESENT_SHARE: Final = Figure(
    0.236, "0.236", (_BENCHMARKS, "| **all tables and indexes** | **0.167** | **0.236** |")
)
LOG_BYTES: Final = Figure(4e9, "4 GB", (_RUNNING, "plus the log of the database, at most 4 GB"))
MEMORY_BYTES: Final = Figure(0.85e9, "0.85 GB", (_RUNNING, "| memory at maximum ingest rate | 0.85 GB"))
DECODERS_BYTES: Final = Figure(195e6, "195 MB", (_BENCHMARKS, "two decoder processes held 195 MB at most"))
HISTORY_SPANS: Final = Figure(
    10e6, "ten million", (_BENCHMARKS, "Histories of one and of ten million spans (a million traces)")
)
FIGURES: Final = (
    STORED_SPANS_S,
    BENCH_CORES,
    BENCH_SPAN_BYTES,
    MILLION_BYTES,
    MILLION_SPAN_BYTES,
    RESENT_SHARE,
    LOG_BYTES,
    MEMORY_BYTES,
    DECODERS_BYTES,
    HISTORY_SPANS,
)

# Chosen, not measured.
#: The busiest minutes carry so many times the average of the day.
PEAK: Final = 5
#: Half of the processor stays free for questions, detectors and backups.
BUSY_SHARE: Final = 0.5
#: Twice what was measured, as in compose.yaml; the rest caches the database.
MEMORY_MARGIN: Final = 2
#: Alerts begin at 85 % of the disk budget.
FULL_SHARE: Final = 0.85

#: Bounds of what is asked, so that every answer has a meaning.
MOST_SPANS: Final = 10**11
MOST_SPAN_BYTES: Final = 10**7
MOST_DAYS: Final = 3660

MEASURED: Final = (
    "The rate is within what was measured: two cores stored more in November 2026. Such machines drift by a"
    " factor of two, so take cores as good to a factor of two."
)
PROPORTIONAL: Final = (
    "The rate is beyond what was measured: no machine with more than two cores was, and this assumes that"
    " twice the cores store twice the spans. Measure with `make bench` before you buy."
)
LARGE_HISTORY: Final = (
    "The history is larger than any that was measured (ten million spans): how quickly questions over all of"
    " it are answered is not known. Disk grows in proportion."
)


@attrs.frozen
class InstanceSize:
    """An answer. The disk lies between `disk_low_bytes` (conversations that repeat) and `disk_high_bytes`."""

    spans_per_day: int
    span_bytes: int
    days: int
    mean_spans_s: float
    peak_spans_s: float
    cores: int
    memory_bytes: int
    disk_low_bytes: int
    disk_high_bytes: int
    #: To be rented: the larger one, with room until the first alert.
    disk_bytes: int
    rate_measured: bool
    history_measured: bool
    certainty: str

    def facts(self) -> dict[str, Any]:
        """For programs."""
        return attrs.asdict(self)


def sized(spans_per_day: int, span_bytes: int, days: int) -> InstanceSize:
    """Cores, memory and disk for this traffic, kept for so many days."""
    mean_s = spans_per_day / _DAY_S
    peak_s = mean_s * PEAK
    # A small span was not measured, and saves less than its bytes.
    heavier = max(1.0, span_bytes / BENCH_SPAN_BYTES.value)
    core_spans_s = STORED_SPANS_S.value / BENCH_CORES.value / heavier
    least_cores = int(BENCH_CORES.value)
    cores = max(least_cores, 2 * ceil(peak_s / core_spans_s / BUSY_SHARE / 2))
    decoder_bytes = DECODERS_BYTES.value / BENCH_CORES.value * (cores - least_cores)
    spans = spans_per_day * days
    low = spans * span_bytes * RESENT_SHARE.value + LOG_BYTES.value
    high = spans * span_bytes * MILLION_BYTES.value / 1e6 / MILLION_SPAN_BYTES.value + LOG_BYTES.value
    rate_measured, history_measured = cores == least_cores, spans <= HISTORY_SPANS.value
    certainty = MEASURED if rate_measured else PROPORTIONAL
    return InstanceSize(
        spans_per_day,
        span_bytes,
        days,
        round(mean_s, 1),
        round(peak_s, 1),
        cores,
        _whole_gib((MEMORY_BYTES.value + decoder_bytes) * MEMORY_MARGIN),
        _whole_gib(low),
        _whole_gib(high),
        _whole_gib(high / FULL_SHARE),
        rate_measured,
        history_measured,
        certainty if history_measured else f"{certainty} {LARGE_HISTORY}",
    )


def _whole_gib(number_bytes: float) -> int:
    return ceil(number_bytes / _GIB) * _GIB
