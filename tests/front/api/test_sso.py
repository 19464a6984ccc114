"""Sign-in through a real OpenID Connect provider, in a process of its own; and what must not be believed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import attrs
import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from protocol.sign_on import Attempt, SsoFailed
from svc.config.checks import boot_refusals
from svc.config.table import read_settings
from svc.front.api.accounts import sso
from svc.front.api.accounts.sso import path_here
from svc.front.auth.callers import NOBODY
from svc.front.auth.calls import Call
from svc.front.auth.client import Client
from svc.outside.http import HttpAnswer
from svc.outside.oidc import IdentityProvider
from svc.runtime.clock import now
from svc.store.postgres.database import Database
from tests.front.api.test_accounts import REFUSED, UNAUTHORIZED, WRONG, fetch
from tests.front.people import ORG, Answer, Browser, Replica, replica
from tests.service import free_port, until

CALLBACK = "/auth/sso/callback"


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    """The provider, which signs in whoever it is told of."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), "--require-nonce", "true"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://localhost:{port}"

    def answers() -> bool:
        assert process.poll() is None, "the provider ended"
        try:
            return httpx2.get(url + "/.well-known/openid-configuration").status_code == 200
        except httpx2.HTTPError:
            return False

    try:
        until(answers)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def settings(issuer: str) -> dict[str, str]:
    return {
        "SSO_ISSUER_URL": issuer,
        "SSO_CLIENT_ID": "trace-svc",
        "SSO_API_KEY": "a client secret / with % signs",
        "SSO_REDIRECT_URI": "http://localhost" + CALLBACK,
    }


@pytest.fixture
async def api(store: Database, issuer: str) -> AsyncIterator[Replica]:
    async with replica(store, **settings(issuer)) as found:
        yield found


def known(issuer: str, sub: str, **claims: Any) -> None:
    """Tell the provider of a person."""
    response = httpx2.put(f"{issuer}/users/{quote(sub)}", json=claims, timeout=60)
    assert response.status_code == 204, response.text


@attrs.define
class Away:
    """A browser that was sent to the provider."""

    url: str
    cookie: str

    def authorized(self, sub: str) -> str:
        """The path and query that the provider sends the browser back to."""
        response = httpx2.post(self.url, data={"sub": sub}, timeout=60)
        assert response.status_code in (302, 303), response.text
        back = urlsplit(response.headers["location"])
        assert f"{back.scheme}://{back.netloc}{back.path}" == "http://localhost" + CALLBACK
        return f"{back.path}?{back.query}"


async def sent_away(browser: Browser, next_: str = "/") -> Away:
    answer = await browser.get(f"/auth/sso/login?next={quote(next_)}")
    assert answer.status == 303, answer.body
    (cookie,) = answer.headers.getlist("set-cookie")
    assert cookie.endswith("; Path=/auth/sso; Max-Age=600; HttpOnly; SameSite=Lax")
    return Away(answer.headers["location"], cookie.partition(";")[0])


async def came_back(browser: Browser, away: Away, path: str) -> Answer:
    held = away.cookie if browser.cookie is None else f"svc_session={browser.cookie}; {away.cookie}"
    return await browser.get(path, Cookie=held)


async def signed_in(api: Replica, issuer: str, sub: str, **claims: Any) -> tuple[Browser, Answer]:
    browser = api.browser()
    if claims:
        known(issuer, sub, **claims)
    away = await sent_away(browser, "/traces?q=1")
    return browser, await came_back(browser, away, away.authorized(sub))


async def test_somebody_comes_back_signed_in_where_they_wanted_to_go(api: Replica, issuer: str) -> None:
    browser, answer = await signed_in(api, issuer, "ada-1", email="Ada@example.org", email_verified=True)
    assert (answer.status, answer.headers["location"]) == (303, "/traces?q=1")
    me = (await browser.get("/auth/me")).data
    assert (me["account"]["email"], me["account"]["has_password"]) == ("Ada@example.org", False)
    assert me["organizations"][0]["role"] == "owner"
    again, _ = await signed_in(api, issuer, "ada-1", email="new@example.org", email_verified=False)
    assert (await again.get("/auth/me")).data["account"] == me["account"]
    assert (await api.browser().get("/auth/mode")).data["sso"] is True
    assert (await api.browser().sign_in("ada@example.org")).refused == WRONG


