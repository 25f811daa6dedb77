"""Print and JSON mode: gather the input, run the messages one after another, end."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from msgspec import UNSET
from msgspec.structs import replace

from spindle.agent.hooks import NeverFull
from spindle.agent.run.options import RunOptions
from spindle.agent.run.result import exit_code, why
from spindle.agent.session import AgentSession
from spindle.apps.cli import tell, warn
from spindle.apps.cli.args import Options, UsageError, unknown_options
from spindle.apps.cli.assemble import assemble, result_schema, run_and_exit, take_stdout
from spindle.base.agent_dir import expand_home
from spindle.base.limits import STDIN_PATIENCE
from spindle.base.spelling import did_you_mean
from spindle.programs.stop_signals import on_stop
from spindle.shapes.builtin_tools import BUILTIN_TOOLS, TOOLS
from spindle.shapes.codec import encode
from spindle.shapes.events import Event, ExtensionError, Notice
from spindle.shapes.messages import Image, Text
from spindle.shapes.run_result import RunResult
from spindle.shapes.tool_lists import NEIGHBOURS_TOOLS, bare, unmatched

if TYPE_CHECKING:
    from spindle.apps.cli.progress import RunProgress
    from spindle.apps.cli.streamed import Streamed
    from spindle.protocol.dialect import Dialect

# -- the input: piped text, @files, and the words themselves -------------------------------------


_MOST_BYTES = 64 << 20
"""Read at most so much of a file: a device may have no end."""
_Inputs: TypeAlias = tuple[list[str], list[Image]]
"""The prompts in order, and images that go with the first."""


def gather(options: Options) -> _Inputs:
    """Put the first message together from piped text, files and words, without separators. Raises `UsageError`."""
    first = ""
    if sys.stdin is not None and not sys.stdin.isatty():
        first = _read_stdin().decode("utf-8", "replace").strip()
    images: list[Image] = []
    for name in options.files:
        text, image = _read_file(os.path.abspath(expand_home(name)))
        first += text
        images += [image] if image else []
    first += "".join(options.messages[:1])
    return [*filter(None, [first]), *options.messages[1:]], images


def _something_to_do(options: Options) -> _Inputs:
    messages, images = gather(options)
    if not messages and not options.resume_run:
        what = "Nothing to do: give a message, pipe text in, or use --mode rpc (see --help)"
        slip = unknown_options(options, ())  # extensions are not asked for it: there is nothing to do
        raise UsageError(f"{slip}{'' if slip.endswith('?') else '.'} {what}" if slip else what)
    return messages, images


def _read_stdin() -> bytes:
    import threading

    # The caller may have left a pipe open, without ever writing to it.
    advice = "Reading piped input until its end; if there is none, add </dev/null"
    patience = threading.Timer(STDIN_PATIENCE, tell, ("Note", advice))
    patience.daemon = True
    patience.start()
    try:
        return sys.stdin.buffer.read()
    finally:
        patience.cancel()


def _read_file(path: str) -> tuple[str, Image | None]:
    from spindle.tools.images import SNIFF_BYTES, ImageBounds, prepare_image, sniff_image
    from spindle.workspace.disk import Cancel

    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"File not found: {path}") from None
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror or error}") from None
    if len(data) > _MOST_BYTES:
        raise UsageError(f"Cannot send {path}: it has more than {_MOST_BYTES >> 20} MiB")
    if not data:
        return "", None
    if mime_type := sniff_image(data[:SNIFF_BYTES]):
        image, notes = prepare_image(data, mime_type, ImageBounds(), True, Cancel())
        if image is None:
            warn(f"{path} is not sent: {' '.join(notes).strip('[]')}")
        return f'<file name="{path}">{" ".join(notes)}</file>\n', image
    return f'<file name="{path}">\n{data.decode("utf-8", "replace")}\n</file>\n', None


# -- the run -------------------------------------------------------------------------------------


async def _until_signal(work: Coroutine[Any, Any, int], caught: list[int]) -> int:
    """Return the exit code of the work; a signal, which is put into `caught`, cancels it and decides the code."""
    task = asyncio.create_task(work)

    def stop(number: int) -> None:
        caught.append(number)
        task.cancel()

    on_stop((signal.SIGTERM, signal.SIGHUP, signal.SIGINT), stop)
    try:
        return await task
    except asyncio.CancelledError:
        return 128 + caught[0] if caught else 1


async def _play(
    options: Options, inputs: _Inputs, mode: str, ready: Callable[[AgentSession], None], caught: list[int]
) -> tuple[AgentSession, list[RunResult]]:
    """Make the agent, call `ready`, and run every message to its end. The agent is closed either way.

    Returns the agent, and the result of each message that the model had to answer.
    """
    results: list[RunResult] = []
    wishes = RunOptions(schema=result_schema(options))
    make = assemble
    if mode == "print" and sys.stdin.isatty() and sys.stderr.isatty():
        from spindle.apps.cli.first_minute import assemble_with_model as make
    agent = await make(replace(options, unattended=True), mode=mode)
    try:
        ready(agent)
        agent.subscribe(_ErrorTeller())
        await agent.begin()
        agent.subscribe(_NoticeTeller())
        await agent.welcome.trust_answered()  # only a person at a terminal is asked
        messages, images = inputs
        _check_tools(options, agent)
        _check_images(images, agent)
        waiting: list[str | None] = [None] if options.resume_run else []
        for message in [*waiting, *messages]:
            if agent.shutdown_requested.is_set():
                break
            if message is None:
                run = await agent.resume_run()
            else:
                run = await agent.submit(message, images, source=mode, options=wishes)
                images = []
            result = await run.result()
            await agent.finished()
            if run.disposition != "handled":
                results.append(result)
    finally:
        await agent.close()
        if signal.SIGINT in caught:
            tell("Stopped", _what_was_kept(agent, options))
    return agent, results


def _check_tools(options: Options, agent: AgentSession) -> None:
    """Raise `UsageError` for a tool that does not exist. Extensions have added theirs by now."""
    tools = [tool.name for tool in agent.toolbox.all()]
    for entry in unmatched([*(options.tools or ()), *options.exclude_tools], tools):
        name = bare(entry)
        if name not in (*BUILTIN_TOOLS, *TOOLS, *NEIGHBOURS_TOOLS) and not agent.mcp_servers.serves(name):
            raise UsageError(f'Unknown tool "{name}".{did_you_mean(name, tools)} There are: {", ".join(tools)}')


def _check_images(images: Sequence[Image], agent: AgentSession) -> None:
    model = agent.model
    if images and agent.resources.settings.images.block_images:
        warn("Images are not sent: the setting images.blockImages is on")
    elif images and model is not None and "image" not in model.input:
        warn(f"Images are not sent: {model.provider}/{model.id} takes none")


def _what_was_kept(agent: AgentSession, options: Options) -> str:
    if way := _way_on(agent, options):
        return f"the conversation so far is kept. {way}"
    return "nothing was kept" + (" (--no-session)" if options.no_session else "")


def _way_on(agent: AgentSession, options: Options) -> str | None:
    """Say how to go on with the session; None if it is not on disk."""
    import shlex

    path = agent.session.path
    if path is None or not os.path.exists(path):
        return None
    usual = options.session is None and options.session_dir is None
    return f"Go on with: spindle {'-c' if usual else f'--session {shlex.quote(str(path))}'} -p MESSAGE"


class _ErrorTeller(NeverFull):
    """A listener that prints errors outside of the run on stderr."""

    def put(self, event: Event) -> None:
        # Errors of writing the session, and of loading extensions, were printed when they occurred.
        if isinstance(event, ExtensionError) and event.event not in ("session_write", "load"):
            what = f"Extension error ({event.extension_path})" if event.extension_path else "Error"
            print(f"{what}: {event.error}", file=sys.stderr)


class _NoticeTeller(NeverFull):
    """A listener that prints warnings on stderr. Those of the start were printed when they occurred."""

    def put(self, event: Event) -> None:
        if isinstance(event, Notice) and event.level in ("warning", "error"):
            warn(event.message)


# -- print: the last answer and nothing else -----------------------------------------------------


def run_print(options: Options) -> NoReturn:
    """`spindle -p`: run the messages, then end the process. Raises `UsageError`."""
    caught: list[int] = []
    run_and_exit(_until_signal(_print(options, _something_to_do(options), caught), caught))


async def _print(options: Options, inputs: _Inputs, caught: list[int]) -> int:
    out = take_stdout()
    # A person at a terminal reads the answer as it comes; a program gets the last answer and nothing else.
    streams = out.isatty() and not (options.output or options.json_schema)
    shown: list[RunProgress | Streamed] = []

    def show(agent: AgentSession) -> None:
        if streams:
            from spindle.apps.cli.streamed import Streamed

            shown.append(Streamed(agent, out))
        if (live := sys.stderr.isatty() and not streams) or options.verbose:
            from spindle.apps.cli.progress import RunProgress

            shown.append(RunProgress(agent, live=live, verbose=options.verbose))
        for progress in shown:
            progress.begin()

    try:
        agent, results = await _play(options, inputs, "print", show, caught)
    finally:
        for progress in reversed(shown):
            progress.end()
    code = _exit_code(results)
    result = results[-1] if results else None
    _remark(options, agent, result)
    if (lines := _lines(options, agent, result, streams=streams)) is None:
        return code
    try:
        with out:
            out.writelines(line + "\n" for line in lines)
    except OSError as error:
        tell("Error", f"Cannot write the answer: {error.strerror}")
        return 1
    return code


def _remark(options: Options, agent: AgentSession, result: RunResult | None) -> None:
    """Say on stderr why the last run did not end well."""
    if result is not None and result.status != "ok":
        way = _way_on(agent, options) if result.status == "limit" else None
        print(why(result) + (f". {way}" if way else ""), file=sys.stderr)


def _lines(options: Options, agent: AgentSession, result: RunResult | None, *, streams: bool) -> list[str] | None:
    """Return the lines for stdout; None if there is nothing to print, or the answer was printed while it came."""
    if options.output == "json":
        return [encode(result).decode()] if result is not None else []
    if result is not None and result.value is not UNSET:
        return [encode(result.value).decode()]
    answer = agent.conversation.last_assistant()
    if streams or answer is None or answer.stop_reason in ("error", "aborted"):
        return None
    return [block.text for block in answer.content if isinstance(block, Text)]


def _exit_code(results: Sequence[RunResult]) -> int:
    """Return the code of the first run that did not end well."""
    return next((code for result in results if (code := exit_code(result))), 0)


# -- JSON: the session's header, then every event, one object a line -----------------------------


class _SessionLine(Event, tag="session"):
    """The header of the session file."""

    version: int
    id: str
    timestamp: str
    cwd: str
    parent_session: str | None = None


def run_json(options: Options) -> NoReturn:
    """`spindle --mode json`: run the messages, then end the process. Raises `UsageError`."""
    from spindle.apps.cli.serving import chosen_dialect

    caught: list[int] = []
    run_and_exit(_until_signal(_stream(options, chosen_dialect(options), _something_to_do(options), caught), caught))


async def _stream(options: Options, dialect: "Dialect", inputs: _Inputs, caught: list[int]) -> int:

    from spindle.base.limits import OUTPUT_DRAIN
    from spindle.protocol.outbox import Outbox
    from spindle.protocol.render import Renderer
    from spindle.wires.pipe.stdio import StdioWire

    wire = StdioWire.claim()
    # Errors of extensions go to stderr: here stdout has the events of the run and nothing else.
    dialect = replace(dialect, silent=dialect.silent | {"extension_error"})
    outbox = Outbox(Renderer(dialect, options.updates or "delta"))
    work = asyncio.current_task()
    assert work is not None

    def give_up() -> None:
        tell("Error", "Cannot write to stdout any more")
        work.cancel()

    wire.attach(outbox, lambda error: give_up())

    def ready(agent: AgentSession) -> None:
        header = agent.session.header
        outbox.put(
            _SessionLine(int(header.version), str(header.id), header.timestamp, header.cwd, header.parent_session)
        )
        agent.subscribe(outbox)

    try:
        _, results = await _play(options, inputs, "json", ready, caught)
    finally:
        await wire.drain(OUTPUT_DRAIN)
        wire.close()
    return _exit_code(results)
