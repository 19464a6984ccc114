"""Prometheus metrics: counters and gauges read from snapshots at the moment of a scrape.

Owns the names of all metrics. The actors count plainly; this file turns their counts into samples, so that
the hot path knows nothing of Prometheus. Only the two latency histograms are observed as things happen.
"""

from __future__ import annotations

from calendar import timegm
from collections.abc import Callable, Iterable, Mapping
from math import inf, isinf
from typing import Any, Final

import attrs
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from actors.alerts import AlertTally
from actors.backups import BackupTally
from actors.disk_budget import DiskTally
from actors.drainer import Tally
from actors.roller import RollerTally
from actors.spool.memory import SpoolState
from actors.supervision import Board
from actors.sweeper import SweepTally
from actors.tee import TeeTally
from protocol.detection_rounds import FAILED
from svc.front.health import Ledger
from svc.front.otlp.intake import IntakeTally
from svc.front.otlp.quotas import Quotas
from svc.front.otlp.signals import TakenSignals

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


@attrs.frozen
class Sources:
    """Where the numbers come from."""

    spool: Callable[[], SpoolState]
    intake: IntakeTally
    quotas: Quotas
    tally: Tally
    roller: RollerTally
    #: What the tally updater has counted, by name.
    tallying: Callable[[], Mapping[str, int]]
    sweep: SweepTally
    keys: Callable[[], Mapping[str, int]]
    sign_ins: Callable[[], Mapping[str, int]]
    pools: Callable[[], dict[str, dict[str, int]]]
    outages: Callable[[], int]
    turned_away: Callable[[], int]
    shed: Callable[[], int]
    board: Board
    in_flight: Callable[[], int]
    #: How long steps of tasks held the event loop, in milliseconds and by task.
    loop: Callable[[], Mapping[str, Any]]
    ledger: Callable[[], Ledger]
    #: Seconds until the certificate that is served ends; None where this process does no TLS.
    certificate_left_s: Callable[[], float | None]
    backups: BackupTally | None
    disk: DiskTally | None
    alerts: AlertTally
    tee: TeeTally | None = None
    #: What is known of the replica that is read; None where there is none.
    replica: Callable[[], Mapping[str, Any]] | None = None


