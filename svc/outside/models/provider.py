"""One model provider: whom to ask, in which dialect, with which credential, and what a refusal means.

`asked_by` makes a `ModelProvider` of what a request says, or of what the machine knows. `ask` asks once;
whoever asks decides whether to ask again.

Secrets: credentials go into one header and into no text of an error. What a provider says to explain a
refusal may repeat what it was sent: it stands in `ModelRefused.quote` alone, for whoever scrubs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Literal
from urllib.parse import quote

import attrs
import msgspec

from protocol.running import Credential
from svc.outside.addresses import AddressRule
from svc.outside.http import AddressRefused, HttpAnswer, HttpClient, NeverSent, Unreached
from svc.outside.models.aws import CloudKeys
from svc.outside.models.chat import chat_answer, chat_body
from svc.outside.models.conversation import ModelAnswer, ModelQuestion, UnreadableAnswer
from svc.outside.models.listing import CLOUD_PATH, VENDOR_PATH, newest_of_cloud, newest_of_vendor
from svc.outside.models.messages import messages_answer, messages_body
from svc.outside.models.sigv4 import KeyPair, pair_of, signed

ANSWER_BYTES: Final = 8 * 1024 * 1024
#: A list is asked for once a run.
LIST_TIMEOUT_S: Final = 15.0
#: What is kept of an explanation until it is scrubbed.
QUOTED_CHARS: Final = 4_000
#: One answer takes minutes when it is long.
CALL_TIMEOUT_S: Final = 300.0

_VERSION: Final = "2023-06-01"
_CLOUD_VERSION: Final = "bedrock-2023-05-31"

Way = Literal["cloud_signed", "cloud_bearer_key", "first_party_api"]

_BASES: Final[Mapping[str, str]] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
    "google": "https://generativelanguage.googleapis.com/v1beta/openai",
}
_UNNAMED: Final = "no model is named (AGENT_MODEL), and the provider lists none that would do"

RefusedFor = Literal[
    "no_provider",
    "rejected_credential",
    "no_such_model",
    "provider_refused",
    "bad_answer",
    "rate_limited",
    "provider_away",
    "unreached",
    "lost",
]


class ModelRefused(Exception):
    """The provider does not answer this. `again_s`: asking again may help, not before so many seconds.

    `unreached`: nothing was sent. `lost`: it may have answered, `bad_answer`: it answered, and what that cost
    is not known. `quote` is what it said, as it came.
    """

    def __init__(
        self,
        kind: RefusedFor,
        message: str,
        *,
        status: int = 0,
        again: bool = False,
        again_s: float | None = None,
        quote: str = "",
    ) -> None:
        super().__init__(message)
        self.kind, self.status, self.again, self.again_s = kind, status, again, again_s
        self.quote = quote


@attrs.frozen
class Surrounding:
    """What the machine knows of a provider, by the operator's environment."""

    way: Way = "cloud_signed"
    region: str | None = None
    base_url: str | None = None
    model: str | None = None
    #: Bounds of that model; None: those of the request.
    output_tokens: int | None = None
    context_tokens: int | None = None
    api_key: str | None = attrs.field(default=None, repr=False)
    bearer_key: str | None = attrs.field(default=None, repr=False)
    keys: CloudKeys = attrs.field(factory=CloudKeys)
    #: Which addresses integrations may name.
    rule: AddressRule = attrs.field(factory=AddressRule)

    @property
    def mode(self) -> str:
        """How the machine reaches a model by itself, for health."""
        match self.way:
            case "first_party_api":
                return self.way if self.api_key else "none"
            case "cloud_bearer_key":
                return self.way if self.bearer_key and self.region else "none"
            case "cloud_signed":
                return self.way if self.region else "none"

    @property
    def ambient(self) -> str | None:
        """The provider that agents have by the environment, for people; None where there is none."""
        return None if self.mode == "none" else self.mode


