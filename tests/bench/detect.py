"""`make bench-detect`: how often the detectors cry wolf, how fast they see a change, and how fast they judge.

    python -m tests.bench.detect [--buckets 100]

All on simulated traffic with fixed seeds, on one core: run lengths and delays of the rate engine by the exact
chain and by simulation, its false alarms and onsets, the nulls and changes of the drift engine, confirmation
by rule, and a backlog of a million rows. Prints Markdown.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from svc.domain.detect.engine import bars
from svc.domain.detect.engine.bars import GRAIN
from svc.domain.detect.engine.drift_engine import DriftSettings, judge_drift
from svc.domain.detect.engine.rate_engine import RateSettings, RateState, judge_rates
from svc.domain.detect.engine.rate_reference import Gathered, RateReference, reference_of
from tests.domain.detect.engine.size_traffic import drifted, sizes
from tests.domain.detect.engine.traffic import (
    DAY,
    HOUR,
    START,
    failures,
    from_slot,
    hiccups,
    judged,
    simulated_run_length,
)

#: A fortnight after three weeks of reference.
LEARNT = 21 * DAY
DAYS = 35


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table."""
    print(f"\n### {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def random(seed: int) -> np.random.Generator:
    """A generator of its own for each bucket."""
    return np.random.default_rng(seed)


def known(units: int, failed: int, days: int) -> RateReference:
    """A sealed reference of so many days before the start."""
    return reference_of(Gathered(units, failed, START - days * DAY, START, 2**28 - 1), sealed=True)


def run_lengths() -> None:
    """The table of §2, and run lengths as simulated."""
    rows = []
    for p0, p1 in ((0.001, 0.006), (0.005, 0.01), (0.01, 0.02), (0.05, 0.1), (0.1, 0.2), (0.2, 0.4)):
        weights = bars.weights(p0, p1)
        cells = []
        for units in (250_000, 5_000_000):
            bar = bars.bar(p0, weights, units) / GRAIN
            cells += [f"{bar:.2f}", f"{bars.units_between(p1, weights, bar):,.0f}"]
        bar_ = bars.bar(p0, weights, 20_000)
        simulated = simulated_run_length(p0, weights, bar_, 60_000_000, 1) / 20_000
        rows.append((f"{p0:.1%} → {p1:.1%}", *cells, f"{simulated:.2f}"))
    head = ("p0 → p1", "h, 250,000", "delay, units", "h, 5 M", "delay, units", "simulated / 20,000")
    table("Rate engine: bars, delays by the chain, run length as simulated", head, rows)


def rate_nulls(buckets: int) -> None:
    """Buckets with a false rise in the 28 days after they armed."""
    rows = []
    for units in (150, 500, 5_000):
        for rate in (0.002, 0.01, 0.05, 0.2):
            judgements = [judged(failures(random(i), DAYS, units, rate), DAYS) for i in range(buckets)]
            rose = sum(bool(j.rises) for j in judgements) / buckets
            fell = sum(bool(j.falls) for j in judgements) / buckets
            rows.append((units, f"{rate:.1%}", f"{rose:.2f}", f"{fell:.2f}"))
    head = ("units a day", "rate", "rise", "fewer")
    table("Rate engine: share of buckets alarmed by chance in 28 days", head, rows)


def rate_hiccups(buckets: int) -> None:
    """False alarms of buckets with bad five minutes, and how fast they see an outage all the same."""
    rows = []
    first = 33 * DAY + 100
    outage = from_slot(DAYS, first, 0.6)
    for share in (0.3, 0.5, 1.0):
        for a_day in (6.0, 0.2):
            alarmed, delays = 0, []
            for i in range(buckets):
                rates = np.maximum(hiccups(random(i), DAYS, 0.01, a_day, share), outage)
                tallies = failures(random(i + 10_000), DAYS, 5_000, rates)
                fired = [alarm.fired - START for alarm in judged(tallies, DAYS).rises]
                alarmed += any(slot < first for slot in fired)
                delays += [5 * (slot + 1 - first) for slot in fired if slot >= first][:1]
            rows.append((f"{share:.0%}", a_day, f"{alarmed / buckets:.2f}", f"{np.median(delays):.0f}"))
    head = ("failing in a hiccup", "hiccups a day", "false alarm in 26 days", "minutes to see a 60 % outage")
    table("Rate engine: hiccups of five minutes, 5,000 calls a day at 1 %", head, rows)


def rate_changes(buckets: int) -> None:
    """Delays and onsets of steps, with the share that the rule confirms."""
    rows = []
    first = 5 * DAY + 40
    for usual, changed, units in (
        (0.001, 0.006, 5_000),
        (0.01, 0.02, 2_000),
        (0.01, 0.05, 500),
        (0.01, 0.95, 60),
        (0.05, 0.1, 2_000),
        (0.2, 0.4, 500),
    ):
        delays, needed, errors, held, later = [], [], [], 0, []
        for i in range(buckets):
            tallies = failures(random(i), 19, units, usual + from_slot(19, first, changed - usual))
            state = RateState.start(START, known(units * 90, round(units * 90 * usual), 90))
            rises = judge_rates(tallies, RateSettings(), state, START + 19 * DAY).rises
            alarm = next((a for a in rises if a.fired >= START + first), None)
            if alarm is None:
                continue
            delays.append((alarm.fired + 1 - START - first) / HOUR)
            needed.append(int(tallies.between(START + first, alarm.fired + 1).units.sum()))
            errors.append(abs(alarm.onset.median - START - first) / HOUR)
            held += alarm.onset.low <= START + first <= alarm.onset.high
            later += [(alarm.confirmed - alarm.fired) / HOUR] if alarm.confirmed is not None else []
        n = len(delays)
        rows.append(
            (
                f"{usual:.1%} → {changed:.1%}",
                units,
                f"{n / buckets:.2f}",
                f"{np.median(needed):,.0f}",
                f"{np.median(delays):.1f} h",
                f"{np.median(errors):.1f} h",
                f"{held / n:.2f}",
                f"{len(later) / n:.2f}",
                f"{np.median(later):.1f} h",
            )
        )
    head = (
        "step",
        "units a day",
        "found",
        "units needed",
        "delay",
        "onset error",
        "90 % holds it",
        "made rarer",
        "later by",
    )
    table("Rate engine: steps, medians, found within 14 days", head, rows)


def drift_nulls(buckets: int) -> None:
    """Buckets with any alarm in the 14 days after three weeks of reference."""
    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "day and night": {"season": 0.5},
        "heavy tail": {"heavy": True},
        "growing threefold": {"growth": 2.0},
        "10 % day noise": {"day_noise": 0.1},
        "10 % day noise, season": {"day_noise": 0.1, "season": 0.5},
        "10 % day noise, 1,500 a day": {"day_noise": 0.1, "rows_a_day": 1_500},
    }
    rows = []
    for name, kind in kinds.items():
        counts = np.zeros(5)
        for i in range(buckets):
            judgement = drifted(sizes(random(i), DAYS, **{"rows_a_day": 200, **kind}), DAYS)
            ups = [alarm for alarm in judgement.ups if alarm.fired >= START + LEARNT]
            downs = [alarm for alarm in judgement.downs if alarm.fired >= START + LEARNT]
            counts += (
                bool(ups or downs),
                any(alarm.locations for alarm in ups),
                any(alarm.tails for alarm in ups),
                bool(downs),
                any(alarm.confirmed is not None for alarm in ups),
            )
        rows.append((name, *(f"{count / buckets:.2f}" for count in counts)))
    head = ("traffic", "any", "location up", "tail", "location down", "up and made rarer")
    table("Drift engine: share of buckets alarmed by chance in 14 days, 200 rows a day", head, rows)