async def test_the_request_carries_state_nonce_and_a_hashed_verifier(api: Replica, issuer: str) -> None:
    first, second = await sent_away(api.browser()), await sent_away(api.browser())
    asked = [parse_qs(urlsplit(away.url).query) for away in (first, second)]
    assert asked[0]["code_challenge_method"] == ["S256"]
    for name in ("state", "nonce", "code_challenge"):
        assert len(asked[0][name][0]) >= 43
        assert asked[0][name] != asked[1][name]
        assert asked[0][name][0] not in first.cookie
    assert asked[0]["redirect_uri"] == ["http://localhost" + CALLBACK]


async def test_the_sign_up_policy_holds_for_identities_too(api: Replica, issuer: str) -> None:
    owner = await api.owner()
    await owner.put(ORG + "/signup-policy", {"mode": "domain", "domains": ["example.org"]})
    _, refused = await signed_in(api, issuer, "eve", email="eve@elsewhere.org", email_verified=True)
    assert refused.refused == REFUSED
    assert not [c for c in refused.headers.getlist("set-cookie") if c.startswith("svc_session")]
    _, admitted = await signed_in(api, issuer, "bob", email="bob@example.org", email_verified=True)
    assert admitted.status == 303
    invitation = {"email": "eve@elsewhere.org", "role": "admin"}
    assert (await owner.post(ORG + "/invitations", invitation)).status == 201
    eve, _ = await signed_in(api, issuer, "eve", email="eve@elsewhere.org", email_verified=True)
    assert (await eve.get(ORG)).data["role"] == "admin"


@pytest.mark.parametrize(
    "claims", [{"email": "a@example.org"}, {"email": "a@example.org", "email_verified": False}, {"name": "A"}]
)
async def test_an_address_that_nobody_vouches_for_opens_nothing(
    api: Replica, issuer: str, claims: dict[str, Any]
) -> None:
    _, answer = await signed_in(api, issuer, f"unverified-{len(claims)}-{'email' in claims}", **claims)
    assert answer.refused[:2] == (403, "AUTH.SSO_UNVERIFIED")
    assert await fetch(api.database, "select from account") == []


async def test_an_account_that_waits_under_a_strangers_password_becomes_the_identitys(
    api: Replica, issuer: str
) -> None:
    await api.owner()
    stranger = api.browser()
    assert (await stranger.sign_up("victim@example.org")).status == 201
    victim, answer = await signed_in(api, issuer, "victim", email="victim@example.org", email_verified=True)
    assert answer.status == 303
    assert (await victim.get("/auth/me")).data["account"]["has_password"] is False
    assert (await stranger.get("/auth/me")).refused == UNAUTHORIZED
    assert (await stranger.sign_in("victim@example.org")).refused == WRONG
    other, refused = await signed_in(api, issuer, "other", email="victim@example.org", email_verified=True)
    assert refused.status == 409
    assert other.cookie is None
    (row,) = await fetch(api.database, "select actor from audit_row where action = 'account.link'")
    assert row == {"actor": "victim@example.org"}


async def test_an_identity_accepts_an_invitation_of_its_account_without_the_link(
    api: Replica, issuer: str
) -> None:
    owner = await api.owner()
    bob, _ = await signed_in(api, issuer, "bob", email="bob@example.org", email_verified=True)
    await fetch(api.database, "delete from membership where role <> 'owner'")
    invitation = {"email": "bob@example.org", "role": "admin"}
    assert (await owner.post(ORG + "/invitations", invitation)).status == 201
    again, answer = await signed_in(api, issuer, "bob", email="bob@example.org", email_verified=True)
    assert answer.headers["location"] == "/invitation"
    assert (await again.get("/auth/me")).data["invitation"]["needs_link"] is False
    taken = await bob.post("/auth/invitation/accept", {})
    assert [place["role"] for place in taken.data["organizations"]] == ["admin"]


FAILED = (400, "AUTH.SSO_FAILED", "this sign-in was not begun in this browser, or too long ago; begin again")


async def test_with_passwords_off_nobody_takes_an_address_at_its_word(store: Database, issuer: str) -> None:
    async with replica(store, **settings(issuer), SVC_AUTH_PASSWORDS="false") as api:
        stranger = api.browser()
        off = (403, "AUTH.PASSWORDS_OFF")
        assert (await stranger.sign_up("ada@example.org")).refused[:2] == off
        assert (await stranger.sign_in("ada@example.org")).refused[:2] == off
        ada, answer = await signed_in(api, issuer, "ada", email="ada@example.org", email_verified=True)
        assert answer.status == 303
        change = {"current_password": "", "new_password": "long enough"}
        assert (await ada.post("/auth/password", change)).refused[:2] == off
        assert (await stranger.get("/auth/mode")).data["auth"] == "sso"


