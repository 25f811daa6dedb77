"""`spindle batch`: do many tasks, and show how far they are."""

import asyncio
import os
import re
import signal
from collections.abc import Sequence

from msgspec.structs import asdict, replace

from spindle.agent import AgentError
from spindle.apps.batch.ledger import LedgerError
from spindle.apps.batch.plan import Plan
from spindle.apps.batch.runner import Batch
from spindle.apps.cli import tell, warn
from spindle.apps.cli.args import Option, Options, UsageError, ignored_options, parse_into
from spindle.apps.cli.assemble import (
    agent_options,
    from_here,
    number_of,
    resources_here,
    result_schema,
    run_and_exit,
    take_stdout,
    without_sandbox,
)
from spindle.apps.cli.batch_view import BatchView, make_view
from spindle.apps.cli.process_bounds import allow_files
from spindle.apps.cli.session_choice import choosing_options
from spindle.base import limits
from spindle.programs.stop_signals import on_stop
from spindle.recipe import AgentOptions, extension_flags
from spindle.resources.loader import Resources


class _Options(Options):
    out: str | None = None
    jobs: str = "8"
    workspace: str | None = None
    retries: str = "2"
    timeout: str | None = None
    total_cost: str | None = None
    verify: str | None = None
    container: str | None = None
    start: str | None = None
    stop: str | None = None
    on: str = "local"
    redo: str | None = None
    filter: str | None = None
    json: bool = False


OPTIONS = (
    Option("--out -o", "DIR", "Where results go: results.jsonl, and a folder per task"),
    Option("--jobs -j", "N", "Tasks at a time (8)"),
    Option(
        "--workspace",
        "KIND",
        "none, copy, worktree (the default in a git repository) or clone",
        choices=("none", "copy", "worktree", "clone"),
    ),
    Option("--retries", "N", "Tries after a failure of model, network or machine (2)"),
    Option("--timeout", "SECONDS", "For one attempt"),
    Option("--max-cost", "USD", "For one attempt", "limit", field="run_limits"),
    Option("--total-cost", "USD", "For all attempts, those of earlier runs included"),
    Option("--json-schema", "FILE|JSON", "The result of a task has to fit this JSON Schema"),
    Option("--verify", "CMD", "Shell command in the workspace; its exit code decides ok or failed"),
    Option("--container", "IMAGE", "Let each task work in a new container of this image (docker or podman)"),
    Option("--start", "CMD", "Shell command here before a task that works elsewhere (--exec, {id}: its folder)"),
    Option("--stop", "CMD", "Shell command here after it, whatever has happened"),
    Option("--on", "WHERE", "local, ray, or ray://HOST:PORT"),
    Option("--redo", "WHICH", "Do again what failed, or all", choices=("failed", "all")),
    Option("--filter", "RE", "Only tasks whose id the regular expression finds"),
    Option("--json", help="Print events as JSON, one a line"),
)
_FILES, _FILES_OF_AN_ATTEMPT = 256, 16
"""Files that may be open: in the process, and for each attempt its log, session, connection, and pipes of commands."""
_HEAD = """\
Usage: spindle batch TASKS -o DIR [options]
       spindle batch report DIR [--format text|markdown|html|csv]

TASKS is a JSONL file, a folder of *.md files, or - for JSONL on stdin. Running the same command again goes on where it
was stopped. Ctrl-C once lets running tasks end, twice stops them. Exit code: 0 all ok, 1 some failed, 4 money spent.

"""
_TAIL = (
    "\nOptions of `spindle` about model, tools, MCP servers, permissions and resources, and those that extensions add, "
    "hold for\nevery task; see spindle --help.\n"
)


