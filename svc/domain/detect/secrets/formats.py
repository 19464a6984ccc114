"""The forms of secrets: which tokens there are, by what they are told, and how sure their form makes.

Owns: `FORMATS`, a table of data with a version. `secrets` compiles it. A new form is one line here and a
made-up positive and a look-alike in the tests. Never a whole token in this repository.

A form is of the high band when nothing else looks like it and its vendor's own word for it was found
(November 2026: the pages are named beside it); every other one is low.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal
from zlib import crc32

import attrs

Band = Literal["high", "low"]

VERSION: Final = 3

_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_W: Final = "[0-9A-Za-z]"
_U: Final = "[0-9A-Za-z_-]"
_B: Final = "[0-9A-Za-z+/]"
_H: Final = "[0-9a-f]"


def has_checksum(token: str) -> bool:
    """Whether the last six characters are the CRC-32 of the thirty before them, in base 62."""
    body = token[-36:]
    number = crc32(body[:30].encode())
    checksum = ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        checksum = _BASE62[digit] + checksum
    return checksum == body[30:]


@attrs.frozen
class SecretFormat:
    """One form. `pattern` is what RE2 and Python both read; the secret is its group `s`, else all of it.

    `public` says that it begins with characters that every token of its kind has. `source` is where its
    vendor says so; without one a form is low. `check` looks at the secret once more; `entropy` is the least,
    in bits a character.
    """

    id: str
    pattern: str
    source: str | None = None
    public: bool = True
    check: Callable[[str], bool] | None = None
    entropy: float = 0.0

    @property
    def band(self) -> Band:
        """How sure its form alone makes."""
        return "high" if self.source is not None else "low"


_F = SecretFormat
_GITHUB: Final = "github.blog, Behind GitHub's new authentication token formats"

FORMATS: Final[tuple[SecretFormat, ...]] = (
    _F("github-pat", f"ghp_{_W}{{36}}", _GITHUB, check=has_checksum),
    _F("github-oauth", f"gho_{_W}{{36}}", _GITHUB, check=has_checksum),
    _F("github-server", f"ghs_{_W}{{36}}", _GITHUB, check=has_checksum),
    _F("github-user", f"ghu_{_W}{{36}}", _GITHUB, check=has_checksum),
    _F("github-refresh", f"ghr_{_W}{{36,76}}", _GITHUB),
    _F("github-fine-grained", f"github_pat_{_W}{{22}}_{_W}{{59}}"),
    _F("gitlab", f"glpat-{_U}{{20,60}}(?:\\.{_U}{{2,40}}){{0,2}}", "docs.gitlab.com, Token information API"),
    _F("gitlab-runner", f"(?:glrt|gldt)-{_U}{{20,60}}(?:\\.{_U}{{2,40}}){{0,2}}"),
    _F("npm", f"npm_{_W}{{36}}", "github.blog, Announcing npm's new access token format", check=has_checksum),
    _F(
        "pypi",
        f"pypi-AgEIcHlwaS5vcmc{_U}{{50,200}}",
        "PyPI documentation, Secret reporting API; Warehouse, Token Scanning",
    ),
    _F("aws-access-key-id", "(?:AKIA|ASIA)[A-Z2-7]{16}", "docs.aws.amazon.com, IAM identifiers"),
    _F(
        "aws-secret-key",
        f"(?i:aws|secret)[^\\n]{{0,40}}?[^0-9A-Za-z+/](?P<s>{_B}{{40}})",
        public=False,
        entropy=4.0,
    ),
    _F("slack-bot", f"xoxb-[0-9]{{10,13}}-[0-9]{{10,13}}-{_W}{{24}}", "api.slack.com, Token types"),
    _F("slack-user", f"xoxp-(?:[0-9]{{10,13}}-){{3}}{_H}{{32}}", "api.slack.com, Token types"),
    _F(
        "slack-app", f"xapp-[0-9]-[A-Z0-9]{{8,14}}-[0-9]{{10,14}}-{_H}{{32,80}}", "api.slack.com, Token types"
    ),
    _F("slack-webhook", f"hooks\\.slack\\.com/services/T[A-Z0-9]{{6,14}}/B[A-Z0-9]{{6,14}}/{_W}{{24}}"),
    _F("stripe", f"[sr]k_live_{_W}{{24,99}}", "docs.stripe.com/keys; a Stripe engineer in gitlab.com 458019"),
    _F("stripe-test", f"[sr]k_test_{_W}{{24,99}}"),
    _F("stripe-webhook", f"whsec_{_B}{{32,64}}"),
    _F("openai", f"sk-(?:proj|svcacct|admin)-{_U}{{20,90}}T3BlbkFJ{_U}{{20,90}}"),
    _F("openai-old", f"sk-{_W}{{20}}T3BlbkFJ{_W}{{20}}"),
    _F(
        "anthropic",
        f"sk-ant-(?:api03|admin01)-{_U}{{93}}AA",
        "platform.claude.com, Get an API key; Admin API, partial_key_hint",
    ),
    _F("google-api-key", f"AIza{_U}{{35}}"),
    _F("google-oauth-secret", f"GOCSPX-{_U}{{28}}"),
    _F("google-access-token", f"ya29\\.{_U}{{50,250}}"),
    _F("huggingface", "hf_[A-Za-z]{34}"),
    _F("groq", f"gsk_{_W}{{52}}"),
    _F("xai", f"xai-{_W}{{80}}"),
    _F("perplexity", f"pplx-{_W}{{48}}"),
    _F("replicate", f"r8_{_W}{{37}}"),
    _F("langsmith", f"lsv2_(?:pt|sk)_{_H}{{32}}_{_H}{{10}}"),
    _F("langfuse", f"sk-lf-{_H}{{8}}-{_H}{{4}}-{_H}{{4}}-{_H}{{4}}-{_H}{{12}}"),
    # 69 characters in all.
    _F("sendgrid", f"SG\\.{_U}{{22}}\\.{_U}{{43}}", "twilio.com/docs/sendgrid, API Keys"),
    _F("twilio", f"(?i:twilio)[^\\n]{{0,60}}?\\b(?P<s>SK{_H}{{32}})"),
    _F("mailgun", f"(?i:mailgun)[^\\n]{{0,60}}?\\b(?P<s>key-{_H}{{32}})"),
    _F("telegram-bot", f"[0-9]{{8,10}}:AA{_U}{{33}}", public=False),
    _F("digitalocean", f"do[opr]_v1_{_H}{{64}}", "docs.digitalocean.com, API token format"),
    # 38 characters in all.
    _F(
        "shopify",
        "shp(?:at|ss|ca|pa)_[0-9A-Fa-f]{32}",
        "shopify.dev/changelog, Length of the Shopify access token is increasing",
    ),
    _F("databricks", f"dapi{_H}{{32}}(?:-[0-9])?"),
    _F("terraform-cloud", f"{_W}{{14}}\\.atlasv1\\.{_U}{{60,70}}", public=False),
    _F("vault", f"hv[sb]\\.{_U}{{90,200}}"),
    _F("linear", f"lin_api_{_W}{{40}}"),
    _F("notion", f"ntn_[0-9]{{11}}{_W}{{35}}"),
    _F("grafana", f"glsa_{_W}{{32}}_{_H}{{8}}"),
    _F("grafana-cloud", f"glc_{_B}{{32,200}}"),
    _F("newrelic", "NRAK-[A-Z0-9]{27}"),
    _F("postman", f"PMAK-{_H}{{24}}-{_H}{{34}}"),
    _F("docker-hub", f"dckr_pat_{_U}{{27,60}}"),
    _F("doppler", f"dp\\.pt\\.{_W}{{43}}"),
    _F("sentry-org", f"sntrys_eyJ{_B}{{60,200}}"),
    _F("sentry-user", f"sntryu_{_H}{{64}}"),
    _F("figma", f"figd_{_U}{{40,60}}"),
    _F("airtable", f"pat{_W}{{14}}\\.{_H}{{64}}"),
    _F(
        "cloudflare",
        f"(?i:cloudflare)[^\\n]{{0,60}}?[^0-9A-Za-z_-](?P<s>{_U}{{40}})",
        public=False,
        entropy=4.0,
    ),
    _F("supabase", f"sbp_{_H}{{40}}"),
    _F("planetscale", "pscale_(?:tkn|pw)_[0-9A-Za-z_.-]{32,64}"),
    _F("age", "AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}"),
    # In JSON a line ends as two characters.
    _F(
        "private-key",
        f"-----BEGIN (?:[A-Z0-9]+ ){{0,3}}PRIVATE KEY-----(?:\\\\[rn]|\\s){{1,4}}{_B}{{64}}",
        "RFC 7468, Textual Encodings of PKIX, PKCS, and CMS Structures",
    ),
    _F("azure-storage", f"AccountKey=(?P<s>{_B}{{86}}==)", public=False),
    _F("jwt", f"eyJ{_U}{{10,400}}\\.eyJ{_U}{{10,900}}\\.{_U}{{16,600}}"),
    # In JSON names and values have quotes, in JSON inside of JSON quotes have backslashes.
    _F(
        "bearer",
        "(?i:authorization\\\\{0,3}[\"']?: ?\\\\{0,3}[\"']?bearer) (?P<s>[0-9A-Za-z_.-]{20,200})",
        public=False,
        entropy=3.5,
    ),
    # Of the scheme only its last character: from its first on, every letter of a long hex text could begin
    # one, and the automaton has a state for each set of them (a millisecond a KB, measured December 2026).
    _F(
        "url-password",
        "[a-z0-9+.-]://[^\\s:/@\"']{1,64}:(?P<s>[^\\s/@\"']{8,128})@[0-9A-Za-z.-]",
        public=False,
    ),
    _F(
        "assigned",
        "(?i:password|passwd|secret|token|api[_-]?key)\\\\{0,3}[\"']?\\s{0,3}[=:]\\s{0,3}\\\\{0,3}[\"']?"
        "(?P<s>[0-9A-Za-z_+/.~!@#$%^&*-]{16,128})",
        public=False,
        entropy=3.5,
    ),
    # Of this service itself.
    _F("svc-key", f"svc_[wqa]_{_U}{{22}}", "protocol/tokens.py"),
)
