"""Bodies and answers of what an organization and its projects can set: retention, taxonomy, integrations.

Shapes and plain checks only. Instants are texts in our form (`protocol.rest.query.timestamp`).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from protocol.rest.accounts import NAME_MAX, Instant

DAYS_MAX = 36_500

Days = Annotated[int, Meta(ge=0, le=DAYS_MAX, description="Whole days; 0 is for ever.")]

IntegrationKind = Literal["model_provider", "git"]
ModelProviderName = Literal["anthropic", "openai", "google", "openai_compatible", "aws_bedrock"]
GitProviderName = Literal["github", "gitlab"]
SecretState = Literal["none", "sealed", "lost"]


class RetentionChange(msgspec.Struct, forbid_unknown_fields=True):
    """A project's terms, both at once. A null or absent one is the install's default again."""

    traces: Days | None = None
    detections: Days | None = None


class RetentionTerms(msgspec.Struct):
    """Terms in days; 0 is for ever."""

    traces: Days
    detections: Days


class RetentionShown(msgspec.Struct):
    """What a project sets (null: nothing), the install's defaults, and what is in effect."""

    traces: Days | None
    detections: Days | None
    defaults: RetentionTerms
    effective: RetentionTerms


#: Rules of one project, and how long their values may be.
RULES_MAX = 20
VALUE_MAX = 500


class RetentionRuleBody(msgspec.Struct, forbid_unknown_fields=True):
    """Traces with a span that has this value of an attribute field are kept for so many days only."""

    field: Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
    value: Annotated[str, Meta(min_length=1, max_length=VALUE_MAX)]
    days: Annotated[int, Meta(ge=1, le=DAYS_MAX)]


class RetentionRules(msgspec.Struct, forbid_unknown_fields=True):
    """All rules of a project at once, each of another field and value."""

    rules: Annotated[list[RetentionRuleBody], Meta(max_length=RULES_MAX)]


class TaxonomyCounts(msgspec.Struct):
    """How many entries of each kind the taxonomy has now."""

    packs: int
    chains: int
    call_sites: int
    failure_modes: int


class IntegrationChange(msgspec.Struct, forbid_unknown_fields=True):
    """An integration as a whole. An absent secret keeps the stored one. Secrets: never log one."""

    kind: IntegrationKind
    provider: ModelProviderName | GitProviderName
    name: Annotated[str, Meta(max_length=NAME_MAX)]
    base_url: Annotated[str, Meta(max_length=500)] | None = None
    username: Annotated[str, Meta(max_length=200)] | None = None
    region: Annotated[str, Meta(max_length=64, pattern="^[a-z0-9-]+$")] | None = None
    secret: Annotated[str, Meta(min_length=1, max_length=8_000)] | None = None

    def __repr__(self) -> str:
        return f"IntegrationChange({self.kind}, {self.provider}, …)"


class IntegrationShown(msgspec.Struct):
    """An integration without its secret. `lost`: the key that sealed it is not here."""

    id: str
    kind: IntegrationKind
    provider: str
    name: str
    base_url: str | None
    username: str | None
    secret: SecretState
    created_at: Instant
    updated_at: Instant
    #: Where a cloud's model service is asked.
    region: str | None = None


class Reached(msgspec.Struct):
    """Whether the other side answered and took the credentials, and what it said, without its body."""

    reachable: bool
    accepted: bool
    status: int | None
    message: str
    took_ms: int