async def test_what_comes_back_counts_only_in_the_browser_that_was_sent(api: Replica, issuer: str) -> None:
    known(issuer, "ada", email="ada@example.org", email_verified=True)
    victim, attacker = api.browser(), api.browser()
    hers, his = await sent_away(victim), await sent_away(attacker)
    path = his.authorized("ada")
    assert (await came_back(victim, hers, path)).refused == FAILED
    assert (await victim.get(path)).refused == FAILED
    # One character in it is another.
    changed = "B" if his.cookie[-8] == "A" else "A"
    forged = f"{his.cookie[:-8]}{changed}{his.cookie[-7:]}"
    assert (await came_back(victim, Away("", forged), path)).refused == FAILED
    done = await came_back(attacker, his, path)
    assert done.status == 303
    assert any(c.startswith("svc_sso=; ") for c in done.headers.getlist("set-cookie"))
    # The code has served.
    assert (await came_back(attacker, his, path)).refused[:2] == (400, "AUTH.SSO_FAILED")


async def test_a_sign_in_that_took_too_long_begins_again(
    api: Replica, issuer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = api.browser()
    away = await sent_away(browser)
    later = time.time() + 601
    evolved = attrs.evolve(api.means, now=lambda: datetime.fromtimestamp(later, UTC))
    call: Call[None] = Call(
        evolved,
        NOBODY,
        Client("192.0.2.1", "http", False),
        {"cookie": away.cookie},
        {},
        None,
        sso.CallbackQuery(parse_qs(urlsplit(away.url).query)["state"][0], "code"),
    )
    answer = await sso.callback(call)
    assert getattr(answer, "data", None) is not None
    assert answer.data.message == FAILED[2]  # type: ignore[union-attr]


async def test_a_person_who_was_not_signed_in_there_is_told_so(api: Replica) -> None:
    browser = api.browser()
    away = await sent_away(browser)
    state = parse_qs(urlsplit(away.url).query)["state"][0]
    answer = await came_back(browser, away, f"{CALLBACK}?state={state}&error=access_denied")
    assert answer.refused == (400, "AUTH.SSO_FAILED", "the identity provider did not sign you in")


async def test_a_provider_that_is_away_is_an_outage(store: Database) -> None:
    async with replica(store, **settings(f"http://localhost:{free_port()}")) as api:
        answer = await api.browser().get("/auth/sso/login")
        assert answer.refused[:2] == (503, "UNAVAILABLE")


async def test_without_a_provider_there_is_no_such_way(store: Database) -> None:
    async with replica(store) as api:
        for path in ("/auth/sso/login", CALLBACK):
            assert (await api.browser().get(path)).refused[0] == 404


@pytest.mark.parametrize(
    "wanted",
    ["//evil.example", "/\\evil.example", "https://evil.example", "\\\\evil.example", "evil", "",
     "javascript:x", "/a\r\nSet-Cookie: x=y", "/\t/evil.example", "/%0d\n", "/" + "a" * 2001, "/ä"],
)  # fmt: skip
def test_only_a_path_here_is_gone_to(wanted: str) -> None:
    assert path_here(wanted) == "/"


@pytest.mark.parametrize("wanted", ["/", "/traces", "/traces?q=a&b=%2F%2Fevil.example#x", "/a//b"])
def test_a_path_here_is_kept(wanted: str) -> None:
    assert path_here(wanted) == wanted


async def test_an_open_redirect_is_no_way_out(api: Replica, issuer: str) -> None:
    known(issuer, "ada", email="ada@example.org", email_verified=True)
    browser = api.browser()
    away = await sent_away(browser, "//evil.example/x")
    answer = await came_back(browser, away, away.authorized("ada"))
    assert (answer.status, answer.headers["location"]) == (303, "/")


async def test_people_land_on_the_public_origin(store: Database, issuer: str) -> None:
    front = {"SVC_AUTH_FRONTEND_URL": "https://traces.example.org/ui"}
    async with replica(store, **settings(issuer), **front) as api:
        _, answer = await signed_in(api, issuer, "ada", email="ada@example.org", email_verified=True)
        assert answer.headers["location"] == "https://traces.example.org/traces?q=1"


# --- ID tokens that must not be believed ------------------------------------------------------------------

KEY = RSAKey.generate_key(2048, {"kid": "k", "alg": "RS256"})
ISSUER = "https://id.example.org"


def provider(
    claims: dict[str, Any], *, key: Any = KEY, alg: str = "RS256", **metadata: Any
) -> IdentityProvider:
    """A provider of which every answer is made up here."""
    token = jwt.encode({"alg": alg, "kid": "k"}, claims, key, algorithms=[alg])

    def answer(path: str) -> dict[str, Any]:
        match path:
            case "/.well-known/openid-configuration":
                told = {
                    "issuer": ISSUER,
                    "authorization_endpoint": ISSUER + "/authorize",
                    "token_endpoint": ISSUER + "/token",
                    "jwks_uri": ISSUER + "/jwks",
                }
                return told | metadata
            case "/token":
                return {"access_token": "a", "id_token": token}
            case _:
                return {"keys": [KEY.as_dict(private=False)]}

    async def ask(_method: str, url: str, **_how: Any) -> HttpAnswer:
        return HttpAnswer(200, {}, json.dumps(answer(urlsplit(url).path)).encode())

    return IdentityProvider(ISSUER, "us", "secret", "https://t.example.org" + CALLBACK, now, ask)


ATTEMPT = Attempt("state", "nonce", "verifier")


def good(**other: Any) -> dict[str, Any]:
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "sub": "ada",
        "aud": "us",
        "exp": now + 300,
        "iat": now,
        "nonce": "nonce",
        "email": "ada@example.org",
        "email_verified": True,
    }
    return {name: value for name, value in (claims | other).items() if value is not None}