@attrs.frozen
class ModelProvider:
    """Asks one model. `dialect` tells the bodies, `price_provider` whose prices they have."""

    dialect: Literal["messages", "cloud", "chat"]
    base_url: str
    model: str
    price_provider: str
    http: HttpClient
    now: Callable[[], datetime]
    secret: str | None = attrs.field(default=None, repr=False)
    keys: KeyPair | None = None
    region: str = ""
    bound: str = "max_completion_tokens"

    async def ask(
        self, question: ModelQuestion, *, timeout_s: float, sent: Callable[[], None] | None = None
    ) -> ModelAnswer:
        """One answer; `sent` is called before the first byte leaves. Raises `ModelRefused`."""
        url, headers, body = self._request(question)
        http = attrs.evolve(self.http, timeout_s=min(timeout_s, CALL_TIMEOUT_S))
        try:
            answer = await http.ask("POST", url, headers=headers, body=body, sent=sent)
        except AddressRefused as refused:
            raise ModelRefused("provider_refused", f"the provider's address: {refused}") from None
        except NeverSent as away:
            raise ModelRefused("unreached", f"the provider {away}", again=True) from None
        except Unreached as away:
            raise ModelRefused("lost", f"the provider {away}", again=True) from None
        if answer.status != 200:
            raise _refusal(answer)
        try:
            body = msgspec.json.decode(answer.body)
            return chat_answer(body) if self.dialect == "chat" else messages_answer(body)
        except (msgspec.DecodeError, RecursionError, UnreadableAnswer):
            # Asking again would not help.
            reason = "the provider's answer cannot be read"
            raise ModelRefused("bad_answer", reason, quote=_text(answer.body)) from None

    async def with_newest(self) -> ModelProvider:
        """The same, asking the newest model that it lists. Raises `ModelRefused`."""
        base, newest_model = self.base_url.rstrip("/"), newest_of_vendor
        url, headers = base + VENDOR_PATH, {"x-api-key": self.secret or "", "anthropic-version": _VERSION}
        if self.dialect == "cloud":
            newest_model = newest_of_cloud
            url = base.replace("https://bedrock-runtime.", "https://bedrock.", 1) + CLOUD_PATH
            headers = self._signed("GET", url, {"accept": "application/json"}, b"")
        try:
            answer = await attrs.evolve(self.http, timeout_s=LIST_TIMEOUT_S).ask("GET", url, headers=headers)
        except Unreached as away:
            raise ModelRefused("unreached", f"the provider {away}", again=True) from None
        if answer.status != 200:
            raise _refusal(answer)
        try:
            model = newest_model(msgspec.json.decode(answer.body))
        except (msgspec.DecodeError, RecursionError, KeyError, TypeError, AttributeError):
            model = None
        if model is None:
            raise ModelRefused("no_such_model", _UNNAMED)
        return attrs.evolve(self, model=model)

    def _signed(self, method: str, url: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        """The headers with which the cloud takes a request: its bearer key, or a signature."""
        if self.keys is None:
            return {**headers, "authorization": f"Bearer {self.secret}"}
        return signed(
            method, url, headers, body, self.keys, service="bedrock", region=self.region, at=self.now()
        )

    def _request(self, question: ModelQuestion) -> tuple[str, dict[str, str], bytes]:
        base, headers = self.base_url.rstrip("/"), {"content-type": "application/json"}
        if self.dialect == "chat":
            if self.secret is not None:
                headers["authorization"] = f"Bearer {self.secret}"
            body = msgspec.json.encode(chat_body(question, self.model, bound=self.bound))
            return f"{base}/chat/completions", headers, body
        if self.dialect == "messages":
            headers |= {"x-api-key": self.secret or "", "anthropic-version": _VERSION}
            body = msgspec.json.encode({"model": self.model, **messages_body(question)})
            return f"{base}/v1/messages", headers, body
        url = f"{base}/model/{quote(self.model, safe='-_.~')}/invoke"
        headers["accept"] = "application/json"
        body = msgspec.json.encode({"anthropic_version": _CLOUD_VERSION, **messages_body(question)})
        return url, self._signed("POST", url, headers, body), body


def _refusal(answer: HttpAnswer) -> ModelRefused:
    status, headers = answer.status, answer.headers
    reason = f"the provider answers {status}"
    if status in (401, 403):
        return ModelRefused("rejected_credential", reason, status=status)
    if status == 404:
        return ModelRefused("no_such_model", reason, status=status)
    if status == 429 or status >= 500:
        kind: RefusedFor = "rate_limited" if status in (429, 529) else "provider_away"
        return ModelRefused(
            kind, reason, status=status, again=True, again_s=_seconds(headers.get("retry-after"))
        )
    return ModelRefused("provider_refused", reason, status=status, quote=_explained(answer))


def _explained(answer: HttpAnswer) -> str:
    """The type and text of a refusal where its JSON names them, else the beginning of the body."""
    kind = answer.headers.get("x-amzn-errortype", "").partition(":")[0]
    try:
        document = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, RecursionError):
        return _text(answer.body)
    document = document[0] if isinstance(document, list) and document else document
    inner = document.get("error", document) if isinstance(document, dict) else document
    if not isinstance(inner, dict):
        return str(inner)[:QUOTED_CHARS]
    kind = inner.get("type") or inner.get("status") or kind
    text = inner.get("message") or inner.get("detail")
    explanation = ": ".join(str(part) for part in (kind, text) if part)
    return explanation[:QUOTED_CHARS] or _text(answer.body)


