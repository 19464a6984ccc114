"""What an application may ask of the authorization endpoint: its redirects, its proof, its own description.

Pure rules of OAuth 2.1, RFC 7591, RFC 7636, RFC 8252, RFC 8707 and of client-id metadata documents, as the
MCP authorization specification puts them together. Called by the doors, the consent page and the store.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest
from ipaddress import ip_address
from re import ASCII, compile
from typing import Annotated, Any, Final
from urllib.parse import SplitResult, urlencode, urlsplit

import attrs
import msgspec
from msgspec import Meta

#: All that an application can be given: reading a project over MCP.
SCOPE: Final = "mcp:read"
NAME_MAX: Final = 100
REDIRECTS_MAX: Final = 10
ADDRESS_MAX: Final = 2000
STATE_MAX: Final = 2000

#: Schemes that desktop applications have registered for themselves. Any other private one has a dot in it, as
#: RFC 8252 §7.1 wants, so that no document or script can be reached by one.
_APPLICATION_SCHEMES: Final = frozenset(
    {"claude", "codex", "cursor", "vscode", "vscode-insiders", "windsurf", "zed", "jetbrains", "warp"}
)
_PRIVATE_SCHEME: Final = compile(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)+")
_PRINTED: Final = compile(r"[\x21-\x7e]+")
_CHALLENGE: Final = compile(r"[A-Za-z0-9_-]{43}", ASCII)
_VERIFIER: Final = compile(r"[A-Za-z0-9._~-]{43,128}", ASCII)


@attrs.frozen
class OAuthClient:
    """An application, as it describes itself: nobody vouches for its name."""

    id: str
    name: str
    redirect_uris: Sequence[str]


class WrongClient(Exception):
    """A description that cannot be taken; the text says why. `is_redirect`: a redirect is wrong."""

    def __init__(self, reason: str, *, is_redirect: bool = False) -> None:
        super().__init__(reason)
        self.is_redirect = is_redirect


class ClientMetadata(msgspec.Struct):
    """What an application sends or publishes about itself (RFC 7591 §2); more is left unread."""

    redirect_uris: Annotated[list[str], Meta(min_length=1, max_length=REDIRECTS_MAX)]
    client_name: str = ""
    client_id: str | None = None
    grant_types: list[str] | None = None
    response_types: list[str] | None = None
    client_secret: Any = None


def client_of(client_id: str, metadata: ClientMetadata) -> OAuthClient:
    """The application of a description. Raises `WrongClient`."""
    for uri in metadata.redirect_uris:
        if not may_redirect(uri):
            raise WrongClient(
                "redirect_uris may be https, http on a loopback address, or an application's own scheme",
                is_redirect=True,
            )
    if metadata.grant_types is not None and "authorization_code" not in metadata.grant_types:
        raise WrongClient("grant_types must hold authorization_code")
    if metadata.response_types is not None and "code" not in metadata.response_types:
        raise WrongClient("response_types must hold code")
    name = "".join(letter for letter in metadata.client_name if letter.isprintable()).strip()[:NAME_MAX]
    return OAuthClient(client_id, name or "An application without a name", tuple(metadata.redirect_uris))


def document_client(url: str, body: bytes) -> OAuthClient:
    """The application of a client-id metadata document that was read at its address. Raises `WrongClient`."""
    try:
        metadata = msgspec.json.decode(body, type=ClientMetadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise WrongClient("the document of the application cannot be read") from None
    if metadata.client_id != url:
        raise WrongClient("the document of the application names another client_id")
    if metadata.client_secret is not None:
        raise WrongClient("the document of the application holds a secret")
    return client_of(url, metadata)


def is_document(client_id: str) -> bool:
    """Whether a client id is the address of a metadata document."""
    parts = _split(client_id)
    return (
        parts is not None
        and parts.scheme == "https"
        and bool(parts.hostname)
        and len(parts.path) > 1
        and not parts.fragment
        and not {".", ".."} & set(parts.path.split("/"))
    )


def may_redirect(uri: str) -> bool:
    """Whether an application may have browsers sent here."""
    parts = _split(uri)
    if parts is None or "#" in uri:
        return False
    match parts.scheme:
        case "https":
            return bool(parts.hostname)
        case "http":
            return _is_loopback(parts)
        case scheme:
            return scheme in _APPLICATION_SCHEMES or _PRIVATE_SCHEME.fullmatch(scheme) is not None


def same_redirect(registered: str, wanted: str) -> bool:
    """Whether an address is the registered one, letter by letter; a loopback one may have any port."""
    if registered == wanted:
        return True
    parts, wanted_parts = _split(registered), _split(wanted)
    if parts is None or wanted_parts is None or parts.scheme != "http" or not _is_loopback(parts):
        return False
    return may_redirect(wanted) and _without_port(parts) == _without_port(wanted_parts)


def redirect_host(uri: str) -> str:
    """Where a redirect leads, in the words of the consent page."""
    parts = urlsplit(uri)
    if parts.scheme == "http":
        return "this computer"
    return parts.netloc if parts.scheme == "https" else f"the application behind {parts.scheme}:"


def with_answer(uri: str, **answer: str) -> str:
    """A redirect address with the fields of an answer; blank ones are left out."""
    fields = urlencode({name: value for name, value in answer.items() if value})
    return f"{uri}{'&' if '?' in uri else '?'}{fields}"


def is_challenge(text: str) -> bool:
    """Whether a text is a code challenge of the method S256."""
    return _CHALLENGE.fullmatch(text) is not None


def verifies(verifier: str, challenge: str) -> bool:
    """Whether a verifier is the one behind a challenge of the method S256."""
    if _VERIFIER.fullmatch(verifier) is None:
        return False
    digest = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    return compare_digest(digest, challenge)


def names_resource(indicator: str, address: str) -> bool:
    """Whether a resource indicator means our MCP address; none at all does, as older clients have it."""
    return not indicator or indicator.rstrip("/") == address


def _split(uri: str) -> SplitResult | None:
    """The parts of an address without a user; None where it is no such address."""
    if len(uri) > ADDRESS_MAX or _PRINTED.fullmatch(uri) is None or "\\" in uri:
        return None
    try:
        parts = urlsplit(uri)
        _port = parts.port
    except ValueError:
        return None
    return None if "@" in parts.netloc or not parts.scheme else parts


def _is_loopback(parts: SplitResult) -> bool:
    if parts.hostname == "localhost":
        return True
    try:
        return ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def _without_port(parts: SplitResult) -> tuple[str, str | None, str, str]:
    return parts.scheme, parts.hostname, parts.path, parts.query
