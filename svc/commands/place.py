"""Which project a command is about: its two arguments, and looking it up."""

from __future__ import annotations

import argparse

from protocol.operator import OperatorError
from svc.store.accounts.projects import DEFAULT_ORG, DEFAULT_PROJECT, Project, ProjectStore
from svc.wiring.open_store import Store


def name_project(parser: argparse.ArgumentParser) -> None:
    """Add `--org` and `--project`."""
    parser.add_argument("--org", default=DEFAULT_ORG, help="organization (default: %(default)s)")
    parser.add_argument("--project", default=DEFAULT_PROJECT, help="project (default: %(default)s)")


async def named_project(store: Store, arguments: argparse.Namespace) -> Project:
    """The project; the default one is made when it is missing. Raises `OperatorError` when there is none."""
    projects = ProjectStore(store.database)
    if (arguments.org, arguments.project) == (DEFAULT_ORG, DEFAULT_PROJECT):
        return await projects.make_default()
    project = await projects.find(arguments.org, arguments.project)
    if project is None:
        raise OperatorError(f"there is no project {arguments.org}/{arguments.project}")
    return project
