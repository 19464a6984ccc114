"""The pages of Settings in their three groups, with what each of them is for.

Owns names, order, groups and what one finds them by. Read by the tabs above each of the pages, by the list of
all of them, and by *Find and go*; it holds no page and asks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs


@attrs.frozen
class SettingsPage:
    """One page: its path below the project's, its name, what one does there."""

    path: str
    name: str
    about: str
    #: Further words that people look for it by.
    also: str = ""
    #: Only for those who see what is the organization's.
    of_org: bool = False

    @property
    def tab(self) -> str:
        """What its view calls it."""
        return self.path.rpartition("/")[2]

    def is_meant(self, words: Iterable[str]) -> bool:
        """Whether each word begins a word of what is said of it."""
        said = f"{self.name} {self.about} {self.also}".lower().replace(",", " ").replace(".", " ").split()
        return all(any(known.startswith(word) for known in said) for word in words)


@attrs.frozen
class SettingsGroup:
    """Pages that belong together."""

    name: str
    pages: tuple[SettingsPage, ...]


GROUPS: Final = (
    SettingsGroup(
        "Project",
        (
            SettingsPage(
                "settings/project",
                "General",
                "The project's name, how long traces are kept, another project, its deletion.",
                "rename retention days delete term",
            ),
            SettingsPage(
                "settings/sources",
                "Sources",
                "Which exporters send spans, how well they are understood, refused spans, quotas.",
                "instrumentation service sdk limits ingest",
            ),
            SettingsPage(
                "settings/attributes",
                "Attributes",
                "Which attributes spans can be filtered by, renaming and hiding them.",
                "metadata fields facets promote dictionary",
            ),
            SettingsPage(
                "settings/taxonomy",
                "Taxonomy",
                "The failure modes and chains that findings are sorted by.",
                "",
            ),
            SettingsPage(
                "prices",
                "Prices",
                "What models cost, models without a price, your bill beside ours.",
                "cost rates spend reconcile invoice money",
            ),
            SettingsPage(
                "settings/masking",
                "Privacy",
                "Masking texts before they are stored, erasing what belongs to a person.",
                "gdpr delete user personal data secrets pii redaction",
            ),
            SettingsPage(
                "settings/notifications",
                "Alerts",
                "Where messages go, what they are sent about, and which were sent.",
                "notifications channel rule webhook slack pagerduty mail email ntfy digest",
            ),
            SettingsPage(
                "settings/agents",
                "Agents",
                "Runs that look for causes, their model, budget and bounds.",
                "rca root cause provider llm sandbox",
            ),
        ),
    ),
    SettingsGroup(
        "People and access",
        (
            SettingsPage(
                "settings/people",
                "People",
                "Members, their roles, invitations, single sign-on, who may sign up.",
                "users team sso oidc google password accounts",
            ),
            SettingsPage(
                "settings/keys", "Keys", "Keys that programs send and ask with.", "api write query ingest"
            ),
            SettingsPage(
                "settings/mcp",
                "MCP tokens",
                "Tokens for coding agents, and assistants that are connected.",
                "oauth claude chatgpt cursor codex",
            ),
            SettingsPage("settings/audit", "Audit", "Who changed what, and when.", "log history"),
        ),
    ),
    SettingsGroup(
        "Operation",
        (
            SettingsPage(
                "settings/health",
                "Health",
                "How each part of the service is doing: database, disk, backup, actors.",
                "status doctor queue lag",
                of_org=True,
            ),
            SettingsPage(
                "settings/dead-letters",
                "Dead letters",
                "Spans that could not be stored, why, and sending them again.",
                "errors replay lost",
            ),
            SettingsPage(
                "settings/integrations",
                "Integrations",
                "Accounts at model providers that agents may use.",
                "openai anthropic bedrock gemini api key",
                of_org=True,
            ),
        ),
    ),
)


def seen_groups(*, sees_org: bool, q: str = "") -> tuple[SettingsGroup, ...]:
    """The groups with those of their pages that one may see and that `q` is about; none without a page."""
    words = q.lower().split()
    groups = (
        attrs.evolve(
            group,
            pages=tuple(
                page
                for page in group.pages
                if (sees_org or not page.of_org) and (not words or page.is_meant(words))
            ),
        )
        for group in GROUPS
    )
    return tuple(group for group in groups if group.pages)
