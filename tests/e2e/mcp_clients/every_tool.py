"""Lists and calls every tool over Streamable HTTP with a bearer header, as an agent in Python would; gets
each prompt and reads a resource.

`python every_tool.py mcp|mcp1|fastmcp URL TOKEN CALLS PROMPTS URI`: CALLS is [[name, arguments], ...],
PROMPTS the same of prompts; prints JSON.
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


def texts(result):
    return [message.content.text for message in result.messages]


async def with_mcp(url, token, calls, prompts, uri):
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
    async with http, Client(streamable_http_client(url, http_client=http)) as client:
        return {
            "protocol": client.protocol_version,
            "tools": [tool.name for tool in (await client.list_tools()).tools],
            "answers": [told(await client.call_tool(name, arguments)) for name, arguments in calls],
            "prompts": [prompt.name for prompt in (await client.list_prompts()).prompts],
            "messages": [texts(await client.get_prompt(name, arguments)) for name, arguments in prompts],
            "templates": [
                each.uri_template for each in (await client.list_resource_templates()).resource_templates
            ],
            "resources": [str(each.uri) for each in (await client.list_resources()).resources],
            "read": (await client.read_resource(uri)).contents[0].text if uri else None,
        }


async def with_mcp1(url, token, calls, prompts, uri):
    from datetime import timedelta

    from mcp import ClientSession
    from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
    from pydantic import AnyUrl

    http = create_mcp_http_client(headers={"Authorization": f"Bearer {token}"})
    async with (
        http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write, read_timeout_seconds=timedelta(seconds=60)) as session,
    ):
        met = await session.initialize()
        return {
            "protocol": met.protocolVersion,
            "tools": [tool.name for tool in (await session.list_tools()).tools],
            "answers": [told(await session.call_tool(name, arguments)) for name, arguments in calls],
            "prompts": [prompt.name for prompt in (await session.list_prompts()).prompts],
            "messages": [texts(await session.get_prompt(name, arguments)) for name, arguments in prompts],
            "templates": [
                each.uriTemplate for each in (await session.list_resource_templates()).resourceTemplates
            ],
            "resources": [str(each.uri) for each in (await session.list_resources()).resources],
            "read": (await session.read_resource(AnyUrl(uri))).contents[0].text,
        }


async def with_fastmcp(url, token, calls, prompts, uri):
    from fastmcp import Client
    from fastmcp.client.auth import BearerAuth

    async with Client(url, auth=BearerAuth(token)) as client:
        return {
            "tools": [tool.name for tool in await client.list_tools()],
            "answers": [
                told(await client.call_tool(name, arguments, raise_on_error=False))
                for name, arguments in calls
            ],
            "prompts": [prompt.name for prompt in await client.list_prompts()],
            "messages": [texts(await client.get_prompt(name, arguments)) for name, arguments in prompts],
            "templates": [template_of(each) for each in await client.list_resource_templates()],
            "resources": [str(each.uri) for each in await client.list_resources()],
            "read": (await client.read_resource(uri))[0].text,
        }


def template_of(template):
    return getattr(template, "uri_template", None) or template.uriTemplate


async def main():
    kind, url, token, calls, prompts, uri = sys.argv[1:]
    ask = {"mcp": with_mcp, "mcp1": with_mcp1, "fastmcp": with_fastmcp}[kind]
    print(json.dumps(await ask(url, token, json.loads(calls), json.loads(prompts), uri)))


asyncio.run(main())