def _text(body: bytes) -> str:
    return body[:QUOTED_CHARS].decode("utf-8", "replace").strip()


def _seconds(retry_after: str | None) -> float | None:
    try:
        return None if retry_after is None else min(max(float(retry_after), 0.0), 3_600.0)
    except ValueError:
        return None


async def asked_by(
    credential: Credential, model: str | None, around: Surrounding, now: Callable[[], datetime]
) -> ModelProvider:
    """The provider that a request names, else the machine's own, whose list is asked where nobody names a
    model. Raises `ModelRefused` when there is none.
    """
    if credential.provider in ("environment", "local"):
        model_name = model or around.model
        provider = await _of_the_machine(model_name or "", around, now)
        return provider if model_name else await provider.with_newest()
    if model is None:
        raise ModelRefused("no_such_model", "no model is named")
    http = HttpClient(around.rule, answer_bytes=ANSWER_BYTES)
    base = credential.base_url or _BASES.get(credential.provider)
    if credential.provider == "aws_bedrock":
        return _cloud_of(credential, model, http, now)
    if base is None:
        raise ModelRefused("no_provider", "the integration names no address")
    if credential.provider == "anthropic":
        return ModelProvider("messages", base, model, "anthropic", http, now, credential.secret)
    bound = "max_completion_tokens" if credential.provider == "openai" else "max_tokens"
    price = {"openai_compatible": "", "google": "google"}.get(credential.provider, credential.provider)
    return ModelProvider("chat", base, model, price, http, now, credential.secret, bound=bound)


def _cloud_of(
    credential: Credential, model: str, http: HttpClient, now: Callable[[], datetime]
) -> ModelProvider:
    """With a user name it is a key pair."""
    if credential.secret is None or credential.region is None:
        raise ModelRefused("no_provider", "the integration has no region or no secret")
    base = credential.base_url or _cloud_base(credential.region)
    provider = ModelProvider("cloud", base, model, "aws", http, now, region=credential.region)
    if credential.username is None:
        return attrs.evolve(provider, secret=credential.secret)
    return attrs.evolve(provider, keys=pair_of(credential.username, credential.secret))


def _cloud_base(region: str) -> str:
    return f"https://bedrock-runtime.{region}.amazonaws.com"


async def _of_the_machine(model: str, around: Surrounding, now: Callable[[], datetime]) -> ModelProvider:
    # Only the operator can name these addresses.
    http = HttpClient(answer_bytes=ANSWER_BYTES)
    if around.way == "first_party_api":
        if around.api_key is None:
            raise ModelRefused("no_provider", "the runner has no key of the vendor's API")
        base = around.base_url or _BASES["anthropic"]
        return ModelProvider("messages", base, model, "anthropic", http, now, around.api_key)
    if around.region is None:
        raise ModelRefused("no_provider", "the runner has no region of the cloud's model service")
    base = around.base_url or _cloud_base(around.region)
    provider = ModelProvider("cloud", base, model, "aws", http, now, region=around.region)
    if around.way == "cloud_bearer_key":
        if around.bearer_key is None:
            raise ModelRefused("no_provider", "the runner has no bearer key of the cloud's model service")
        return attrs.evolve(provider, secret=around.bearer_key)
    keys = await around.keys.find(now)
    if keys is None:
        raise ModelRefused("no_provider", "the runner has no keys to sign with")
    return attrs.evolve(provider, keys=keys)
