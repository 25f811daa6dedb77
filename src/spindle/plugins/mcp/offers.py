"""What servers offer besides tools, as one session has it: resources, which tools read, and prompts for the user."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from spindle.agent import AgentError
from spindle.agent.hooks import Hooks
from spindle.agent.session import AgentSession
from spindle.plugins.mcp import McpError, Message
from spindle.plugins.mcp.shared_server import RemotePrompt, Server
from spindle.plugins.mcp.tool_names import tool_name
from spindle.resources.sources import CommandItem, SourceInfo
from spindle.shapes.builtin_tools import Effect
from spindle.shapes.codec import encode
from spindle.shapes.events import ExtensionError, ToolResult
from spindle.shapes.messages import Image, Text, text_of
from spindle.tools.base import Tool, ToolContext, ToolError, arguments

_RESOURCES: Final = "resources"
"""Stands for the resources of a server in the names that permissions see."""


def _reading(server: Server) -> Effect | None:
    """Return the effect of reading from a server: one from a project could do anything."""
    return "reads" if server.config.trusted else None


def offers_resources(agent: AgentSession, server: Server) -> bool:
    """Say whether the resources of a server may be known to the model at all."""
    return server.config.exposure != "hidden" and not agent.toolbox.refuses(tool_name(server.name, _RESOURCES))


async def ask_user(agent: AgentSession, server: str, call_id: str | None, params: Message) -> Message:
    """Answer a question of a server, which the user is asked."""
    from spindle.plugins.mcp.elicitation import elicit

    confirm = partial(agent.confirm, "confirm", tool_call_id=call_id)
    return await elicit(server, params, agent.dialogs, confirm, call_id)


class ServerResources:
    def __init__(self, agent: AgentSession, servers: Mapping[str, Server]) -> None:
        self._agent = agent
        self._servers = servers

    def tools(self) -> list[Tool]:
        """Return the tools by which a model reads resources."""
        one_or_all = arguments(server="Name of the server; without it, of all")
        address = arguments(
            "server", "uri", server="Name of the server", uri="Address of the resource, as it was listed"
        )
        tool = partial(Tool, effect="reads", also=self._meant)
        return [
            tool(
                "list_mcp_resources",
                "List the resources that MCP servers offer: files, records and other data to read.",
                one_or_all,
                partial(self._list, "resources/list", "resources"),
            ),
            tool(
                "list_mcp_resource_templates",
                "List the templates of resource addresses that MCP servers offer.",
                one_or_all,
                partial(self._list, "resources/templates/list", "resourceTemplates"),
            ),
            tool("read_mcp_resource", "Read a resource of an MCP server.", address, self._read),
        ]

    def _meant(self, args: Any) -> tuple[str, Effect | None] | None:
        """Return the name by which permissions know the server of a call, and the effect of reading from it."""
        server = self._servers.get(args.get("server") or "") if isinstance(args, dict) else None
        return None if server is None else (tool_name(server.name, _RESOURCES), _reading(server))

    def _is_free(self, server: Server) -> bool:
        """Say whether no rule is against listing the resources of a server."""
        decision = self._agent.approval.state(tool_name(server.name, _RESOURCES), {}, _reading(server)).decision
        return decision is None or decision.behavior == "allow" or (decision.behavior == "ask" and not decision.rule)

    async def _list(self, method: str, key: str, call_id: str, args: Any, context: ToolContext) -> ToolResult:
        from spindle.plugins.mcp.connection import pages
        from spindle.plugins.mcp.content import cut

        named = args.get("server")
        servers = [self._named(named)] if named else [s for s in self._servers.values() if self._is_free(s)]
        listed: list[Any] = []
        problems = []

        async def ask(server: Server) -> None:
            try:
                items = await pages(server.get, method, key)
            except McpError as error:
                problems.append(str(error))
            else:
                listed.extend({"server": server.name, **item} for item in items if isinstance(item, dict))

        known = [server for server in servers if server.listing is None or server.listing.resources]
        asked = [server for server in known if offers_resources(self._agent, server)]
        await asyncio.gather(*map(ask, asked))
        if problems and not listed:
            raise ToolError("\n".join(problems))
        return ToolResult(cut([Text("\n".join([encode({key: listed}).decode(), *problems]))]))

    async def _read(self, call_id: str, args: Any, context: ToolContext) -> ToolResult:
        from spindle.plugins.mcp.content import cut, resource

        server = self._named(args["server"])
        try:
            answer = await server.get(
                "resources/read", {"uri": args["uri"]}, partial(ask_user, self._agent, server.name, call_id)
            )
        except McpError as error:
            raise ToolError(str(error)) from None
        contents = answer.get("contents")
        blocks: list[Text | Image] = []
        for item in contents if isinstance(contents, list) else ():
            blocks += await resource(item, context)
        return ToolResult(cut(blocks) or [Text("(empty)")])

    def _named(self, name: str) -> Server:
        """Return the server of that name, if the model may know its resources. Raises `ToolError`."""
        known = {one.name: one for one in self._servers.values() if offers_resources(self._agent, one)}
        if (server := known.get(name)) is None:
            raise ToolError(f'There is no MCP server "{name}". There are: {", ".join(known)}')
        return server


class ServerPrompts(Hooks):
    """Prompts of servers are slash commands: `/mcp__SERVER__PROMPT ARGUMENTS`."""

    def __init__(self, agent: AgentSession, servers: Mapping[str, Server]) -> None:
        self._agent = agent
        self._servers = servers

    def by_command(self) -> dict[str, tuple[Server, RemotePrompt]]:
        """Return the prompts by the names of their slash commands."""
        return {
            f"mcp__{server.name}__{'_'.join(prompt.name.split())}": (server, prompt)
            for server in self._servers.values()
            for prompt in (server.listing.prompts if server.listing else ())
        }

    def commands(self) -> list[Any]:
        items = []
        for name, (server, prompt) in self.by_command().items():
            info = SourceInfo(server.config.source, "mcp", "user" if server.config.trusted else "project", "top-level")
            hint = " ".join(f"<{a}>" if a in prompt.required else f"[{a}]" for a in prompt.arguments)
            items.append(CommandItem.of(name, "prompt", info, f"{prompt.description} {hint}".strip()))
        return items

    @property
    def wants_input(self) -> bool:
        return any(server.listing and server.listing.prompts for server in self._servers.values())

    async def input(
        self, text: str, images: list[Image], source: str, behavior: str | None
    ) -> tuple[str, list[Image]] | None:
        if not text.startswith("/mcp__"):
            return text, images
        name, *rest = text[1:].split(maxsplit=1)
        found = self.by_command().get(name)
        if found is None:
            return text, images
        try:
            decision = self._agent.approval.state(
                tool_name(found[0].name, found[1].name), {}, _reading(found[0])
            ).decision
            if decision is not None and decision.behavior == "deny":
                why = f"rule {decision.rule} of the {decision.source}" if decision.rule else decision.reason
                raise McpError(f"The prompt {name} is refused by {why}")
            made, pictures = await self._prompt(*found, "".join(rest))
        except McpError as error:
            if behavior is None:
                raise AgentError(str(error)) from None
            self._agent.publish(ExtensionError("", "mcp", str(error)))
            return None
        return made, [*images, *pictures]

    async def _prompt(self, server: Server, prompt: RemotePrompt, rest: str) -> tuple[str, list[Image]]:
        """Return the text and images of a prompt. Raises `McpError`."""
        from spindle.plugins.mcp.content import blocks_of, cut

        given = _prompt_arguments(prompt, rest)
        params = {"name": prompt.name, **({"arguments": given} if given else {})}
        answer = await server.get("prompts/get", params, partial(ask_user, self._agent, server.name, None))
        messages = answer.get("messages")
        blocks: list[Text | Image] = []
        for message in messages if isinstance(messages, list) else ():
            if isinstance(message, dict):
                if message.get("role") == "assistant":
                    blocks.append(Text("Assistant:"))
                blocks += await blocks_of([message.get("content")])
        # The first line is ours, so that no text of a server can be a slash command.
        blocks = cut(blocks)
        head = f'Prompt "{prompt.name}" of the MCP server "{server.name}":'
        return "\n\n".join([head, text_of(blocks, "\n\n")]), [b for b in blocks if isinstance(b, Image)]


def _prompt_arguments(prompt: RemotePrompt, rest: str) -> dict[str, str]:
    """Read `name=value` and values in order, with quotes as in a shell. Raises `McpError`."""
    import shlex

    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    given: dict[str, str] = {}
    plain = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in prompt.arguments:
            given[name] = value
        else:
            plain.append(word)
    free = [name for name in prompt.arguments if name not in given]
    if len(plain) > len(free) and free:
        plain = [*plain[: len(free) - 1], " ".join(plain[len(free) - 1 :])]
    given |= dict(zip(free, plain, strict=False))
    if missing := [name for name in prompt.required if name not in given]:
        raise McpError(f"/mcp__…__{prompt.name} needs {', '.join(missing)}")
    return given
