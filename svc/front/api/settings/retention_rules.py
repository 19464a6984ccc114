"""`{p}/retention/rules`: what a project keeps for fewer days because of an attribute."""

from __future__ import annotations

from typing import Final

import attrs

from protocol.refusals import BAD_REQUEST, Refusal
from protocol.rest.settings import RetentionRuleBody, RetentionRules
from svc.domain.attributes.conventions import CONVENTION_FIELDS, PREFIX
from svc.domain.queries.datasets import Field
from svc.domain.retention.terms import RetentionRule
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.postgres.database import Connection
from svc.store.reads.questions.attributes import require_fields
from svc.store.retention.rules import read_rules, write_rules


async def get_rules(call: Call[None]) -> RetentionRules:
    """The rules, by field and value."""
    rules = await call.means.database.run(
        lambda connection: read_rules(connection, call.project.id), readonly=True
    )
    return _shown(rules)


async def put_rules(call: Call[RetentionRules]) -> RetentionRules | Refusal:
    """Replace all rules of the project."""
    rules = [RetentionRule(rule.field, rule.value, rule.days) for rule in call.body.rules]
    if len({(rule.field, rule.value) for rule in rules}) < len(rules):
        return BAD_REQUEST.saying("a value of a field has one rule")
    for rule in rules:
        if rule.field not in CONVENTION_FIELDS and not rule.field.startswith(PREFIX):
            return BAD_REQUEST.saying(f"'{rule.field}' is no attribute", allowed=list(CONVENTION_FIELDS))
    # An attribute of one's own has to be a field.
    fields = [Field(rule.field, facetable=True, type="attribute") for rule in rules]
    await require_fields(call.means.database, call.project.id, fields)

    async def work(connection: Connection) -> None:
        await write_rules(connection, call.project.id, rules)
        await call.note(connection, "retention.rules", {"rules": [attrs.asdict(rule) for rule in rules]})

    await call.means.database.run(work)
    return _shown(rules)


def _shown(rules: list[RetentionRule]) -> RetentionRules:
    ordered = sorted(rules, key=lambda rule: (rule.field, rule.value))
    return RetentionRules([RetentionRuleBody(rule.field, rule.value, rule.days) for rule in ordered])


ROUTES: Final = (
    Route("GET", PROJECT + "/retention/rules", "ORG_VIEW", get_rules, RetentionRules),
    Route("PUT", PROJECT + "/retention/rules", "ORG_ADMIN", put_rules, RetentionRules, body=RetentionRules),
)
