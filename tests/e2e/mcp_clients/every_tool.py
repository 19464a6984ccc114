"""Lists and calls every tool over Streamable HTTP with a bearer header, as an agent in Python would.

`python every_tool.py mcp|mcp1|fastmcp URL TOKEN CALLS`: CALLS is [[name, arguments], ...]; prints JSON.
Runs in an environment of its own (requirements.txt, mcp1.txt), never in the one of the tests.
"""

import asyncio
import json
import sys


def told(result):
    structured = getattr(result, "structured_content", None)
    if structured is None:
        structured = getattr(result, "structuredContent", None)
    failed = getattr(result, "is_error", None)
    if failed is None:
        failed = result.isError
    return {"isError": failed, "structuredContent": structured, "text": result.content[0].text}


async def with_mcp(url, token, calls):
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
    async with http, Client(streamable_http_client(url, http_client=http)) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        return tools, [told(await client.call_tool(name, arguments)) for name, arguments in calls]


async def with_mcp1(url, token, calls):
    from datetime import timedelta

    from mcp import ClientSession
    from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

    http = create_mcp_http_client(headers={"Authorization": f"Bearer {token}"})
    async with (
        http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write, read_timeout_seconds=timedelta(seconds=60)) as session,
    ):
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        return tools, [told(await session.call_tool(name, arguments)) for name, arguments in calls]


async def with_fastmcp(url, token, calls):
    from fastmcp import Client
    from fastmcp.client.auth import BearerAuth

    async with Client(url, auth=BearerAuth(token)) as client:
        tools = [tool.name for tool in await client.list_tools()]
        answers = [
            told(await client.call_tool(name, arguments, raise_on_error=False)) for name, arguments in calls
        ]
        return tools, answers


async def main():
    kind, url, token, calls = sys.argv[1:]
    ask = {"mcp": with_mcp, "mcp1": with_mcp1, "fastmcp": with_fastmcp}[kind]
    tools, answers = await ask(url, token, json.loads(calls))
    print(json.dumps({"tools": tools, "answers": answers}))


asyncio.run(main())
