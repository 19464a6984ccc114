"""Laws of the inferred call site."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.domain.spans.call_site import infer_call_site
from tests.domain import mapped


def site(name: str, attributes: dict[str, object] | None = None, service: str | None = "shop") -> str:
    resource = {} if service is None else {"service.name": service}
    row = mapped(attributes, name=name, resource=resource)
    assert not row.tagged
    return row.call_site_id


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        ("ChatCompletion", {}, "shop/ChatCompletion"),
        ("chat gpt-4o", {"gen_ai.request.model": "gpt-4o"}, "shop/chat"),
        ("chat gpt-4o", {"gen_ai.request.model": "GPT-4o", "gen_ai.response.model": "gpt-5"}, "shop/chat"),
        ("invoke_agent Weather", {"gen_ai.agent.name": "Weather"}, "shop/Weather/invoke_agent Weather"),
        ("step 12", {}, "shop/step"),
        ("job 3fa85f64-5717-4562-b3fc-2c963f66afa6 run", {}, "shop/job run"),
        ("load deadbeef01", {}, "shop/load"),
        ("facade", {}, "shop/facade"),
        ("GET /users/42", {}, "shop/GET users"),
        ("12345", {}, "shop/step"),
        ("", {"gen_ai.operation.name": "chat"}, "shop/llm"),
        ("run", {"code.function.name": "app.answer"}, "shop/app.answer/run"),
        ("run", {"graph.node.id": "3fa85f64-5717-4562-b3fc-2c963f66afa6"}, "shop/run"),
    ],
)  # fmt: skip
def test_a_call_site_is_service_nearest_name_and_span_without_what_changes(
    name: str, attributes: dict[str, object], expected: str
) -> None:
    assert site(name, attributes) == expected


def test_a_made_up_service_name_does_not_tell_where_it_ran() -> None:
    assert site("chat", service="unknown_service:/usr/bin/node") == "unknown_service/chat"
    assert site("chat", service=None) == site("chat", service="") == "unknown_service/chat"


def test_the_instance_of_a_service_is_no_part_of_a_call_site() -> None:
    assert site("chat", service="shop-7d9f8b6c5d-x2x4z") == site("chat", service="shop") == "shop/chat"
    assert site("chat", service="4f1c2ab93d0e") == "unknown_service/chat"
    for name in ("shop-v2", "shop-blue-green", "deadbeef", "shop-7d9f8b6c5d"):
        assert site("chat", service=name) == f"{name}/chat"


def test_a_tag_is_taken_at_its_word() -> None:
    row = mapped({"svc.call_site.id": "Checkout 7"}, resource={"service.name": "shop"})
    assert (row.call_site_id, row.tagged) == ("Checkout 7", True)
    assert not mapped({"svc.call_site.id": ""}).tagged


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300))
def test_every_span_has_a_short_call_site(name: str, service: str, agent: str) -> None:
    found = site(name, {"gen_ai.agent.name": agent}, service)
    assert 0 < len(found) <= 200
    assert "\0" not in found


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.uuids(), st.uuids())
def test_numbers_and_ids_do_not_make_new_call_sites(one: int, two: int, this: object, that: object) -> None:
    assert site(f"task {one} of {this}") == site(f"task {two} of {that}")


def test_names_keep_their_spelling_and_those_that_differ_by_case_are_apart() -> None:
    sites = {
        infer_call_site(service, None, name, "GPT-4o", None, "llm")
        for service in ("Shop", "shop")
        for name in ("Chat gpt-4O", "chat gpt-4o")
    }
    assert sites == {"Shop/Chat", "Shop/chat", "shop/Chat", "shop/chat"}
    assert (
        infer_call_site("Shop", None, "Run 3F2A9C1B7D of ABCDEF", None, None, "step") == "Shop/Run of ABCDEF"
    )