def run(argv: list[str]) -> int:  # noqa: RET503 - it leaves by itself
    """Carry out `spindle batch <argv>`. Raises `UsageError`."""
    if argv[:1] == ["report"] and not {"-o", "--out"}.intersection(argv):
        from spindle.apps.cli.batch_report import run_report

        return run_report(argv[1:])
    argv = [word for given in argv for word in (("-j", given[2:]) if re.fullmatch(r"-j\d+", given) else (given,))]
    options = parse_into(_Options(), argv, OPTIONS)
    if options.help:
        from spindle.apps.cli.usage import options_help, terminal_width

        print(_HEAD + options_help(OPTIONS, terminal_width()) + _TAIL, end="")
        return 0
    for note in options.notes:
        tell("Note", note)
    if options.offline:
        os.environ["PI_OFFLINE"] = "1"
    resources, plan = _plan(from_here(options))
    try:
        batch = Batch(options.messages[0], options.out or "", plan)
    except AgentError as error:
        raise UsageError(str(error), 1 if isinstance(error, LedgerError) else 2) from None
    if plan.agent.permissions.sandbox.level is None and resources.settings.sandbox.level == "off":
        tell("Note", without_sandbox())
    allow_files(_FILES + plan.jobs * _FILES_OF_AN_ATTEMPT)
    view = make_view(batch, take_stdout(), as_json=options.json)
    batch.tell = view.news
    run_and_exit(_drive(batch, view))


def _plan(options: _Options) -> tuple[Resources, Plan]:
    given = choosing_options(options)
    given += [f"--{name}" for name in ("remote", "export", "attach") if getattr(options, name) is not None]
    given += [*ignored_options(options, "batch"), *(["@files"] if options.files else ())]
    _refuse(given)
    agent = agent_options(options, "batch")
    resources = resources_here(agent.resources)
    if options.unknown:
        asyncio.Runner().run(_check_flags(agent, resources))
    if len(options.messages) != 1 or options.out is None:
        raise UsageError("Say which tasks, and where results go: spindle batch TASKS -o DIR")
    plan = Plan(
        jobs=number_of("jobs", options.jobs, int, 1),
        workspace=options.workspace,
        retries=number_of("retries", options.retries, int, 0),
        timeout=None if options.timeout is None else number_of("timeout", options.timeout, float),
        **asdict(agent.limits),
        total_cost=None if options.total_cost is None else number_of("total-cost", options.total_cost, float),
        schema=result_schema(options),
        verify=options.verify,
        container=options.container,
        start=options.start,
        stop=options.stop,
        redo=options.redo,
        filter=options.filter,
        on=options.on,
        agent=agent,
    )
    return resources, plan


async def _check_flags(agent: AgentOptions, resources: Resources) -> None:
    """Raise `UsageError` for an option that is not ours and that no extension has added."""
    warnings: list[str] = []
    known = {flag.name for flag in await extension_flags(replace(agent, warn=warnings.append), resources)}
    unknown = [f"--{name}" for name in agent.flags if name not in known]
    for warning in warnings if unknown else ():  # otherwise they are shown when the batch begins
        warn(warning)
    _refuse(unknown)


def _refuse(given: Sequence[str]) -> None:
    if given:
        raise UsageError(f"{given[0]} means nothing to spindle batch (see spindle batch --help)")


async def _drive(batch: Batch, view: BatchView) -> int:
    signals: list[int] = []

    def stop(number: int) -> None:
        signals.append(number)
        if number == signal.SIGINT and len(signals) == 1:
            batch.finish()
            view.say("Running tasks may end; Ctrl-C again stops them")
        else:
            batch.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, stop, signal.SIGINT)
    on_stop((signal.SIGTERM, signal.SIGHUP), stop, seconds=limits.BATCH_STOP + limits.PROCESS_END)
    try:
        with view:
            async for line in batch:
                view.ended(line)
    except AgentError as error:
        tell("Error", str(error))
        return 1
    if signals and batch.undone():
        return 128 + signals[-1]
    if batch.over_budget:
        return 4
    return 1 if batch.failures() or batch.undone() else 0
