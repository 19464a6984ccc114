"""Marks: when a call site first ran under a release, with a prompt, with definitions of tools.

Owns: what of a trace makes a mark. They are counted like anything else, so that the first slot in which a
value was counted is its date, and the shares before and after a change stand beside it. Evidence for
findings, never findings. Models and schemas are marked by `model_change` and `malformed_output`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from svc.domain.detect.observed import MeasureName, Observation, site, slot_of
from svc.domain.detect.settled_trace import SettledTrace


def observe(trace: SettledTrace) -> Iterable[Observation]:
    """One unit for each value that a call site has in the trace."""
    seen: dict[tuple[MeasureName, str, str], int] = {}
    for row in trace.spans:
        if (texts := trace.texts.get(row.span_id)) is None:
            continue
        slot = slot_of(row.started_at)
        if texts.release is not None:
            seen.setdefault(("seen_release", site(trace.call_site_id), texts.release), slot)
        if texts.prompt is not None:
            seen.setdefault(("seen_prompt", site(row.call_site_id), texts.prompt), slot)
        if texts.tools is not None:
            seen.setdefault(("seen_tools", site(row.call_site_id), texts.tools), slot)
    for (measure, subject, value), slot in seen.items():
        yield Observation(measure, subject, slot, detail=value)
