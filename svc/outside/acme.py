"""The client of a certificate authority that speaks ACME (RFC 8555), on certbot's library.

The library blocks, so every verb runs in a thread, one at a time. Owns the account key, orders and the two
challenges; what is shown to the authority, and where anything is kept, is the caller's.

Three traps of the library (5.9) are stepped around here: it signs as RS256 unless told otherwise; it tries a
rejected nonce again only once; and TLS-ALPN-01, which it has dropped, comes as `UnrecognizedChallenge`, whose
answer must be an object that is true, or the answer becomes a mere read.

Secrets: keys are in what is returned and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import requests
import trio
from acme import challenges, errors, messages
from acme.client import ClientNetwork, ClientV2
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from josepy.b64 import b64encode
from josepy.errors import Error as JoseError
from josepy.interfaces import JSONDeSerializable
from josepy.jwa import ES256
from josepy.jwk import JWK, JWKEC

from protocol.certificates import AuthorityFault, Challenge, ChallengeKind, Kept, NotProven, Ordered, Pair

T = TypeVar("T")

#: One request of the library, and how long an authority may take to look at us and to sign.
REQUEST_TIMEOUT_S: Final = 15
PATIENCE: Final = timedelta(seconds=90)
#: A whole verb, with every nonce rejected that may be.
VERB_TIMEOUT_S: Final = 300.0
#: A test authority that rejects a fifth of all nonces made five tries fail for one certificate in a hundred.
NONCE_TRIES: Final = 10
_TEXT: Final = 300


class _Network(ClientNetwork):
    """The library's network, which takes a rejected nonce as often as authorities reject one."""

    def post(self, *args: Any, **kwargs: Any) -> requests.Response:
        for attempts_left in reversed(range(NONCE_TRIES)):
            try:
                return self._post_once(*args, **kwargs)
            except messages.Error as error:
                if error.code != "badNonce" or not attempts_left:
                    raise
        raise AssertionError("the last try returns or raises")


class _Ready(JSONDeSerializable):
    """The answer to a challenge: `{}`, which must not be false."""

    def to_partial_json(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_json(cls, jobj: Any) -> _Ready:
        return cls()


@attrs.frozen
class _Order:
    client: ClientV2
    order: messages.OrderResource
    key: bytes
    challenge: messages.ChallengeBody | None


@attrs.frozen
class AcmeAuthority:
    """An authority behind its directory. `ca_file` is what a private one is itself trusted by."""

    directory_url: str
    email: str
    domain: str
    user_agent: str
    ca_file: Path | None = None
    _one: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1))

    async def order(self, kept: Kept, kind: ChallengeKind) -> Ordered:
        """An order for the domain, under the account that is kept or a new one. Raises `AuthorityFault`."""
        return await self._in_thread(lambda: self._order(kept, kind))

    async def finish(self, ordered: Ordered) -> Pair:
        """The certificate, once the authority has seen that the name is ours. Raises `AuthorityFault`."""
        return await self._in_thread(lambda: _finish(ordered.order))

    async def renewal(self, pair: Pair) -> datetime | None:
        """When the authority wants it renewed (RFC 9773), None where it does not say."""

        def ask() -> datetime | None:
            moment, _ = self._client(None).renewal_time(pair.chain)
            return moment

        return await self._in_thread(ask)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            with trio.fail_after(VERB_TIMEOUT_S):
                return await trio.to_thread.run_sync(
                    lambda: _translated(work), abandon_on_cancel=True, limiter=self._one
                )
        except trio.TooSlowError:
            raise AuthorityFault("the authority took too long") from None

    def _client(self, key: JWK | None) -> ClientV2:
        network = _Network(
            key,
            alg=ES256,
            # The library hands it on to `requests`, which takes a path.
            verify_ssl=True if self.ca_file is None else str(self.ca_file),  # type: ignore[arg-type]
            user_agent=self.user_agent,
            timeout=REQUEST_TIMEOUT_S,
        )
        # No proxy, no `.netrc`, no bundle of certificates that the environment names.
        network.session.trust_env = False
        return ClientV2(ClientV2.get_directory(self.directory_url, network), network)

    def _order(self, state: Kept, kind: ChallengeKind) -> Ordered:
        if state.directory_url != self.directory_url:
            state = Kept(directory_url=self.directory_url, pair=state.pair)
        if state.account_key is None:
            state = attrs.evolve(state, account_key=_new_key(), account_url=None)
        assert state.account_key is not None
        key = JWKEC(key=load_pem_private_key(state.account_key, None))
        client = self._client(key)
        state = attrs.evolve(state, account_url=self._account(client, state.account_url))
        own_key = _new_key()
        order = client.new_order(_request(self.domain, own_key))
        challenge_body, challenge = None, None
        for authorization in order.authorizations:
            if authorization.body.status != messages.STATUS_VALID:
                challenge_body, challenge = _challenge(authorization, kind, self.domain, key)
        return Ordered(state, challenge, _Order(client, order, own_key, challenge_body))

    def _account(self, client: ClientV2, uri: str | None) -> str:
        """The address of our account, made when there is none (any more)."""
        if uri is not None:
            client.net.account = _registered(uri)
            try:
                client.query_registration(client.net.account)
            except messages.Error as error:
                if error.code != "accountDoesNotExist":
                    raise
            else:
                return uri
        client.net.account = None
        contact = messages.NewRegistration.from_data(email=self.email, terms_of_service_agreed=True)
        try:
            return str(client.new_account(contact).uri)
        except errors.ConflictError as there:
            # The key has an account already: a start was cut off before its address was kept.
            client.net.account = _registered(there.location)
            return str(there.location)


