"""Prices in a browser: edited in their rows, by keys, with and without modules, clean at every width."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from tests import wire
from tests.browser.clean import check_everywhere
from tests.browser.conftest import BASE, Opened

pytestmark = pytest.mark.release

HERE = BASE + "/prices"


def called(opened: Opened, model: str) -> None:
    """A call of a model that nobody has a price for."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": 1000,
    }
    moment_ns = time.time_ns()
    call = wire.span(attributes=attributes, trace_id=os.urandom(16), start_ns=moment_ns, end_ns=moment_ns)
    assert opened.service.send(wire.request(call).SerializeToString()).status_code == 200
    opened.service.wait_for_spans(1, provided_model_name=model)


def test_a_row_with_its_form_is_clean_at_every_width_and_theme(opened: Opened) -> None:
    with opened.page() as page:
        check_everywhere(page, opened.url(HERE + "?edit=gpt-4o&of=openai"))


@pytest.mark.parametrize("modules", [True, False])
def test_a_price_is_set_in_its_row_by_keys_alone(opened: Opened, modules: bool) -> None:
    model = f"garage-llm-{modules}"
    called(opened, model)
    with opened.page(java_script_enabled=modules, viewport={"width": 1280, "height": 900}) as page:
        page.goto(opened.url(HERE))
        follow(page, f"Set the price of {model}")
        form = page.get_by_role("form", name=f"Price of {model}")
        # The form has the focus already, a frame after it is drawn.
        focused = form.get_by_label("Input").and_(page.locator(":focus"))
        focused.wait_for()
        page.keyboard.type("much")
        for _cached in range(3):
            page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.type("10")
        page.keyboard.press("Enter")
        page.get_by_text("Type US dollars from 0").wait_for()
        assert form.get_by_label("Output").input_value() == "10"
        assert form.get_by_label("Input").input_value() == "much"
        focused.wait_for()
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.type("2.5")
        page.keyboard.press("Enter")
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=f"Edit the price of {model}"))
        row.wait_for()
        assert "$2.50" in row.inner_text()
        follow(page, f"Edit the price of {model}")
        form.get_by_role("link", name="Cancel").click()
        form.wait_for(state="detached")
        follow(page, f"Edit the price of {model}")
        form.get_by_role("button", name="Remove your price").click()
        page.get_by_role("link", name=f"Set the price of {model}").wait_for()


def follow(page: Any, name: str) -> None:
    """Open the form of a row from the keyboard."""
    page.get_by_role("link", name=name).press("Enter")