async def test_a_good_token_is_believed() -> None:
    identity = await provider(good()).identity(ATTEMPT, "code")
    assert (identity.issuer, identity.subject, identity.email, identity.verified) == (
        ISSUER,
        "ada",
        "ada@example.org",
        True,
    )
    assert (await provider(good(aud=["us", "them"], azp="us")).identity(ATTEMPT, "code")).subject == "ada"


@pytest.mark.parametrize(
    "claims",
    [
        good(iss="https://evil.example"),
        good(iss=None),
        good(aud="them"),
        good(aud=None),
        good(aud=["us", "them"]),
        good(aud=["us", "them"], azp="them"),
        good(azp="them"),
        good(exp=int(time.time()) - 3600),
        good(exp=None),
        good(iat=None),
        good(iat=int(time.time()) + 3600),
        good(nonce="another"),
        good(nonce=None),
        good(sub=None),
        good(sub=""),
        good(sub=7),
    ],
)
async def test_a_token_that_does_not_hold_is_not_believed(claims: dict[str, Any]) -> None:
    with pytest.raises(SsoFailed):
        await provider(claims).identity(ATTEMPT, "code")


async def test_a_token_signed_by_somebody_else_is_not_believed() -> None:
    with pytest.raises(SsoFailed, match="not signed"):
        await provider(good(), key=RSAKey.generate_key(2048, {"kid": "k"})).identity(ATTEMPT, "code")
    shared = OctKey.import_key(b"secret" * 8, {"kid": "k"})
    with pytest.raises(SsoFailed, match="not signed"):
        await provider(good(), key=shared, alg="HS256").identity(ATTEMPT, "code")


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://id.example.org/token"},
        {"jwks_uri": None},
    ],
)
async def test_a_provider_that_is_not_what_was_named_is_not_asked(metadata: dict[str, Any]) -> None:
    with pytest.raises(SsoFailed):
        await provider(good(), **metadata).authorization_url(ATTEMPT)


# --- boot -------------------------------------------------------------------------------------------------


def test_half_a_provider_refuses_to_boot() -> None:
    (refusal,) = boot_refusals(read_settings({"SSO_CLIENT_ID": "x"}))
    assert refusal.startswith("SSO_ISSUER_URL and SSO_API_KEY must be set too")
    whole = settings("https://id.example.org")
    assert boot_refusals(read_settings(whole)) == []
    alone = boot_refusals(read_settings({"SVC_AUTH_PASSWORDS": "false"}))
    assert [text[:27] for text in alone] == ["SVC_AUTH_PASSWORDS is false"]
    astray = read_settings(whole | {"SSO_REDIRECT_URI": "https://t.example.org/elsewhere"})
    assert any("SSO_REDIRECT_URI" in refusal for refusal in boot_refusals(astray))