def _registered(url: str) -> messages.RegistrationResource:
    return messages.RegistrationResource(uri=url, body=messages.Registration())


def _challenge(
    authorization: messages.AuthorizationResource, kind: ChallengeKind, domain: str, key: JWK
) -> tuple[messages.ChallengeBody, Challenge]:
    for body in authorization.body.challenges:
        fields: dict[str, Any] = (
            body.chall.jobj
            if isinstance(body.chall, challenges.UnrecognizedChallenge)
            else body.chall.to_partial_json()
        )
        if fields.get("type") == kind and isinstance(token := fields.get("token"), str):
            thumbprint = b64encode(key.thumbprint()).decode()
            return body, Challenge(kind, domain, token, f"{token}.{thumbprint}")
    raise NotProven(f"the authority does not offer {kind}")


def _finish(ordered: _Order) -> Pair:
    deadline = datetime.now() + PATIENCE
    if ordered.challenge is not None:
        ordered.client.answer_challenge(ordered.challenge, _Ready())  # type: ignore[arg-type]
    proven = ordered.client.poll_authorizations(ordered.order, deadline)
    order = ordered.client.finalize_order(proven, deadline)
    return Pair(order.fullchain_pem.encode(), ordered.key)


def _new_key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )


def _request(domain: str, key: bytes) -> bytes:
    own = load_pem_private_key(key, None)
    assert isinstance(own, ec.EllipticCurvePrivateKey)
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(domain)]), critical=False)
        .sign(own, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )


def _translated(work: Callable[[], T]) -> T:
    """What the library raises is many things, and every one of them means: later."""
    try:
        return work()
    except errors.ValidationError as error:
        problems = [
            body.error
            for authorization in error.failed_authzrs
            for body in authorization.body.challenges
            if body.error
        ]
        raise NotProven(_sentence("it could not see that the name is ours", *problems)) from None
    except (messages.Error, errors.IssuanceError) as error:
        problem = error.error if isinstance(error, errors.IssuanceError) else error
        raise AuthorityFault(_sentence("the authority refuses", problem)) from None
    except errors.TimeoutError:
        raise AuthorityFault("the authority took too long") from None
    except (requests.RequestException, errors.Error, JoseError, OSError) as error:
        raise AuthorityFault(f"the authority cannot be reached ({type(error).__name__})") from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise AuthorityFault(f"the authority says what nobody understands ({type(error).__name__})") from None


def _sentence(prefix: str, *problems: Any) -> str:
    """What it said of its reasons, which the operator needs: one line, and not too long."""
    reasons = "; ".join(
        f"{problem.code or 'error'}: {problem.detail}" for problem in problems if problem is not None
    )
    return " ".join(f"{prefix} ({reasons})".split())[:_TEXT]
