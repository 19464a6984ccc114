"""A form that is too large, or does not come, is refused in words and is no error of ours."""

from __future__ import annotations

import re
from typing import Final

import pytest
from quart_trio.wrappers.request import TrioRequest
from werkzeug.exceptions import RequestTimeout

from svc.front.api.routes import MAX_BODY_BYTES
from svc.web.table import PAGES
from tests.front.people import Replica
from tests.web.test_pages import heading
from tests.web.visitor import Visitor

FORMS: Final = [page.path for page in PAGES if page.form is not None]
TOO_LARGE: Final = {"name": "x" * MAX_BODY_BYTES}


def filled(path: str) -> str:
    return re.sub(r"{\w+}", "any", path.replace("{orgSlug}/", "default/").replace("{projectSlug}", "default"))


async def test_a_form_that_is_too_large_is_refused_by_every_page(owner: Visitor) -> None:
    assert len(FORMS) > 40
    for path in map(filled, FORMS):
        page = await owner.post(path, TOO_LARGE)
        assert (page.status, heading(page)) == (413, "That is more than a form takes"), path


async def test_nobody_need_be_signed_in_to_hear_it(here: Replica) -> None:
    for path in ("/login", "/signup"):
        assert (await Visitor.of(here).post(path, TOO_LARGE)).status == 413


async def test_a_form_that_does_not_come_in_time_is_refused_too(
    owner: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object, **__: object) -> bytes:
        raise RequestTimeout

    monkeypatch.setattr(TrioRequest, "get_data", never)
    page = await owner.post("/account/look", {"theme": "dark"})
    assert (page.status, heading(page)) == (408, "The form took too long to arrive")
