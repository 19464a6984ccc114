"""Connects by OAuth as an assistant does, with the official SDK; the person at the browser is played here.

`python sign_in.py URL E-MAIL PASSWORD`: registers, is led to the page of consent, signs in, consents,
exchanges the code, calls a tool, renews as after its hour, calls again; prints JSON.
Runs in an environment of its own (mcp1.txt or requirements.txt), never in the one of the tests.
"""

import asyncio
import json
import re
import sys
from html import unescape
from urllib.parse import parse_qs, urljoin, urlsplit

from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.shared import auth
from mcp.shared.auth import OAuthClientMetadata

try:
    import httpx2 as httpx
except ImportError:
    # The first generation.
    import httpx

REDIRECT = "http://127.0.0.1:33418/callback"


class Memory:
    """Where the client keeps what it was given."""

    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


class Person:
    """Somebody with a browser who signs in and consents."""

    def __init__(self, url, email, password):
        self.origin, self.email, self.password = url, email, password
        self.answer = None

    async def open(self, address):
        headers = {"Origin": self.origin}
        async with httpx.AsyncClient(base_url=self.origin, headers=headers, timeout=60) as browser:
            led = await browser.get(address)
            login = urljoin(self.origin, led.headers["location"])
            back = parse_qs(urlsplit(login).query)["next"][0]
            form = {"email": self.email, "password": self.password, "next": back}
            led = await browser.post("/login", data=form)
            page = await browser.get(led.headers["location"])
            page.raise_for_status()
            hidden = re.findall('type="hidden" name="([^"]*)" value="([^"]*)"', page.text)
            form = {name: unescape(value) for name, value in hidden}
            form["project"] = re.search('name="project" value="([^"]*)"', page.text)[1]
            form["answer"] = "allow"
            led = await browser.post("/oauth/authorize", data=form)
            self.answer = parse_qs(urlsplit(led.headers["location"]).query)

    async def came_back(self):
        fields = {name: self.answer[name][0] for name in ("code", "state", "iss")}
        made = getattr(auth, "AuthorizationCodeResult", None)
        return (fields["code"], fields["state"]) if made is None else made(**fields)


async def tools_of(url, provider):
    async with (
        create_mcp_http_client(auth=provider) as http,
        streamable_http_client(url, http_client=http) as (reading, writing, *_),
        ClientSession(reading, writing) as session,
    ):
        await session.initialize()
        project = await session.call_tool("get_project", {})
        failed = project.is_error if hasattr(project, "is_error") else project.isError
        return [len((await session.list_tools()).tools), failed]


async def main(url, email, password):
    person, memory = Person(url, email, password), Memory()
    metadata = OAuthClientMetadata(client_name="SDK", redirect_uris=[REDIRECT])
    provider = OAuthClientProvider(f"{url}/mcp", metadata, memory, person.open, person.came_back)
    first = await tools_of(f"{url}/mcp", provider)
    granted = memory.tokens
    # As after its hour: the client renews before it asks.
    provider.context.token_expiry_time = 1.0
    second = await tools_of(f"{url}/mcp", provider)
    renewed = memory.tokens
    print(
        json.dumps(
            {
                "calls": [first, second],
                "scope": granted.scope,
                "tokens": [granted.access_token, renewed.access_token],
                "refresh_tokens": [granted.refresh_token, renewed.refresh_token],
                "client_id": memory.client.client_id,
            }
        )
    )


asyncio.run(main(*sys.argv[1:]))
