"""The consent page: an application wants to read a project over MCP, and somebody who is signed in answers.

The authorization endpoint of OAuth 2.1. Nobody is sent to an address that the application has not registered,
and to a registered one only by a button: an application registers itself, so its addresses deserve no more
trust than a link in a mail.

Secrets: a code stands in the address that the browser is sent to, and nowhere else.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import attrs
import msgspec

from protocol.refusals import NOT_FOUND, Refusal
from svc.domain.accounts.oauth import (
    STATE_MAX,
    OAuthClient,
    WrongClient,
    document_client,
    is_challenge,
    is_document,
    names_resource,
    redirect_host,
    same_redirect,
    with_answer,
)
from svc.store.accounts.oauth import REFRESH_TERM, OAuthStore
from svc.web.shell.page import Go, Html, PageRoute, Visit

#: What is wrong with a request, in the words of the page.
UNKNOWN_CLIENT: Final = (
    "This service does not know the application. Remove the connection in the application and add it again."
)
UNREAD_CLIENT: Final = "The description published by the application cannot be read"
FOREIGN_REDIRECT: Final = "The application asks to send you to an address that it has not registered."
NO_CODE: Final = "The application asks for something other than a code (response_type)."
NO_CHALLENGE: Final = "The application sent no S256 code_challenge."
FOREIGN_RESOURCE: Final = (
    "The application asks for access to something other than the MCP address of this service."
)
LONG_STATE: Final = "The application sent a state that is too long."
NO_SUCH_PROJECT_HERE: Final = "You may not let an application read this project."


class AskForm(msgspec.Struct):
    """What an application asks for, as its fields are called in OAuth, and the answer of the form."""

    client_id: str = ""
    redirect_uri: str = ""
    response_type: str = ""
    code_challenge: str = ""
    code_challenge_method: str = ""
    state: str = ""
    resource: str = ""
    project: str = ""
    answer: str = ""


@attrs.frozen
class _Wrong:
    """Why a request is not put to anybody."""

    reason: str


async def page(visit: Visit) -> Html | Refusal:
    """The question."""
    fields = {name: visit.query[name] for name in AskForm.__struct_fields__ if name in visit.query}
    return await _page(visit, AskForm(**{**fields, "project": "", "answer": ""}))


async def answer(visit: Visit) -> Html | Go | Refusal:
    """Let the application in, or tell it that nobody did."""
    asks: AskForm = visit.form
    if visit.means.client_documents is None:
        return NOT_FOUND
    client = await _checked(visit, asks)
    if isinstance(client, _Wrong):
        return await _page(visit, asks)
    back = {"state": asks.state, "iss": visit.origin}
    if asks.answer != "allow":
        return Go(with_answer(asks.redirect_uri, error="access_denied", **back))
    login = visit.call.person.login
    code = None
    if asks.project.isascii() and asks.project.isdigit() and len(asks.project) < 18:
        code = await OAuthStore(visit.means.database).allow(
            client,
            login.account_id,
            int(asks.project),
            redirect_uri=asks.redirect_uri,
            challenge=asks.code_challenge,
            resource=visit.origin + "/mcp",
            actor=login.email_key,
        )
    if code is None:
        return await _page(visit, asks, wrong=_Wrong(NO_SUCH_PROJECT_HERE))
    return Go(with_answer(asks.redirect_uri, code=code, **back))


async def _page(visit: Visit, asks: AskForm, wrong: _Wrong | None = None) -> Html | Refusal:
    if visit.means.client_documents is None:
        return NOT_FOUND
    client = wrong or await _checked(visit, asks)
    if isinstance(client, _Wrong):
        return Html("account/authorize", {"wrong": client.reason}, status=400, secret=True)
    person = visit.call.person.login
    context = {
        "wrong": None,
        "client": client,
        "host": redirect_host(asks.redirect_uri),
        "by_document": urlsplit(client.id).netloc if is_document(client.id) else None,
        "asks": {
            name: getattr(asks, name)
            for name in AskForm.__struct_fields__
            if name not in ("project", "answer")
        },
        "projects": await OAuthStore(visit.means.database).projects(person.account_id),
        "email": person.email,
        "unused_days": REFRESH_TERM.days,
    }
    return Html("account/authorize", context, secret=True, form_targets=_targets(asks.redirect_uri))


def _targets(redirect_uri: str) -> str:
    """Where the answer may lead: browsers hold the policy of forms against each redirect that follows."""
    scheme = urlsplit(redirect_uri).scheme
    return "https: http:" if scheme in ("https", "http") else f"https: {scheme}:"


async def _checked(visit: Visit, asks: AskForm) -> OAuthClient | _Wrong:
    """The application that asks, if its request may be put to somebody."""
    client = await _client(visit, asks.client_id)
    if isinstance(client, _Wrong):
        return client
    if not any(same_redirect(uri, asks.redirect_uri) for uri in client.redirect_uris):
        return _Wrong(FOREIGN_REDIRECT)
    if asks.response_type != "code":
        return _Wrong(NO_CODE)
    if asks.code_challenge_method != "S256" or not is_challenge(asks.code_challenge):
        return _Wrong(NO_CHALLENGE)
    if not names_resource(asks.resource, visit.origin + "/mcp"):
        return _Wrong(FOREIGN_RESOURCE)
    return _Wrong(LONG_STATE) if len(asks.state) > STATE_MAX else client


async def _client(visit: Visit, client_id: str) -> OAuthClient | _Wrong:
    documents = visit.means.client_documents
    if documents is None or not is_document(client_id):
        client = await OAuthStore(visit.means.database).client(client_id)
        return client or _Wrong(UNKNOWN_CLIENT)
    body = await documents.read(client_id)
    if body is None:
        return _Wrong(f"{UNREAD_CLIENT}.")
    try:
        return document_client(client_id, body)
    except WrongClient as error:
        return _Wrong(f"{UNREAD_CLIENT}: {error}.")


PAGES: Final = (
    PageRoute("GET", "/oauth/authorize", "SIGNED_IN", page),
    PageRoute("POST", "/oauth/authorize", "SIGNED_IN", answer, form=AskForm),
)
