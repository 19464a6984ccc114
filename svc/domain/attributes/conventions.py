"""The fields that spans have by convention, and the keys under which clients say them.

Owns: `CONVENTIONS`, one row a field, and `METADATA`, the prefixes under which clients put what is the user's
own. A new spelling is one word here. Sources: the semantic conventions of OpenTelemetry, the documents of
each dialect, and what clients sent to us in November 2026.
"""

from __future__ import annotations

from typing import Final

import attrs

#: Before the name of a key that is no convention, where it is a field.
PREFIX: Final = "attr."
#: As the name of a filter: a text anywhere in what a span said. An attribute of this name has its prefix.
PAYLOAD: Final = "payload"
#: Fields that a project may have beside the conventions, and values of each.
MOST_KEYS: Final = 64
MOST_VALUES: Final = 10_000
#: The longest value of a field; what is longer is cut, as every name is.
KEY_CHARS: Final = 100


@attrs.frozen
class Convention:
    """A field: what it is, and the keys that say it, first the one whose word counts."""

    name: str
    meaning: str
    keys: tuple[str, ...]
    #: Whether a span may have several values of it.
    many: bool = False


#: Where clients put what the user adds: the rest of the key is the name.
METADATA: Final = (
    "metadata.",
    "langfuse.trace.metadata.",
    "langfuse.observation.metadata.",
    "langsmith.metadata.",
    "traceloop.association.properties.",
    "ai.telemetry.metadata.",
)


def _own(*names: str) -> tuple[str, ...]:
    """The names as a client's own attribute and within each kind of metadata."""
    return (*names, *(prefix + name for prefix in METADATA for name in names))


CONVENTIONS: Final = (
    Convention("service", "the service that sent it", ("service.name",)),
    Convention(
        "environment",
        "where it ran: production, staging, …",
        (
            "langfuse.environment",
            "deployment.environment.name",
            "deployment.environment",
            *_own("environment", "env"),
        ),
    ),
    Convention(
        "release",
        "the version of the application",
        (
            "langfuse.release",
            "langfuse.version",
            "service.version",
            *_own("release", "app_version", "app.version"),
        ),
    ),
    Convention(
        "tenant",
        "the customer or organization it was for",
        (
            "tenant.id",
            "tenant.name",
            "customer.id",
            "customer.name",
            "organization.id",
            *_own("tenant", "tenant_id", "tenantId", "customer", "customer_id", "customerId"),
            *_own("organization_id", "organizationId", "org_id"),
        ),
    ),
    Convention(
        "tag",
        "tags that the application gave it",
        (
            "langfuse.trace.tags",
            "langsmith.span.tags",
            "tag.tags",
            "mlflow.trace.tags",
            *_own("tags"),
        ),
        many=True,
    ),
    Convention(
        "prompt_name",
        "the managed prompt that was used",
        (
            "langfuse.observation.prompt.name",
            "gen_ai.prompt.name",
            "traceloop.prompt.key",
            "prompt.id",
            "prompt.name",
        ),
    ),
    Convention(
        "prompt_version",
        "the version of that prompt",
        (
            "langfuse.observation.prompt.version",
            "gen_ai.prompt.version",
            "traceloop.prompt.version",
            "llm.prompt_template.version",
            "prompt.version",
        ),
    ),
    Convention("agent", "the agent that did it", ("gen_ai.agent.name", "agent.name", "agent_name")),
    Convention("agent_path", "the agent above a call, and the step of it that made the call", ()),
    Convention("tool", "the tool that the span called", ()),
    Convention("host", "the machine it ran on", ("host.name",)),
    Convention("region", "the region it ran in", ("cloud.region", "aws.region")),
    Convention("operation", "what the span does, in the words of its library", ("gen_ai.operation.name",)),
    Convention(
        "finish_reason",
        "why the model stopped",
        (
            "gen_ai.response.finish_reasons",
            "llm.finish_reason",
            "ai.response.finishReason",
            "gen_ai.completion.0.finish_reason",
        ),
        many=True,
    ),
)

#: The conventions by name.
CONVENTION_FIELDS: Final = {convention.name: convention for convention in CONVENTIONS}


def may_need_payloads(name: str) -> bool:
    """Whether only payloads may tell of a filter of this name: an attribute that is no field, or a text."""
    return name == PAYLOAD or name.startswith(PREFIX)


def canonical(key: str) -> str:
    """The name of a key that is no convention: metadata of any client has one name."""
    for prefix in METADATA:
        if key.startswith(prefix):
            return METADATA[0] + key[len(prefix) :]
    return key


def spellings(name: str) -> tuple[str, ...]:
    """The keys that a canonical name stands for."""
    if name.startswith(METADATA[0]):
        return tuple(prefix + name[len(METADATA[0]) :] for prefix in METADATA)
    return (name,)