class _Snapshots(Collector):
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterable[Metric]:
        """One scrape."""
        yield from self._ingest()
        yield from self._database()
        yield from self._actors()
        yield from _backups(self._sources.backups)
        yield from _disk(self._sources.disk)
        yield from _tee(self._sources.tee)
        yield from _alerts(self._sources.alerts)
        if self._sources.replica is not None:
            yield from _replica(self._sources.replica())

    def _ingest(self) -> Iterable[Metric]:
        s, spool = self._sources, self._sources.spool()
        yield _counter("svc_ingest_requests", "Ingest requests accepted.", s.intake.requests)
        yield _counter("svc_ingest_accepted_spans", "Spans acknowledged to exporters.", s.intake.spans)
        yield _counter("svc_ingest_rejected_spans", "Spans refused one by one.", s.intake.rejected_spans)
        refused = CounterMetricFamily(
            "svc_ingest_refused_requests", "Ingest requests refused, by HTTP status.", labels=["status"]
        )
        for status, count in sorted(s.intake.refused.items()):
            refused.add_metric([status], count)
        yield refused
        signals = CounterMetricFamily(
            "svc_ingest_refused_signals",
            "Requests with metrics or logs, which are refused.",
            labels=["signal"],
        )
        for signal, count in sorted(s.intake.signals.counts.items()):
            signals.add_metric([signal], count)
        yield signals
        yield from _log_records(s.intake.taken)
        quotas = s.quotas
        yield _counter("svc_quota_refused_spans", "Spans refused over a quota.", quotas.refused_spans)
        yield _counter("svc_quota_refused_requests", "Requests over a key's bytes.", quotas.refused_requests)
        yield _counter("svc_ingest_stored_spans", "Spans stored.", s.tally.stored)
        yield _counter(
            "svc_ingest_duplicate_spans", "Re-sent spans that replaced or met one.", s.tally.duplicates
        )
        yield _counter("svc_ingest_dead_lettered_spans", "Spans dead-lettered.", s.tally.dead_lettered)
        yield _counter("svc_ingest_write_groups", "Write transactions.", s.tally.groups)
        yield _gauge("svc_spool_depth_batches", "Batches accepted and not stored yet.", spool.depth)
        yield _gauge("svc_spool_bytes", "Bytes accepted and not stored yet.", spool.bytes)
        yield _gauge("svc_spool_reserved_bytes", "Bytes of bodies on their way in.", spool.reserved_bytes)
        yield _gauge("svc_spool_max_bytes", "Budget of the spool.", spool.max_bytes)
        yield _gauge("svc_spool_oldest_age_seconds", "Age of the oldest waiting batch.", spool.oldest_age_s)
        yield _counter("svc_spool_refused_full", "Offers refused: spool full.", spool.refused_full)
        yield _counter("svc_spool_refused_never", "Offers larger than the whole spool.", spool.refused_never)
        for name, spans in attrs.asdict(s.ledger()).items():
            yield _gauge(f"svc_ledger_{name}_spans", f"Ledger of this process: {name}.", spans)
        yield _gauge("svc_ledger_balance_spans", "Ledger: zero at rest.", s.ledger().balance)
        yield _counter("svc_http_shed", "Connections closed or refused: too many were open.", s.shed())
        yield _gauge("svc_http_in_flight", "HTTP requests inside.", s.in_flight())
        loop = s.loop()
        yield _gauge(
            "svc_loop_late_seconds", "Longest wait for the event loop lately.", loop["late_ms"] / 1000
        )
        yield _counter(
            "svc_loop_stalls", "Steps of tasks that held the event loop for over 0.1 s.", loop["stalls"]
        )
        yield _gauge(
            "svc_loop_longest_step_cpu_seconds",
            "Most processor time that one step of a task took since the start.",
            loop["longest_step_cpu_ms"] / 1000,
        )
        left_s = s.certificate_left_s()
        if left_s is not None:
            yield _gauge(
                "tls_certificate_expires_seconds", "Time until the certificate that is served ends.", left_s
            )

    def _database(self) -> Iterable[Metric]:
        for name, key, text in (
            ("svc_db_connections", "size", "Open database connections, by kind of work."),
            ("svc_db_idle_connections", "idle", "Idle database connections, by kind of work."),
            ("svc_db_max_connections", "max", "Most database connections, by kind of work."),
        ):
            gauge = GaugeMetricFamily(name, text, labels=["pool"])
            for pool, state in self._sources.pools().items():
                gauge.add_metric([pool], state[key])
            yield gauge
        yield _counter(
            "svc_questions_refused",
            "Questions of keys refused: too many at once.",
            self._sources.turned_away(),
        )
        yield _counter("svc_db_outages", "Times that the database was away.", self._sources.outages())

    def _actors(self) -> Iterable[Metric]:
        s = self._sources
        alive = GaugeMetricFamily("svc_actor_alive", "Whether an actor is alive.", labels=["actor"])
        crashes = CounterMetricFamily("svc_actor_crashes", "Crashes of an actor.", labels=["actor"])
        for vitals in s.board.all():
            alive.add_metric([vitals.name], int(vitals.alive))
            crashes.add_metric([vitals.name], vitals.crashes)
        yield alive
        yield crashes
        yield _counter("svc_traces_rolled", "Traces looked at by the roller.", s.roller.rolled)
        yield _counter("svc_traces_settled", "Traces settled.", s.roller.settled)
        yield from _tallying(s.tallying())
        yield _counter("svc_retention_sweeps", "Retention sweeps completed.", s.sweep.sweeps)
        yield _counter("svc_retention_dropped_days", "Days dropped, one for each table.", s.sweep.days)
        yield _counter("svc_retention_freed_rows", "Rows that expired, about.", s.sweep.rows)
        yield _counter("svc_retention_freed_bytes", "Bytes of dropped days.", s.sweep.bytes)
        keys = s.keys()
        yield _gauge("svc_keys_known", "Verdicts in the key cache.", keys["known"])
        yield _counter("svc_keys_hits", "Tokens answered from the key cache.", keys["hits"])
        yield _counter("svc_keys_misses", "Tokens that had to be verified.", keys["misses"])
        yield _counter("svc_keys_refused_full", "Tokens refused: too many wait.", keys["refused_full"])
        yield _counter(
            "svc_keys_refused_guesses", "Tokens refused: too many under one prefix.", keys["refused_guesses"]
        )
        sign_ins = s.sign_ins()
        yield _counter(
            "svc_sign_ins_refused_tries", "Password attempts refused: too many.", sign_ins["refused_tries"]
        )
        yield _counter(
            "svc_sign_ins_refused_full",
            "Password attempts refused: too many wait.",
            sign_ins["refused_full"],
        )
        for name, about in _OAUTH.items():
            yield _counter(f"svc_oauth_{name}", about, sign_ins[name])
        for name, about in _LINKS.items():
            yield _counter(f"svc_invitation_{name}", about, sign_ins[name])


