"""The client that `@modelcontextprotocol/conformance` starts: our server object, driven as each scenario wants it."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from spindle.llm import http
from spindle.plugins.mcp import McpError, Message
from spindle.plugins.mcp.authorization import resource_metadata
from spindle.plugins.mcp.connection import ServerTransport
from spindle.plugins.mcp.elicitation import with_defaults
from spindle.plugins.mcp.oauth import ServerLogin
from spindle.plugins.mcp.server_config import ServerConfig, Servers
from spindle.plugins.mcp.shared_server import Server
from spindle.plugins.mcp.streamable import HttpTransport


class Walker:
    """A browser in which the user agrees to everything."""

    redirect_uri = "http://127.0.0.1:39871/callback"

    async def visit(self, url: str) -> Mapping[str, str]:
        async with await http.request("GET", url, {}) as response:
            return dict(parse_qsl(urlsplit(response.headers["location"]).query))


class ProbedServer(Server):
    def _make_transport(self, config: ServerConfig) -> ServerTransport:
        return HttpTransport(config, ServerLogin(config, Walker()))


async def agree(params: Message) -> Message:
    return {"action": "accept", "content": with_defaults(params.get("requestedSchema"), _answers(params))}


def _answers(params: Message) -> Message:
    schema = params.get("requestedSchema") or {}
    kinds = {"string": "text", "boolean": True, "integer": 1, "number": 1}
    required = schema.get("required") or ()
    return {
        n: kinds[p["type"]] for n, p in schema.get("properties", {}).items() if n in required and "default" not in p
    }


async def main() -> None:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    entry: dict[str, Any] = {"url": sys.argv[-1], "timeout": 20}
    if "cimd" in scenario:
        entry["oauth"] = {"clientMetadataUrl": "https://conformance-test.local/client-metadata.json"}
    if "client_id" in context:
        entry["oauth"] = {
            "clientId": context["client_id"],
            "clientSecret": context.get("client_secret"),
            "privateKey": context.get("private_key_pem"),
            "assertion": context.get("valid_jwt"),
        }
    if "idp_id_token" in context:
        entry["oauth"]["identityProvider"] = {
            "tokenEndpoint": context["idp_token_endpoint"],
            "clientId": context["idp_client_id"],
            "idToken": context["idp_id_token"],
        }
    if any(entry.get("oauth", {}).get(name) for name in ("clientSecret", "privateKey", "assertion")):
        found = await resource_metadata(sys.argv[-1], None)  # a user would know where the secret belongs
        entry["oauth"]["issuer"] = None if found is None else found.authorization_servers[0]
    servers = Servers()
    servers.add({"probed": entry}, "probe")
    server = ProbedServer(servers.configs["probed"], os.getcwd(), lambda: ())
    try:
        await drive(server, scenario, context)
    finally:
        await server.close()


async def drive(server: Server, scenario: str, context: dict[str, Any]) -> None:
    await server.connected()
    assert server.listing is not None
    tools = {tool.name: tool for tool in server.listing.tools}
    if "toolCalls" in context:
        for call in context["toolCalls"]:
            await server.call(call["name"], call["arguments"])
        return
    if scenario == "json-schema-2020-12-preservation":
        focal = next(tool for tool in tools.values() if "$defs" in tool.schema)
        echo = next(tool for tool in tools.values() if "schema" in tool.schema["properties"])
        await server.call(echo.name, {"schema": focal.schema})
        return
    if scenario == "json-schema-ref-no-deref":
        return  # listing is all; the tool has no answer
    if scenario == "http-standard-headers":
        for item in (await server.get("resources/list", {})).get("resources", []):
            await server.get("resources/read", {"uri": item["uri"]})
        for prompt in (await server.get("prompts/list", {})).get("prompts", []):
            await server.get("prompts/get", {"name": prompt["name"]})
    if scenario == "sep-2322-client-request-state":
        await asyncio.gather(*(server.call(name, _arguments(tool.schema), ask=agree) for name, tool in tools.items()))
        return
    for name, tool in tools.items():
        await server.call(name, _arguments(tool.schema), ask=agree)


def _arguments(schema: Message) -> Message:
    kinds = {"number": 1, "integer": 1, "string": "x", "boolean": True, "object": {}, "array": []}
    return {name: kinds.get(part.get("type")) for name, part in schema["properties"].items()}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ["SPINDLE_DIR"] = home
        try:
            asyncio.run(main())
        except McpError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            sys.exit(1)
