"""The chat on a terminal: is there a terminal, a model? Then `spindle.apps.console` takes over."""

import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from spindle.apps.cli.args import Options, UsageError
from spindle.base.agent_dir import agent_dir

if TYPE_CHECKING:
    from spindle.apps.console.talk import Talk
    from spindle.client import RpcClient


def wanted(options: Options) -> bool:
    """Say whether a command line without a mode means the chat: on a terminal, without options for the output."""
    return not (options.output or options.json_schema) and _is_terminal()


def _is_terminal() -> bool:
    return bool(sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty())


def run_chat(options: Options) -> NoReturn:
    """Talk until the user leaves, then end the process. Raises `UsageError`, `AgentError`, `SessionError`."""
    if not _is_terminal():
        raise UsageError('The chat needs a terminal; use spindle -p "…" to ask something from a script')
    from spindle.apps.cli.assemble import run_and_exit

    run_and_exit(_attach(options) if options.attach is not None else _talk(options))


async def _talk(options: Options) -> int:
    from msgspec.structs import replace

    from spindle.apps.cli.first_minute import assemble_with_model
    from spindle.apps.cli.one_shot import gather
    from spindle.apps.console.link import AgentLink
    from spindle.client import RpcClient
    from spindle.shapes.codec import to_builtins

    messages, images = gather(options)
    resume = options.resume
    while True:
        chosen = replace(options, resume=False)  # the chat itself lets the user choose
        agent = await assemble_with_model(chosen, mode="chat")
        settings = agent.resources.settings
        talk = _new(RpcClient(AgentLink(agent)), agent=agent, settings=settings)
        talk.resumes = options.resume_run
        if not resume:
            return await _run(talk, messages, to_builtins(images))
        code, resume = await _run(talk, resume=True), False
        if talk.elsewhere is None:
            return code
        options = replace(options, session=talk.elsewhere)


async def _attach(options: Options) -> int:
    from spindle.apps.cli.serving import remote_token
    from spindle.client import RpcClient, RpcError
    from spindle.client.transport import websocket_url
    from spindle.resources.loader import load_resources

    url, _, token = str(options.attach).partition("#token=")
    settings = load_resources(os.getcwd()).settings

    def connect(session: str | None) -> RpcClient:
        try:
            target = websocket_url(url, "/rpc", **({"session": session} if session else {}))
            return RpcClient(target, token=token or remote_token(options), updates="delta")
        except ValueError:
            raise UsageError(f'--attach needs the address of a server, as ws://127.0.0.1:3838, not "{url}"') from None

    session, resume, messages = options.session, options.resume, options.messages
    try:
        if options.continue_recent:
            async with connect(None) as client:
                session = next((found["id"] for found in await client.list_sessions()), None)
        while True:  # the user may go from one session to the next
            talk = _new(connect(session), url=url, settings=settings)
            code = await _run(talk, () if resume else messages, resume=resume)
            if talk.elsewhere is None:
                return code
            session, resume, messages = talk.elsewhere, False, messages if resume else []
    except (RpcError, ImportError) as error:
        raise UsageError(f"--attach: {error}", 1) from None


def _new(client: "RpcClient", **how: Any) -> "Talk":
    from spindle.apps.console.talk import Talk

    return Talk(client, history=agent_dir() / "chat_history", **how)


async def _run(talk: "Talk", *messages: Any, resume: bool = False) -> int:
    """Start the client, talk, and close it; a signal ends the talk as the user would."""
    from spindle.programs.stop_signals import on_stop

    caught: list[int] = []

    def stop(number: int) -> None:
        caught.append(128 + number)
        talk.editor.close()

    on_stop((signal.SIGTERM, signal.SIGHUP), stop)
    async with talk.client:
        code = await talk.run(*messages, resume=resume)
    return caught[0] if caught else code
