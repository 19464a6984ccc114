"""Laws of finding secrets: every form by a made-up token, none by a look-alike, and nothing of one told."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable
from zlib import crc32

import pytest

from svc.domain.detect.detectors.base import ObserverContext
from svc.domain.detect.detectors.table import observe
from svc.domain.detect.secrets.formats import FORMATS
from svc.domain.detect.secrets.search import (
    MAX_STOPS,
    SCANNED_BYTES,
    FoundSecret,
    find_secrets,
    masked,
    may_hold_secrets,
)
from tests.cost import least, taken_s
from tests.domain.detect.detectors.traces import agent, called, chat, settled

KEY = b"k" * 32
DICE = random.Random(20_261_122)

HEX = "0123456789abcdef"
DIGITS = string.digits
UPPER = string.ascii_uppercase + string.digits
WORD = string.ascii_letters + string.digits
URL = WORD + "-_"
B64 = WORD + "+/"
BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def some(n: int, alphabet: str = WORD) -> str:
    """So many characters, the first and last of which are letters or digits."""
    made = "".join(DICE.choices(alphabet, k=n))
    while made[0] in "-_+/." or made[-1] in "-_+/.":
        made = "".join(DICE.choices(alphabet, k=n))
    return made


def checked(prefix: str) -> str:
    body, rest, written = some(30), 0, ""
    rest = crc32(body.encode())
    for _ in range(6):
        rest, digit = divmod(rest, 62)
        written = BASE62[digit] + written
    return prefix + body + written


def jwt() -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part({'sub': some(12), 'iat': 17})}.{some(43, URL)}"


#: By form: a text around a made-up token, and the token in it.
POSITIVES: dict[str, Callable[[], tuple[str, str]]] = {
    **{
        form: (lambda make=make: (lambda token: (f"it is {token}, keep it", token))(make()))  # type: ignore[misc]
        for form, make in {
            "github-pat": lambda: checked("gh" + "p_"),
            "github-oauth": lambda: checked("gh" + "o_"),
            "github-server": lambda: checked("gh" + "s_"),
            "github-user": lambda: checked("gh" + "u_"),
            "github-refresh": lambda: "gh" + "r_" + some(36),
            "github-fine-grained": lambda: "github" + "_pat_" + some(22) + "_" + some(59),
            "gitlab": lambda: "gl" + "pat-" + some(20, URL),
            "gitlab-runner": lambda: "gl" + "rt-" + some(20, URL),
            "npm": lambda: checked("np" + "m_"),
            "pypi": lambda: "pyp" + "i-AgEIcHlwaS5vcmc" + some(90, URL),
            "aws-access-key-id": lambda: "AK" + "IA" + some(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"),
            "slack-bot": lambda: "xo" + f"xb-{some(12, DIGITS)}-{some(12, DIGITS)}-{some(24)}",
            "slack-user": lambda: "xo" + f"xp-{'-'.join(some(12, DIGITS) for _ in range(3))}-{some(32, HEX)}",
            "slack-app": lambda: "xa" + f"pp-1-A{some(10, UPPER)}-{some(13, DIGITS)}-{some(64, HEX)}",
            "slack-webhook": lambda: (
                "hooks.slack" + f".com/services/T{some(10, UPPER)}/B{some(10, UPPER)}/{some(24)}"
            ),
            "stripe": lambda: "sk" + "_live_" + some(24),
            "stripe-test": lambda: "rk" + "_test_" + some(24),
            "stripe-webhook": lambda: "wh" + "sec_" + some(32, B64),
            "openai": lambda: "sk" + f"-proj-{some(74, URL)}T3Blbk" + f"FJ{some(74, URL)}",
            "openai-old": lambda: "sk" + f"-{some(20)}T3Blbk" + f"FJ{some(20)}",
            "anthropic": lambda: "sk" + f"-ant-api03-{some(93, URL)}AA",
            "google-api-key": lambda: "AI" + "za" + some(35, URL),
            "google-oauth-secret": lambda: "GOC" + "SPX-" + some(28, URL),
            "google-access-token": lambda: "ya" + "29." + some(50, URL),
            "huggingface": lambda: "h" + "f_" + some(34, string.ascii_letters),
            "groq": lambda: "gs" + "k_" + some(52),
            "xai": lambda: "xa" + "i-" + some(80),
            "perplexity": lambda: "ppl" + "x-" + some(48),
            "replicate": lambda: "r" + "8_" + some(37),
            "langsmith": lambda: "lsv2" + f"_pt_{some(32, HEX)}_{some(10, HEX)}",
            "langfuse": lambda: "sk-l" + f"f-{'-'.join(some(n, HEX) for n in (8, 4, 4, 4, 12))}",
            "sendgrid": lambda: "S" + f"G.{some(22, URL)}.{some(43, URL)}",
            "telegram-bot": lambda: f"{some(9, DIGITS)}:A" + f"A{some(33, URL)}",
            "digitalocean": lambda: "do" + f"p_v1_{some(64, HEX)}",
            "shopify": lambda: "shp" + f"at_{some(32, HEX)}",
            "databricks": lambda: "da" + f"pi{some(32, HEX)}-2",
            "terraform-cloud": lambda: f"{some(14)}.atlas" + f"v1.{some(67, URL)}",
            "vault": lambda: "hv" + f"s.{some(95, URL)}",
            "linear": lambda: "lin_" + f"api_{some(40)}",
            "notion": lambda: "nt" + f"n_{some(11, DIGITS)}{some(35)}",
            "grafana": lambda: "gl" + f"sa_{some(32)}_{some(8, HEX)}",
            "grafana-cloud": lambda: "gl" + f"c_{some(32, B64)}",
            "newrelic": lambda: "NR" + f"AK-{some(27, UPPER)}",
            "postman": lambda: "PM" + f"AK-{some(24, HEX)}-{some(34, HEX)}",
            "docker-hub": lambda: "dckr" + f"_pat_{some(27, URL)}",
            "doppler": lambda: "dp." + f"pt.{some(43)}",
            "sentry-org": lambda: "sntry" + f"s_eyJ{some(120, B64)}",
            "sentry-user": lambda: "sntry" + f"u_{some(64, HEX)}",
            "figma": lambda: "fi" + f"gd_{some(43, URL)}",
            "airtable": lambda: "pa" + f"t{some(14)}.{some(64, HEX)}",
            "supabase": lambda: "sb" + f"p_{some(40, HEX)}",
            "planetscale": lambda: "pscale" + f"_tkn_{some(43, URL)}",
            "age": lambda: "AGE-SECRET" + "-KEY-1" + some(58, "023456789ACDEFGHJKLMNPQRSTUVWXYZ"),
            "private-key": lambda: "-----BEGIN RSA PRIV" + "ATE KEY-----\n" + some(64, B64),
            "jwt": jwt,
            "svc-key": lambda: "svc" + "_w_" + some(22, URL),
        }.items()
    },
    "aws-secret-key": lambda: (lambda t: (f"aws_secret_access_key = {t} ", t))(some(40, B64)),
    "twilio": lambda: (lambda t: (f"the Twilio one is {t}", t))("S" + "K" + some(32, HEX)),
    "mailgun": lambda: (lambda t: (f"mailgun: {t}", t))("ke" + "y-" + some(32, HEX)),
    "cloudflare": lambda: (lambda t: (f"for cloudflare it is {t}", t))(some(40, URL)),
    "azure-storage": lambda: (lambda t: (f"AccountName=a;AccountKey={t};", t))(some(86, B64) + "=="),
    "bearer": lambda: (lambda t: (f"-H 'Authorization: Bearer {t}'", t))(some(30)),
    "url-password": lambda: (lambda t: (f"postgres://app:{t}@db.internal/app", t))(some(12)),
    "assigned": lambda: (lambda t: (f'"db_password": "{t}"', t))(some(24)),
}


def test_every_form_has_a_made_up_token() -> None:
    assert {form.id for form in FORMATS} == POSITIVES.keys()
    assert len(FORMATS) == len(POSITIVES)


@pytest.mark.parametrize("form", POSITIVES)
def test_a_made_up_token_of_every_form_is_found_and_told_as_little_as_may_be(form: str) -> None:
    for _ in range(20):
        text, token = POSITIVES[form]()
        (found,) = find_secrets(text, KEY)
        assert (found.pattern, text.encode()[found.start : found.end].decode()) == (form, token)
        assert found.length == len(token)
        assert found.leading in (token[:4], "")
        assert len(token) >= 16 or not found.leading
        assert token not in repr(found) + found.signature
        assert token[6:] not in repr(found) + found.signature
        hidden = masked(f"a {text} z")
        assert token not in hidden
        assert (hidden[:2], hidden[-2:]) == ("a ", " z")
        assert f"[{form} {found.leading}… {len(token)} characters]" in hidden


@pytest.mark.parametrize("form", POSITIVES)
def test_a_look_alike_is_none_of_its_form(form: str) -> None:
    """Too short, one character repeated, said to be an example, or of a wrong checksum."""
    text, token = POSITIVES[form]()
    start = text.index(token)
    for other in (
        token[: len(token) // 2],
        token[:4] + "a" * (len(token) - 4),
        f"{token[:8]}EXAMPLE{token[15:]}",
        f"<{token[:3]}>",
    ):
        found = find_secrets(text[:start] + other + text[start + len(token) :], KEY)
        assert form not in {one.pattern for one in found}, other


def test_a_wrong_checksum_is_no_token() -> None:
    for prefix in ("gh" + "p_", "np" + "m_"):
        found = [one for _ in range(2000) for one in find_secrets(f"see {prefix}{some(36)} there", KEY)]
        assert found == []


@pytest.mark.parametrize(
    "harmless",
    [
        "token = os.environ['API_TOKEN_OF_THE_SERVICE']",
        "password: ${DATABASE_PASSWORD_FROM_VAULT}",
        "secret=your_secret_goes_here_please",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 of the branch",
        "api_key: 550e8400-e29b-41d4-a716-446655440000",
        "token: django.contrib.auth.tokens.default_token_generator",
        "postgres://user:****@host/db and postgres://user:<password>@host/db",
        "the tokens used were 1,234 in all; max_tokens = 4096",
        "Authorization: Bearer <token>",
        "data:image/png;base64," + some(4000, B64),
        "SK" + some(32, HEX) + " without the word",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "a.b.c eyJhbGciOiJub25l.eyJzdWIiOiIx",
        "x" * 5000,
        "",
    ],
)
def test_what_is_no_secret_is_left_as_it_is(harmless: str) -> None:
    assert find_secrets(harmless, KEY) == []
    assert masked(harmless) == harmless


def test_a_token_behind_a_word_is_told_by_its_own_form() -> None:
    token = checked("gh" + "p_")
    (found,) = find_secrets(f"api_key = {token}", KEY)
    assert found.pattern == "github-pat"


def test_marks_tell_repeats_under_one_key_and_nothing_under_another() -> None:
    text, _ = POSITIVES["stripe"]()
    other, _ = POSITIVES["stripe"]()

    def mark(said: str, key: bytes = KEY) -> str:
        (found,) = find_secrets(said, key)
        return found.mark

    assert mark(text) == mark("again: " + text)
    assert mark(text) != mark(other)
    assert mark(text) != mark(text, b"j" * 32)


def test_places_are_those_of_utf_8_and_several_are_masked_each() -> None:
    tokens = [POSITIVES[form]()[1] for form in ("stripe", "npm", "groq")]
    text = " – ".join(["ä", *tokens, "ö"])
    found = find_secrets(text, KEY)
    assert [text.encode()[one.start : one.end].decode() for one in found] == tokens
    assert [one.pattern for one in found] == ["stripe", "npm", "groq"]
    hidden = masked(text)
    assert all(token not in hidden for token in tokens)
    assert hidden.startswith("ä – [stripe ")
    assert hidden.endswith(" – ö")


def test_only_so_much_of_a_text_is_looked_at_but_all_that_is_shown_is_masked() -> None:
    _, token = POSITIVES["groq"]()
    behind = "a " * (SCANNED_BYTES // 2) + token
    assert find_secrets(behind, KEY) == []
    assert token not in masked(behind)


def test_behind_too_many_stops_everything_that_looks_like_one_is_hidden() -> None:
    _, token = POSITIVES["groq"]()
    hidden = masked(("gh" + "p_" + some(36) + " ") * (MAX_STOPS + 5) + f"and {token} end")
    assert token not in hidden
    assert hidden.endswith(" and [hidden] end")


def test_a_text_made_to_stop_the_scan_at_every_word_costs_bounded_time() -> None:
    hostile = ("gh" + "p_" + "a" * 36 + " ") * 5000
    assert find_secrets(hostile, KEY) == []
    assert least(lambda: taken_s(lambda: find_secrets(hostile, KEY)), below=2) < 2
    assert len(hostile) > 40 * MAX_STOPS


@pytest.mark.parametrize("alphabet", [HEX, string.ascii_lowercase, string.ascii_lowercase + DIGITS])
def test_a_long_text_without_a_break_costs_little(alphabet: str) -> None:
    # 2 to 20 ms; 1.8 s while every letter could begin the address that a password stands in.
    unbroken = some(2_000_000, alphabet)
    assert least(lambda: taken_s(lambda: find_secrets(unbroken, KEY)), below=0.1) < 0.1
    assert least(lambda: taken_s(lambda: masked(unbroken)), below=0.3) < 0.3


# --- the detector -----------------------------------------------------------------------------------------

CONTEXT = ObserverContext(secret_key=KEY)


def leaks(
    *spans: object, context: ObserverContext = CONTEXT
) -> dict[str, list[tuple[str, str, tuple[bytes, ...]]]]:
    observed = observe(settled(*spans), context)
    assert observed.failed == {}
    found: dict[str, list[tuple[str, str, tuple[bytes, ...]]]] = {}
    for one in observed.observations:
        if one.measure in ("secret_high", "secret_low"):
            assert one.failed
            found.setdefault(one.measure, []).append((one.subject, one.detail, one.witnesses))
    return found


def test_what_a_model_says_weighs_by_its_form_and_what_tools_are_given_or_return_little() -> None:
    token = checked("gh" + "p_")
    two = (2).to_bytes(8, "big")
    assert leaks(agent(), chat(2, f"use {token}", parent=1)) == {
        "secret_high": [("site:writer", "github-pat", (two,))]
    }
    _, unsure = POSITIVES["replicate"]()
    assert leaks(chat(2, f"use {unsure}")) == {"secret_low": [("site:writer", "replicate", (two,))]}
    for tool in (
        called(2, "push", {"auth": token}),
        called(2, "push", {}, attributes={"gen_ai.tool.call.result": f"ok {token}"}),
    ):
        assert list(leaks(agent(), tool)) == ["secret_low"]
    asked = [{"type": "tool_call", "id": "c", "name": "push", "arguments": {"auth": token}}]
    assert list(leaks(chat(2, asked))) == ["secret_low"]


def test_what_the_user_said_first_weighs_little() -> None:
    token = checked("gh" + "p_")
    given = {"gen_ai.input.messages": [{"role": "user", "content": f"my token is {token}"}]}
    assert list(leaks(chat(2, f"so you said {token}", attributes=given))) == ["secret_low"]


def test_without_a_key_nobody_looks() -> None:
    assert leaks(chat(2, checked("gh" + "p_")), context=ObserverContext()) == {}


def test_nothing_of_a_secret_stands_in_an_observation() -> None:
    for form in POSITIVES:
        text, token = POSITIVES[form]()
        for one in observe(settled(agent(), chat(2, text, parent=1)), CONTEXT).observations:
            assert token not in repr(one)
            assert token[5:] not in repr(one)


def test_no_error_quotes_a_secret() -> None:
    found = FoundSecret("npm", "high", 0, 40, "npm_", 40, "00")
    assert str(found.signature) == "npm:npm_:40:00"


@pytest.mark.parametrize("form", POSITIVES)
def test_a_look_at_many_texts_together_misses_no_form(form: str) -> None:
    for _ in range(5):
        text, _token = POSITIVES[form]()
        for around in ([text], ["", text], [text, ""], ["a", text, "b"], ["word", text, text]):
            assert may_hold_secrets(around)
    assert not may_hold_secrets(["nothing", "of", "the kind"])
