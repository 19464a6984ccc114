"""What a command is about: its project and its filters, as they are typed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from protocol.operator import OperatorError
from protocol.refusals import Refused
from protocol.rest.query import FilterValue
from svc.application.open_store import Store
from svc.store.accounts.projects import DEFAULT_ORG, DEFAULT_PROJECT, Project, ProjectStore


def name_project(parser: argparse.ArgumentParser) -> None:
    """Add `--org` and `--project`."""
    parser.add_argument("--org", default=DEFAULT_ORG, help="organization (default: %(default)s)")
    parser.add_argument("--project", default=DEFAULT_PROJECT, help="project (default: %(default)s)")


async def default_project(store: Store) -> Project:
    """The default project, made when there never was one. Raises `OperatorError` when it was deleted."""
    project = await ProjectStore(store.database).make_default()
    if project is None:
        raise OperatorError(
            f"the project {DEFAULT_ORG}/{DEFAULT_PROJECT} was deleted; choose another one with --project"
        )
    return project


async def named_project(store: Store, arguments: argparse.Namespace) -> Project:
    """The project; the default one is made when it is missing. Raises `OperatorError` when there is none."""
    if (arguments.org, arguments.project) == (DEFAULT_ORG, DEFAULT_PROJECT):
        return await default_project(store)
    project = await ProjectStore(store.database).find(arguments.org, arguments.project)
    if project is None:
        raise OperatorError(f"there is no project {arguments.org}/{arguments.project}")
    return project


def read_filters(where: Sequence[str]) -> dict[str, FilterValue]:
    """The filters; `FIELD=` asks for rows without a value. Raises `OperatorError` for what is none."""
    filters: dict[str, FilterValue] = {}
    for text in where:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise OperatorError(f"'{text[:100]}' is not FIELD=VALUE, such as status=error")
        filters[name.strip()] = value or None
    return filters


def refusal_sentence(refused: Refused) -> str:
    """What was wrong, and what is allowed."""
    allowed = (refused.refusal.details or {}).get("allowed")
    return refused.refusal.message + (f"; one of: {', '.join(allowed)}" if allowed else "")