def drift_changes(buckets: int) -> None:
    """Delays of shifts that begin in the fourth week."""
    first = LEARNT + 150

    def step(times: float) -> Callable[[], dict[str, Any]]:
        return lambda: {"shift": from_slot(DAYS, first, math.log(times))}

    ramp = np.maximum(np.arange(DAYS * DAY) - first, 0) / DAY * math.log(1.04)
    hours = (np.arange(DAYS * DAY) % DAY) // HOUR
    office = np.where((np.arange(DAYS * DAY) >= first) & (hours >= 9) & (hours < 17), math.log(2), 0.0)
    changes: list[tuple[str, float, Callable[[], dict[str, Any]]]] = [
        ("×1.2", 200, step(1.2)),
        ("×1.5", 200, step(1.5)),
        ("×2", 200, step(2)),
        ("×1.6", 120, step(1.6)),
        ("×4", 120, step(4)),
        ("×2", 25, step(2)),
        ("×1.5 in 10 % day noise", 200, lambda: {**step(1.5)(), "day_noise": 0.1}),
        ("ramp 4 % a day", 200, lambda: {"shift": ramp}),
        ("tail 10 % ×6", 200, lambda: {"tail": (first, 0.1, 6.0)}),
        ("9–17 h ×2", 200, lambda: {"shift": office}),
    ]
    rows = []
    for name, per_day, kind in changes:
        delays, later, errors, by_tail = [], [], [], 0
        for i in range(buckets):
            ups = drifted(sizes(random(i), DAYS, per_day, **kind()), DAYS).ups
            alarm = next((a for a in ups if a.fired >= START + first), None)
            if alarm is not None:
                delays.append((alarm.fired + 1 - START - first) / HOUR)
                errors.append(abs(alarm.onset.median - START - first) / HOUR)
                by_tail += alarm.parts[0] in alarm.tails
                later += [(alarm.confirmed - alarm.fired) / HOUR] if alarm.confirmed is not None else []
        n = len(delays)
        rows.append(
            (
                name,
                per_day,
                f"{n / buckets:.2f}",
                f"{np.median(delays):.0f} h",
                f"{np.median(errors):.0f} h",
                f"{by_tail / n:.2f}",
                f"{len(later) / n:.2f}",
                f"{np.median(later):.1f} h",
            )
        )
    head = ("change", "rows a day", "found", "delay", "onset error", "tail first", "made rarer", "later by")
    table("Drift engine: changes, medians, found within 14 days", head, rows)


