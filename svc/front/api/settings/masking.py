"""`{p}/masking`: what a project has replaced in texts before they are stored, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from protocol.refusals import BAD_REQUEST, Refusal
from protocol.rest.masking import MaskingChange, MaskingShown, MaskPattern
from svc.domain.intake.masking import BadMask, MaskRule, check_rules
from svc.front.api.routes import PROJECT, Route
from svc.front.auth.calls import Call
from svc.store.spans.masking import MaskingStore


async def get_masking(call: Call[Any]) -> MaskingShown:
    """What is masked, and how often each was in the last thirty days."""
    return await _shown(call, await MaskingStore(call.means.database).rules(call.project.id))


async def put_masking(call: Call[MaskingChange]) -> MaskingShown | Refusal:
    """Replace what is masked from now on; decoders know within seconds."""
    rules = [MaskRule(name) for name in dict.fromkeys(call.body.classes)]
    rules += [MaskRule(pattern.name, pattern.pattern) for pattern in call.body.patterns]
    try:
        check_rules(rules)
    except BadMask as fault:
        return BAD_REQUEST.saying(str(fault))
    store = MaskingStore(call.means.database)
    await store.replace(call.project.id, rules, actor=call.caller.label, slug=call.project.slug)
    return await _shown(call, rules)


async def _shown(call: Call[Any], rules: Sequence[MaskRule]) -> MaskingShown:
    counts = await MaskingStore(call.means.database).counts(call.project.id, call.means.now())
    return MaskingShown(
        [rule.name for rule in rules if rule.pattern is None],  # type: ignore[misc]
        [MaskPattern(rule.name, rule.pattern) for rule in rules if rule.pattern is not None],
        dict(counts),
    )


_PATH: Final = PROJECT + "/masking"

ROUTES: Final = (
    Route("GET", _PATH, "ORG_VIEW", get_masking, MaskingShown),
    Route("PUT", _PATH, "ORG_ADMIN", put_masking, MaskingShown, body=MaskingChange),
)
