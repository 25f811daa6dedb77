"""Compare harnesses on the same tasks with the same model and sampling.

Each trial keeps its workspace, its session, every answer of the model and the reason of its failure below --out. A
trial that is there already is not run again, so a stopped evaluation goes on where it was; one that crashed is. A trial
of another model, server, sampling, limit, version or task text does not count and is moved to `earlier`.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from evals import harbor_tasks, kept, polyglot, report, tasks
from evals.endpoint import Endpoint, EndpointError, checked
from evals.harnesses import CONTEXT, MODEL, Harness, parse
from evals.meter import Sampling
from evals.tasks import Task
from evals.trial import Model, Trial, run_trial


def main() -> int:
    options = _parser().parse_args()
    try:
        chosen = _choose(options)
        harnesses = [] if options.list else parse(options.harness or ["spindle"], options.settings or ())
    except (tasks.TaskError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(f"{task.name:28} {task.prompt.splitlines()[0][:90]}" for task in chosen))
        return 0
    if not (options.url or options.gguf):
        print("Error: name a model: --gguf FILE, or --base-url http://HOST:PORT/v1 --model NAME", file=sys.stderr)
        return 2
    if options.url and not options.url.startswith(("http://", "https://")):
        print(f"Error: --base-url is an address as http://127.0.0.1:11434/v1, not {options.url}", file=sys.stderr)
        return 2
    if options.gguf and not options.gguf.is_file():
        print(f"Error: there is no model file {options.gguf} (--gguf)", file=sys.stderr)
        return 2
    if options.key_env and not os.environ.get(options.key_env):
        print(f"Error: the variable {options.key_env} (--key-env) is not set", file=sys.stderr)
        return 2
    try:
        return asyncio.run(_evaluate(options, chosen, harnesses))
    except EndpointError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evals", description=__doc__)
    parser.add_argument("--gguf", type=Path, help="a model file to run on this machine (extra `local`)")
    parser.add_argument("--base-url", "--url", dest="url", help="address of a model's API like OpenAI's, with its /v1")
    parser.add_argument("--model", default="", help="name of the model at --base-url; needed if it has several")
    parser.add_argument("--key-env", default="", help="variable with the key for --base-url")
    parser.add_argument(
        "--harness",
        action="append",
        help="spindle, pi, mini, mini-text, codex, opencode; NAME=PROGRAM or LABEL:NAME=PROGRAM; repeatable",
    )
    parser.add_argument(
        "--settings",
        action="append",
        help="LABEL:JSON, settings of one Spindle or pi; repeatable",
    )
    parser.add_argument("--only", default="", help="tasks by name or kind, comma-separated")
    parser.add_argument("--small", action="store_true", help="only the twelve tasks that are fit for a small model")
    parser.add_argument("--easy", action="store_true", help="forty easy tasks: a small file, question or command each")
    parser.add_argument("--polyglot", type=Path, help="a checkout of Aider's polyglot benchmark: its Python exercises")
    parser.add_argument("--harbor", type=Path, help="a Harbor task, or a folder of them; run here, without containers")
    parser.add_argument("--trials", type=_positive(int), default=3, help="how often each task is tried")
    parser.add_argument("--jobs", type=_positive(int), default=1, help="trials at a time")
    parser.add_argument("--seconds", type=_positive(float), default=600, help="the longest a trial may take")
    parser.add_argument("--temperature", type=float, default=0.2)
    parser.add_argument("--max-tokens", type=_positive(int), default=2048, help="the longest answer of the model")
    parser.add_argument("--threads", type=int, help="threads of the model's server")
    parser.add_argument(
        "--server-pid", type=int, help="process of the server at --url: answers count by its CPU time, not by the wall"
    )
    parser.add_argument("--out", type=Path, default=Path("evals/out"), help="where trials are kept")
    parser.add_argument("--list", action="store_true", help="show the tasks, run nothing")
    return parser


def _positive(kind: Callable[[str], float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        if (value := kind(text)) <= 0:
            raise ValueError
        return value

    number.__name__ = "number above 0"
    return number


def _choose(options: argparse.Namespace) -> list[Task]:
    if options.harbor:
        found = harbor_tasks.load(options.harbor)
    elif options.polyglot:
        found = polyglot.load(options.polyglot)
    else:
        found = tasks.load_easy() if options.easy else tasks.load()
    wanted = set(options.only.split(",")) - {""}
    chosen = [task for task in found if not wanted or {task.name, task.kind} & wanted]
    if options.small:
        chosen = [task for task in chosen if task.small]
    if not chosen:
        raise tasks.TaskError("no task of that name or kind; --list shows them")
    return chosen


async def _evaluate(options: argparse.Namespace, chosen: list[Task], harnesses: list[Harness]) -> int:
    trials: list[Trial] = []
    this = asyncio.current_task()
    assert this is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    stopped = False
    async with _endpoint(options) as endpoint:
        run = _Evaluation(options, endpoint, tools=any(harness.tools for harness in harnesses))
        try:
            await run.all(chosen, harnesses, trials)
        except asyncio.CancelledError:  # Ctrl-C: what is done is reported
            stopped = True
    if trials or not stopped:
        _report(options.out, trials, harnesses)
    crashed = any(trial.reason == "crashed" for trial in trials)
    return 130 if stopped else 1 if crashed else 0


def _report(out: Path, trials: list[Trial], harnesses: list[Harness]) -> None:
    shown = report.table(trials, {harness.name: harness.lacks for harness in harnesses})
    print("\n" + shown)
    (out / "report.md").write_text(report.markdown(shown, trials), encoding="utf-8")
    (out / "report.html").write_text(report.html(shown, trials), encoding="utf-8")
    print(f"\nEvery trial with its transcript: {out / 'report.html'}")
    if crashed := [trial.said for trial in trials if trial.reason == "crashed"]:
        print("\n".join(f"{count} x {said}" for said, count in Counter(crashed).most_common(3)), file=sys.stderr)
        print(f"{len(crashed)} of {len(trials)} trials crashed: the same command tries them again.", file=sys.stderr)


class _Evaluation:
    """The trials of one evaluation, `--jobs` at a time."""

    def __init__(self, options: argparse.Namespace, endpoint: Endpoint, *, tools: bool) -> None:
        self._options = options
        self._endpoint = endpoint
        self._tools = tools
        self._check: asyncio.Task[Endpoint] | None = None
        self._places: asyncio.LifoQueue[Path] = asyncio.LifoQueue()
        jobs = max(1, options.jobs)
        for number in reversed(range(jobs)):
            # One path for all, if they run one by one: the model reads it, and its server can reuse the beginning of
            # the prompt.
            name = "running" if jobs == 1 else f"running-{number:03}"
            self._places.put_nowait((options.out / name).absolute())

    async def all(self, chosen: list[Task], harnesses: list[Harness], done: list[Trial]) -> None:
        """Run all trials, and put them into `done` in their order.

        Rounds, then tasks, then harnesses: whenever it is stopped, the harnesses have had the same tasks.
        """
        waiting = [
            asyncio.create_task(self.trial(harness, task, number))
            for number in range(1, self._options.trials + 1)
            for task in chosen
            for harness in harnesses
        ]
        try:
            for one in waiting:
                if (trial := await asyncio.shield(one)) is not None:
                    done.append(trial)
                    print(_line(trial), flush=True)
        finally:
            for one in waiting:  # at once, or the next one would begin in the place of the first
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def trial(self, harness: Harness, task: Task, number: int) -> Trial | None:
        """Return a trial that is kept, or run it where there is room; None: the task cannot be done here."""
        options = self._options
        folder = options.out / harness.name / task.name / str(number)
        place = await self._places.get()
        try:
            sampling = Sampling(temperature=options.temperature, seed=number, max_tokens=options.max_tokens)
            asked = self._endpoint
            if not asked.model:
                asked = await self._checked()
            model = Model(asked.url, asked.key, asked.model, sampling, options.server_pid, options.threads or 1)
            server = asked.url if options.url else f"{options.gguf.name}, {options.gguf.stat().st_size} bytes"
            wanted = kept.conditions(harness, task, model, server, options.seconds)
            if (trial := kept.counted(folder, options.out, wanted)) is not None:
                return trial
            await self._checked()
            trial = await run_trial(harness, task, number, model, place, options.seconds)
            trial.conditions = wanted
            kept.write(place, trial)
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            place.rename(folder)
            return trial
        except tasks.TaskError as error:
            print(f"Left out: {error}", file=sys.stderr, flush=True)
            return None
        finally:
            self._places.put_nowait(place)

    async def _checked(self) -> Endpoint:
        """Let the model answer once, before the first trial that has to be run."""
        if self._check is None:
            self._check = asyncio.create_task(checked(self._endpoint, self._tools))
        return await asyncio.shield(self._check)


def _line(trial: Trial) -> str:
    end = "passed" if trial.passed else f"{trial.reason}: {trial.said}"
    return f"{trial.number} {trial.harness:12} {trial.task:24} {trial.seconds:6.1f} s {trial.calls:3} calls  {end}"


@asynccontextmanager
async def _endpoint(options: argparse.Namespace) -> AsyncIterator[Endpoint]:
    """Give the model's API; a model file is loaded for it."""
    if options.url:
        key = os.environ[options.key_env] if options.key_env else "none"
        yield Endpoint(options.url.rstrip("/"), key, options.model)
        return
    from spindle.llm.local.llama_server import WantedModel, lease

    async with lease(WantedModel(options.gguf, MODEL, CONTEXT, options.threads)) as facts:
        yield Endpoint(f"{facts.url}/v1", facts.key, MODEL)


if __name__ == "__main__":
    sys.exit(main())
