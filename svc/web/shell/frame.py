"""What stands around every page of a project: where one can go, what is open, how ingest is doing."""

from __future__ import annotations

from typing import Final

import attrs

from svc.store.reads.frame import FrameReads
from svc.web.shell.page import Visit
from svc.web.shell.process_view import IngestLight


@attrs.frozen
class Destination:
    """One entry of the navigation: its name, its path below the project's."""

    name: str
    path: str


PLACES: Final = (
    Destination("Triage", "triage"),
    Destination("Overview", "overview"),
    Destination("Traces", "traces"),
    Destination("Sessions", "sessions"),
    Destination("Feedback", "feedback"),
    Destination("Vitals", "vitals"),
    Destination("Explore", "explore"),
    Destination("Detectors", "detectors"),
)
SETTINGS: Final = Destination("Settings", "settings")


@attrs.frozen
class NamedProject:
    """A project that one can switch to."""

    slug: str
    name: str


@attrs.frozen
class PageFrame:
    """What the frame's template is given."""

    org_slug: str
    org_name: str
    project: NamedProject
    projects: tuple[NamedProject, ...]
    base: str
    places: tuple[Destination, ...]
    settings: Destination | None
    #: The paths below the project's that are pages.
    there: frozenset[str]
    #: The path below the project's of the place that is open.
    current: str
    open_cases: int
    light: IngestLight
    email: str | None
    #: Whether the settings of the organization are shown.
    sees_org: bool


async def frame_of(visit: Visit, page_paths: frozenset[str]) -> PageFrame:
    """The frame around a page of a project. `page_paths`: the paths below a project's that are pages."""
    overview = await FrameReads(visit.means.database).of(
        visit.org.id, visit.project.id, visit.call.project_ids
    )
    below = visit.address.partition("?")[0].removeprefix(visit.base + "/").partition("/")[0]
    return PageFrame(
        visit.org.slug,
        visit.org.name,
        NamedProject(visit.project.slug, visit.project.name),
        tuple(NamedProject(slug, name) for slug, name in overview.projects),
        visit.base,
        tuple(entry for entry in PLACES if entry.path in page_paths),
        SETTINGS if SETTINGS.path in page_paths else None,
        page_paths,
        {
            "session": "sessions",
            "user": "sessions",
            "cases": "triage",
            "first-look": "triage",
            "findings": "triage",
            "rca": "triage",
            "prices": "settings",
            "sets": "feedback",
        }.get(below, below),
        overview.open_cases,
        visit.process_view.ingest(),
        visit.email,
        visit.sees_org,
    )
