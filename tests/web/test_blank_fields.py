"""Fields that may be blank: each says which value holds then."""

from __future__ import annotations

import re

import pytest

from tests.web.visitor import BASE, Visitor


@pytest.mark.parametrize(
    ("page", "field", "hint"),
    [
        ("settings/project", "traces", "Blank: 90 days, as the deployment says. 0: for ever."),
        ("settings/project", "detections", "Blank: 90 days, as the deployment says. 0: for ever."),
        ("settings/agents", "triage_output", "Blank: "),
        ("settings/agents", "rca_context", "Blank: "),
        ("settings/agents", "run_usd", "Blank: $2.00 to review a finding, $4.00 to investigate a case."),
        ("settings/agents", "day_usd", "Blank: $20.00."),
        ("settings/agents", "repo_ref", "Blank: the repository's default branch."),
        ("settings/integrations", "base_url", "Blank: the provider's own, such as https://"),
        ("detectors/tool_error", "rise", "Blank: "),
        ("settings/notifications/channel?kind=pagerduty", "base_url", "Blank: https://events.pagerduty.com."),
    ],
)
async def test_a_field_says_what_holds_while_it_is_blank(
    owner: Visitor, page: str, field: str, hint: str
) -> None:
    text = (await owner.get(f"{BASE}/{page}")).text
    found = re.search(rf'<input [^>]*name="{field}"[^>]*aria-describedby="([a-z0-9_-]+)"', text)
    assert found is not None
    said = re.search(rf'<p id="{found[1]}"[^>]*>([^<]*)<', text)
    assert said is not None
    assert said[1].startswith(hint), said[1]


async def test_what_was_typed_for_a_term_stays_where_it_is_refused(owner: Visitor) -> None:
    refused = await owner.post(f"{BASE}/settings/project/retention", {"traces": "-3", "detections": "x"})
    assert refused.status == 400
    assert 'name="traces" type="text" value="-3"' in refused.text
    assert 'name="detections" type="text" value="x"' in refused.text