_OAUTH: Final = {
    "refused_registrations": "Registrations of applications refused: too many from one address.",
    "refused_tokens": "Requests about tokens refused: too many from one address came to nothing.",
}
_LINKS: Final = {
    "links_mailed": "Links of invitations mailed.",
    "links_failed": "Links of invitations that could not be mailed.",
    "links_refused_full": "Requests for the link of an invitation dropped: too many wait.",
}


def _tallying(counts: Mapping[str, int]) -> Iterable[Metric]:
    for name, key, text in (
        ("svc_traces_folded", "traces", "Traces counted by the detectors."),
        ("svc_traces_folded_again", "again", "Traces counted anew after a change."),
        ("svc_fold_left_out", "left_out", "Observations without a bucket: too many."),
        ("svc_fold_unread_payloads", "unread", "Payloads beyond a round's bounds."),
    ):
        yield _counter(name, text, counts.get(key, 0))
    raised = CounterMetricFamily(
        "svc_detector_failures", "Traces at which a detector raised.", labels=["detector"]
    )
    for name, traces in sorted(counts.items()):
        if name.startswith(FAILED):
            raised.add_metric([name.removeprefix(FAILED)], traces)
    yield raised


def _backups(tally: BackupTally | None) -> Iterable[Metric]:
    if tally is None:
        return
    yield _counter("svc_backup_runs", "Nightly backups that were tried.", tally.runs)
    yield _counter("svc_backup_failures", "Nightly backups that failed.", tally.failures)
    yield _counter("svc_backup_copies", "Copies of backups to an object store that were tried.", tally.copies)
    yield _counter("svc_backup_copy_failures", "Copies of backups that failed.", tally.copy_failures)
    yield _counter("svc_backup_wal_segments", "Segments of the WAL that were copied.", tally.wal_segments)
    yield _counter("svc_backup_wal_bytes", "Bytes that those segments take.", tally.wal_bytes)
    yield _counter("svc_backup_wal_failures", "Rounds of copying the WAL that failed.", tally.wal_failures)
    until = 0.0 if tally.wal_copied_until is None else tally.wal_copied_until.timestamp()
    yield _gauge("svc_backup_wal_copied_until_seconds", "Up to when the WAL is copied, since 1970.", until)
    good = 0.0 if tally.last_good_at is None else tally.last_good_at.timestamp()
    yield _gauge("svc_backup_last_good_seconds", "When the last good backup was made, since 1970.", good)


def _alerts(tally: AlertTally) -> Iterable[Metric]:
    yield _counter("svc_alert_messages", "Messages made of what rules had to tell.", tally.messages)
    for name, text in (
        ("sent", "Messages that their receivers took."),
        ("direct", "Of those sent: while the database was away."),
        ("failed", "Tries to deliver that came to nothing."),
        ("dead", "Messages that were given up."),
        ("lost", "Messages that another copy took over while they were in hand."),
    ):
        yield _counter(f"svc_alert_deliveries_{name}", text, getattr(tally, name))
    yield _gauge("svc_alert_queued", "Messages that wait to be delivered, of all copies.", tally.queued)
    oldest = 0.0 if tally.oldest_at is None else tally.oldest_at.timestamp()
    yield _gauge("svc_alert_oldest_seconds", "When the oldest of them was made, since 1970; 0: none.", oldest)
    yield _gauge("svc_alert_resting_channels", "Channels left alone after failures.", tally.resting_channels)
    yield _gauge(
        "svc_alert_off_channels", "Channels whose receiver said that it is gone.", tally.off_channels
    )
    standing = "Rules at hand that are told even while the database is away."
    yield _gauge("svc_alert_standing_rules", standing, tally.standing_rules)
    yield _counter("svc_alert_looks", "Looks of rules that watch something.", tally.checks)
    troubles = CounterMetricFamily(
        "svc_alert_troubles", "Looks that came to nothing, by the kind of their rule.", labels=["kind"]
    )
    for kind, count in sorted(tally.troubles.items()):
        troubles.add_metric([kind], count)
    yield troubles


