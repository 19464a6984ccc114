"""What people set of detectors: whether one runs in a project, what is shown of it, and how it is tuned.

Owns the table `detector_setting`. The fronts set, whoever judges reads before each look. Each change is
audited in its transaction. What is read is always whole: every detector of the table is there, and each of
its tunables within its bounds, whatever an older release has stored. Never decides whether a detector can run
at all: that is the install's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from protocol.detection import DetectorMode, SiteGrain
from svc.domain.detect.detectors.base import Detector
from svc.domain.detect.detectors.table import DETECTORS
from svc.store.accounts.audit import record
from svc.store.postgres.database import READ_TIMEOUT_S, Connection, Database

#: The mode of a detector without a setting.
DEFAULT_MODE: Final[DetectorMode] = "discovery"


@attrs.frozen
class DetectorSetting:
    """One detector in one project; `tuning` holds every tunable that it has, by name."""

    tuning: Mapping[str, float]
    enabled: bool = True
    mode: DetectorMode = DEFAULT_MODE


def tuned(detector: Detector, tuning: Mapping[str, float]) -> dict[str, float]:
    """Every tunable of a detector within its bounds: as it is given, else its default."""
    return {
        name: tunable.clamped(float(tuning.get(name, tunable.default)))
        for name, tunable in detector.tuning.items()
    }


@attrs.define(eq=False)
class DetectorSettingStore:
    """All verbs raise `Outage`. The verbs that set raise `KeyError` for a detector that there is not."""

    database: Database

    async def of(self, project_id: int) -> Mapping[str, DetectorSetting]:
        """The settings of every detector of the table, by its name."""
        # A row for each that somebody has set, by the key.
        rows = await self.database.fetch(
            "select detector, enabled, mode, tuning::text as tuning from detector_setting"
            " where project_id = $1",
            project_id,
            timeout_s=READ_TIMEOUT_S,
        )
        rows_by_detector = {row["detector"]: row for row in rows}
        return {
            name: DetectorSetting(tuned(detector, {}))
            if (row := rows_by_detector.get(name)) is None
            else _setting(detector, row)
            for name, detector in DETECTORS.items()
        }

    async def set_enabled(self, project_id: int, detector: str, enabled: bool, actor: str) -> DetectorSetting:
        """Let a detector run in a project, or keep it from running."""
        return await self._set(project_id, detector, "enabled", enabled, {"enabled": enabled}, actor)

    async def set_mode(
        self, project_id: int, detector: str, mode: DetectorMode, actor: str
    ) -> DetectorSetting:
        """Say which firings of a detector are shown: all of them, or those that are sure."""
        return await self._set(project_id, detector, "mode", mode, {"mode": mode}, actor)

    async def set_tuning(
        self, project_id: int, detector: str, tuning: Mapping[str, float], actor: str
    ) -> DetectorSetting:
        """Replace the tuning of a detector, clamped; what is not named has its default again."""
        row = DETECTORS[detector]
        overrides = {name: value for name, value in tuned(row, tuning).items() if name in tuning}
        body = msgspec.json.encode(overrides).decode()
        return await self._set(project_id, detector, "tuning", body, {"tuning": overrides}, actor)

    async def site_grain(self, project_id: int) -> SiteGrain:
        """What the detectors of a project take for a call site."""
        rows = await self.database.fetch("select site_grain from project where id = $1", project_id)
        grain: SiteGrain = rows[0]["site_grain"] if rows else "sent"
        return grain

    async def part_by_agent(self, project_id: int, parted: bool, actor: str) -> SiteGrain:
        """Tell agents that share a call site apart, or no more. What was learned of a whole call site goes on
        being compared with until each agent there has a baseline of its own.
        """

        async def work(connection: Connection) -> SiteGrain:
            # One that tells agents apart already goes on as it does.
            changed: SiteGrain | None = await connection.fetchval(
                "update project set site_grain = case when $2 then 'both' else 'sent' end"
                " where id = $1 and (site_grain = 'sent') = $2 returning site_grain",
                project_id,
                parted,
            )
            if changed is None:
                return await connection.fetchval(  # type: ignore[no-any-return] # by the table's check
                    "select site_grain from project where id = $1", project_id
                )
            await record(
                connection,
                "detector.call_sites",
                actor=actor,
                project_id=project_id,
                subject=("project", str(project_id)),
                details={"by_agent": parted},
            )
            return changed

        return await self.database.run(work)

    async def _set(
        self, project_id: int, detector: str, column: str, value: Any, details: Mapping[str, Any], actor: str
    ) -> DetectorSetting:
        row = DETECTORS[detector]
        cast = "$3::text::jsonb" if column == "tuning" else "$3"

        async def work(connection: Connection) -> DetectorSetting:
            # One column of the row, whose name is one of three above.
            setting_row = await connection.fetchrow(
                f"insert into detector_setting (project_id, detector, {column}) values ($1, $2, {cast})"
                f" on conflict (project_id, detector) do update set {column} = excluded.{column}"
                " returning enabled, mode, tuning::text as tuning",
                project_id,
                detector,
                value,
            )
            await record(
                connection,
                "detector.update",
                actor=actor,
                project_id=project_id,
                subject=("detector", detector),
                details=details,
            )
            return _setting(row, setting_row)

        return await self.database.run(work)


def _setting(detector: Detector, row: Any) -> DetectorSetting:
    return DetectorSetting(tuned(detector, msgspec.json.decode(row["tuning"])), row["enabled"], row["mode"])
