"""The border of a service under a path of its host: heads are translated, whichever way they go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc.front.server.sub_path import SubPath

BORDER = SubPath("/apps/traces")
SEGMENTS = st.lists(st.text("abz09._~%-", min_size=1, max_size=8), max_size=4)


def arrived(path: str, raw_path: bytes | None = None, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    raw = path.encode() if raw_path is None else raw_path
    return BORDER.inward({"type": "http", "path": path, "raw_path": raw, "headers": list(headers)})


async def answered(*headers: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    messages: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    await BORDER.outward(send)({"type": "http.response.start", "status": 200, "headers": list(headers)})
    await BORDER.outward(send)({"type": "http.response.body", "body": b"</x>", "more_body": False})
    assert messages[1]["body"] == b"</x>"
    (start, _) = messages
    translated: list[tuple[bytes, bytes]] = start["headers"]
    return translated


@given(SEGMENTS)
def test_a_path_arrives_the_same_whether_a_terminator_strips_it_or_not(segments: list[str]) -> None:
    inner = "/" + "/".join(segments)
    for path in (inner, "/apps/traces" + inner):
        scope = arrived(path)
        assert (scope["path"], scope["raw_path"]) == (inner, inner.encode())


def test_the_path_alone_is_the_start_and_a_longer_name_is_another_path() -> None:
    assert arrived("/apps/traces")["path"] == "/"
    assert arrived("/apps/traces")["raw_path"] == b"/"
    assert arrived("/apps/traces-of-others")["path"] == "/apps/traces-of-others"


def test_a_path_that_was_quoted_more_than_it_had_to_be_is_found() -> None:
    scope = arrived("/apps/traces/a b", b"/apps/%74races/a%20b")
    assert (scope["path"], scope["raw_path"]) == ("/a b", b"/a%20b")


async def test_redirects_stay_below_the_path_and_those_to_elsewhere_are_left() -> None:
    for location in (b"https://login.example.org/authorize", b"//other.example.org/x"):
        assert await answered((b"location", location)) == [(b"location", location)]
    assert await answered((b"Location", b"/login?next=/orgs/a")) == [
        (b"Location", b"/apps/traces/login?next=/orgs/a")
    ]


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        (b"svc_theme=dark; Path=/; Max-Age=1", b"svc_theme=dark; Path=/apps/traces; Max-Age=1"),
        (b"svc_sso=x; Path=/auth/sso; HttpOnly", b"svc_sso=x; Path=/apps/traces/auth/sso; HttpOnly"),
        (b"__Host-svc_session=x; Path=/; Secure", b"__Secure-svc_session=x; Path=/apps/traces; Secure"),
    ],
)
async def test_cookies_are_for_this_path_and_come_back_under_their_names(
    inside: bytes, outside: bytes
) -> None:
    assert await answered((b"set-cookie", inside)) == [(b"set-cookie", outside)]
    pair = outside.split(b";")[0]
    back = arrived("/", None, (b"cookie", b"other=1; " + pair))["headers"]
    assert back == [(b"cookie", b"other=1; " + inside.split(b";")[0])]


def test_a_cookie_that_promises_every_path_is_none_of_ours() -> None:
    scope = arrived("/", None, (b"cookie", b"__Host-svc_session=planted; svc_zone=UTC"), (b"host", b"x"))
    assert scope["headers"] == [(b"cookie", b"svc_zone=UTC"), (b"host", b"x")]