def backlog() -> None:
    """A million rows of a month, in buckets of very different size, and one look of a beat."""
    shares = 1 / np.arange(1, 61) ** 1.1
    shares /= shares.sum()
    rates = [failures(random(i), 30, share * 500_000 / 30, 0.02) for i, share in enumerate(shares)]
    histories = [sizes(random(i), 30, share * 500_000 / 30) for i, share in enumerate(shares)]
    units = sum(int(t.units.sum()) for t in rates) + sum(int(t.counts.sum()) for t in histories)
    started = time.process_time()
    judged_rates = [judged(tallies, 30) for tallies in rates]
    between = time.process_time()
    judged_sizes = [drifted(tallies, 30) for tallies in histories]
    ended = time.process_time()
    until = START + 30 * DAY + 1
    for tallies, judgement in zip(rates, judged_rates, strict=True):
        state = judgement.state
        judge_rates(tallies.between(state.needs_from, until), RateSettings(), state, until)
    looked = time.process_time()
    for rows, last_look in zip(histories, judged_sizes, strict=True):
        kept = last_look.state
        judge_drift(rows.between(kept.needs_from, until), DriftSettings(), kept, until)
    last = time.process_time()
    table(
        f"Judging {units:,} rows of 30 days in 60 rate and 60 size buckets, CPU seconds",
        ("rates", "sizes", "next look, a rate bucket", "next look, a size bucket"),
        [
            (
                f"{between - started:.2f}",
                f"{ended - between:.2f}",
                f"{(looked - ended) / 60 * 1e3:.2f} ms",
                f"{(last - looked) / 60 * 1e3:.2f} ms",
            )
        ],
    )


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description="The detectors on simulated traffic.")
    parser.add_argument("--buckets", type=int, default=100, help="simulated buckets a row")
    buckets = parser.parse_args().buckets
    started = time.process_time()
    backlog()
    run_lengths()
    rate_nulls(buckets)
    rate_hiccups(buckets)
    rate_changes(buckets)
    drift_nulls(buckets)
    drift_changes(buckets)
    print(f"\n{buckets} buckets a row, {time.process_time() - started:.0f} CPU seconds.")


if __name__ == "__main__":
    main()
