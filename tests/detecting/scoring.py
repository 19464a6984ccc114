"""How well what was found fits what was planted: recall, precision, onsets, delays, cases an outage.

Owns `read`, which takes findings, cases and subjects out of a database, and `Score`, which holds them against
the applications of `labelled`. The bench prints it, a law asks for its bars.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from svc.domain.detect.engine import from_birth
from svc.domain.traces.agent_path import BETWEEN
from svc.store.postgres.database import Connection, Database
from tests.detecting.labelled import DAY, HOUR, MONDAY, App, Planted

#: Days until a reference is there: before, nobody can cry wolf.
LEARNING_DAYS: Final = 7
MONTH_DAYS: Final = 30.0
#: What begins so much before or after a fault is not of it.
NEAR: Final = DAY


@attrs.frozen(eq=False)
class Found:
    """A finding with the case that lists it."""

    detector: str
    key: str
    subject: str
    status: str
    harmful: bool
    onset: timedelta
    seen: timedelta
    recovered: timedelta | None
    why: str | None
    case: int | None
    role: str | None
    share: float | None

    @property
    def app(self) -> str:
        """The application it is about."""
        return self.subject.rpartition(" ")[2].partition("-")[0]


@attrs.frozen(eq=False)
class Outcome:
    """All that was found, the subjects that were judged, and how often a case was reopened."""

    found: Sequence[Found]
    subjects: int
    reopened: int
    spans: int


async def read(database: Database) -> Outcome:
    """What stands in the database of a replayed traffic."""

    async def work(connection: Connection) -> Outcome:
        rows = await connection.fetch(
            "select f.detector, f.cause_key, f.subject_id, f.status, f.harmful, f.onset_at, f.first_seen_at,"
            " f.recovered_at, f.triage_summary, c.number, l.role, l.explained_share from finding f"
            " left join case_finding l on l.project_id = f.project_id and l.finding_id = f.id"
            " left join detection_case c on c.project_id = l.project_id and c.id = l.case_id"
            " order by f.first_seen_at, f.cause_key"
        )
        subjects = await connection.fetchval("select count(*) from bucket_state")
        reopened = await connection.fetchval("select count(*) from case_event where kind = 'reopened'")
        spans = await connection.fetchval("select coalesce(sum(spans), 0) from trace_fold")
        return Outcome([_found(row) for row in rows], subjects, reopened, spans)

    return await database.run(work)


def _found(row: Any) -> Found:
    return Found(
        row["detector"], row["cause_key"], row["subject_id"].partition(BETWEEN)[0],
        row["status"], row["harmful"],
        _since(row["onset_at"]), _since(row["first_seen_at"]),
        None if row["recovered_at"] is None else _since(row["recovered_at"]),
        row["triage_summary"], row["number"], row["role"], row["explained_share"],
    )  # fmt: skip


def _since(at: datetime) -> timedelta:
    return at - MONDAY


@attrs.frozen(eq=False)
class Score:
    """What was found of what was planted in these applications within so many days."""

    outcome: Outcome
    apps: Sequence[App]
    days: int

    @property
    def planted(self) -> list[tuple[App, Planted]]:
        """Every fault with its application."""
        return [(app, one) for app in self.apps for one in app.planted]

    def of(self, app: App, planted: Planted) -> list[Found]:
        """The harmful findings that tell of a fault, in the order in which they were told."""
        return [f for f in self.outcome.found if f.harmful and self._tells(f, app, planted)]

    def _tells(self, found: Found, app: App, planted: Planted) -> bool:
        if found.app != app.name or not planted.begins - NEAR <= found.onset <= planted.ends + NEAR:
            return False
        others = [one for one in app.planted if one is not planted]
        if not others:
            return True
        if found.subject != app.name:
            return planted.tool is None or found.subject == app.tool(planted.tool)
        # Of several that may have done it, the one that began last before it.
        began = [one for one in app.planted if one.begins <= found.onset + HOUR] or [app.planted[0]]
        return max(began, key=lambda one: one.begins) is planted

    def leading(self, app: App, planted: Planted) -> Found | None:
        """The first cause in a case that a detector told which knows this kind of fault."""
        causes = [f for f in self.of(app, planted) if f.role == "cause" and f.detector in planted.found]
        return min(causes, key=lambda f: f.seen, default=None)

    @property
    def core(self) -> list[tuple[App, Planted]]:
        """The faults that must open a case."""
        return [(app, one) for app, one in self.planted if one.found]

    @property
    def missed(self) -> list[str]:
        """Faults that opened no case."""
        return [one.name for app, one in self.core if self.leading(app, one) is None]

    @property
    def recall(self) -> float:
        return 1 - len(self.missed) / max(len(self.core), 1)

    @property
    def from_birth(self) -> list[Found]:
        """What says of a tool that it failed too often from its start, and it did, on every usual day: a
        fact, though nothing broke. How often it is told at which rate is a table of the engine's laws.
        """
        usual = {app.tool(tool): rate for app in self.apps for tool, rate in app.tools.items()}
        return [
            f
            for f in self.outcome.found
            if f.key.endswith(":birth") and usual.get(f.subject, 0.0) > from_birth.TOLERATED
        ]

    @property
    def false_alarms(self) -> list[Found]:
        """Harmful findings that no fault explains and that are no fact of the first days."""
        told = {id(f) for app, one in self.planted for f in self.of(app, one)}
        told |= {id(f) for f in self.from_birth}
        return [f for f in self.outcome.found if f.harmful and id(f) not in told]

    @property
    def false_cases(self) -> set[int]:
        """Cases in which nothing is of a fault that is to open one, nor such a fact."""
        told = {f.case for app, one in self.core for f in self.of(app, one)}
        told |= {f.case for f in self.from_birth}
        return {f.case for f in self.outcome.found if f.case is not None} - {n for n in told if n is not None}

    @property
    def precision(self) -> float:
        cases = {f.case for f in self.outcome.found if f.case is not None}
        return 1 - len(self.false_cases) / max(len(cases), 1)

    @property
    def bucket_months(self) -> float:
        """How long all subjects together were watched."""
        return self.outcome.subjects * (self.days - LEARNING_DAYS) / MONTH_DAYS

    @property
    def onset_errors_h(self) -> list[float]:
        leaders = [(one, self.leading(app, one)) for app, one in self.core if one.creeping is None]
        return [abs(f.onset - one.begins) / HOUR for one, f in leaders if f is not None]

    @property
    def delays_h(self) -> list[float]:
        leaders = [(one, self.leading(app, one)) for app, one in self.core]
        return [(f.seen - one.begins) / HOUR for one, f in leaders if f is not None]

    def cases(self, app: App, planted: Planted) -> set[int]:
        """The cases that tell of a fault."""
        return {f.case for f in self.of(app, planted) if f.case is not None}

    @property
    def cases_an_outage(self) -> float:
        """Of the faults that opened a case; two faults in one case count as half a case each."""
        cases = [n for app, one in self.core for n in self.cases(app, one)]
        found = len(self.core) - len(self.missed)
        return len(cases) / max(found, 1)

    @property
    def merged(self) -> int:
        """Cases that tell of more than one fault."""
        cases = [n for app, one in self.core for n in self.cases(app, one)]
        return sum(cases.count(n) > 1 for n in set(cases))

    @property
    def given_up(self) -> list[Found]:
        """Leading findings that were said to be over while their fault lasted."""
        until = timedelta(days=self.days)
        return [
            f
            for app, one in self.core
            if (f := self.leading(app, one)) is not None
            and f.recovered is not None
            and f.recovered < min(one.ends, until) - 6 * HOUR
        ]

    def lines(self) -> list[tuple[str, str]]:
        """Figures by name."""
        errors, delays = self.onset_errors_h or [0.0], self.delays_h or [0.0]
        return [
            ("recall of faults", f"{self.recall:.2f} of {len(self.core)}"),
            ("missed", ", ".join(self.missed) or "none"),
            ("precision of cases", f"{self.precision:.2f}"),
            ("onset error, median and worst", f"{statistics.median(errors):.1f} h, {max(errors):.1f} h"),
            ("delay, median and worst", f"{statistics.median(delays):.1f} h, {max(delays):.1f} h"),
            (
                "false alarms a bucket-month",
                f"{self.alarm_rate:.3f} ({len(self.false_alarms)} in {self.bucket_months:.0f})",
            ),
            ("failing from birth, and said so", str(len(self.from_birth))),
            ("cases an outage", f"{self.cases_an_outage:.2f}; {self.merged} hold two"),
            ("said to be over while it lasted", str(len(self.given_up))),
            ("reopened", str(self.outcome.reopened)),
        ]

    @property
    def alarm_rate(self) -> float:
        """False alarms a bucket-month."""
        return len(self.false_alarms) / max(self.bucket_months, 1)

    def missed_bars(self) -> list[str]:
        """What is not as it must be."""
        bars = {
            f"recall {self.recall:.3f}, not 1: {', '.join(self.missed)}": self.recall == 1,
            f"{self.alarm_rate:.3f} false alarms a bucket-month, more than 0.03": self.alarm_rate <= 0.03,
            f"median onset error {statistics.median(self.onset_errors_h or [0]):.1f} h, more than 4": (
                statistics.median(self.onset_errors_h or [0]) <= 4
            ),
            f"{self.cases_an_outage:.2f} cases an outage, {self.merged} that hold two": (
                self.cases_an_outage == 1 and not self.merged
            ),
        }
        return [said for said, held in bars.items() if not held]

    def told(self) -> list[str]:
        """Each finding in a line."""
        false = {id(f) for f in self.false_alarms}
        return [
            f"{'FALSE' if id(f) in false else '     '} C-{f.case} {f.role} {f.share} {f.key} {f.status}"
            f" onset {f.onset / DAY:.2f} seen {f.seen / DAY:.2f} over"
            f" {'-' if f.recovered is None else round(f.recovered / DAY, 2)} {f.why or ''}"
            for f in self.outcome.found
            if f.harmful or f.case is not None
        ]