def _disk(tally: DiskTally | None) -> Iterable[Metric]:
    if tally is None:
        return
    used = GaugeMetricFamily("svc_disk_used_bytes", "Bytes that count for the budget.", labels=["kind"])
    for kind in ("database", "wal", "spool"):
        used.add_metric([kind], getattr(tally, kind))
    yield used
    yield _gauge("svc_disk_budget_bytes", "The disk budget.", tally.budget)
    yield _gauge("svc_disk_growth_bytes_a_day", "What a day adds, by the last week.", tally.bytes_a_day)
    reached = inf
    if tally.reached_on is not None:
        reached = float(timegm(tally.reached_on.timetuple()))
    yield _gauge("svc_disk_reached_seconds", "When the budget will be reached, since 1970.", reached)
    yield _counter("svc_disk_dropped_steps", "Days whose payloads or all went before their term.",
                   tally.dropped_steps)  # fmt: skip
    yield _counter("svc_disk_dropped_bytes", "Bytes of what went before its term.", tally.dropped_bytes)
    yield _gauge("svc_disk_refuses", "Whether ingest is refused for want of disk.", int(tally.refuses))


def _tee(tally: TeeTally | None) -> Iterable[Metric]:
    if tally is None:
        return
    yield _counter("svc_tee_forwarded_spans", "Accepted spans that the tee's endpoint took.", tally.forwarded)
    lost = CounterMetricFamily(
        "svc_tee_lost_spans",
        "Accepted spans that the tee's endpoint did not get, by cause.",
        labels=["cause"],
    )
    for cause, spans in sorted(tally.lost.items()):
        lost.add_metric([cause], spans)
    yield lost
    yield _counter(
        "svc_tee_requests", "Requests to the tee's endpoint, tries again included.", tally.requests
    )
    yield _gauge("svc_tee_waiting_bytes", "Bytes that wait for the tee's endpoint.", tally.waiting_bytes)


def _replica(replica: Mapping[str, Any]) -> Iterable[Metric]:
    lag_s = inf if replica["lag_ms"] is None else replica["lag_ms"] / 1000
    yield _gauge("svc_replica_lag_seconds", "How far the replica is behind; +Inf where nobody knows.", lag_s)
    yield _gauge(
        "svc_replica_asked", "Whether the replica is near enough to be asked.", replica["state"] == "near"
    )
    reads = CounterMetricFamily(
        "svc_history_reads", "Reads of spans and traces, by server.", labels=["server"]
    )
    for server in ("replica", "primary"):
        reads.add_metric([server], replica[f"asked_{server}"])
    yield reads


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


class Metrics:
    """The registry of this process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.queryable_s = Histogram(
            "svc_ingest_queryable_seconds",
            "Time from acknowledgement until a batch is stored and queryable.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.query_s = Histogram(
            "svc_query_seconds",
            "Time to answer a query, by route.",
            ["route"],
            buckets=_SECONDS,
            registry=self._registry,
        )

    def until_queryable(self) -> tuple[int, float | None, float | None]:
        """How many batches were stored, and within how many seconds half and nineteen of twenty of them were.

        A bound of the buckets; None beyond the last one.
        """
        (family,) = self.queryable_s.collect()
        counts = [
            (float(sample.labels["le"]), sample.value)
            for sample in family.samples
            if sample.name.endswith("_bucket")
        ]
        total = counts[-1][1]
        bounds = [next(le for le, n in counts if n >= share * total) for share in (0.5, 0.95)]
        half, most = (None if isinf(bound) or not total else bound for bound in bounds)
        return int(total), half, most

    def watch(self, sources: Sources) -> None:
        """Read these at every scrape."""
        self._registry.register(_Snapshots(sources))

    def render(self) -> bytes:
        """The exposition text."""
        return generate_latest(self._registry)


def _log_records(signals: TakenSignals) -> Iterable[Metric]:
    yield _counter("svc_ingest_log_spans", "Log records made into spans.", signals.log_spans)
    records = CounterMetricFamily(
        "svc_ingest_dropped_log_records", "Log records of accepted requests dropped.", labels=["reason"]
    )
    for reason, count in sorted(signals.log_dropped.items()):
        records.add_metric([reason], count)
    yield records
    yield _counter("svc_ingest_dropped_data_points", "Data points dropped.", signals.data_points)
