"""Compare harnesses on the same tasks with the same model and sampling.

Each trial keeps its workspace, its session, every answer of the model and the reason of its failure below --out. A
trial that is there already is not run again, so a stopped evaluation goes on where it was.
"""

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from evals import harbor_tasks, polyglot, report, tasks
from evals.harnesses import CONTEXT, MODEL, Harness, parse
from evals.meter import Sampling
from evals.tasks import Task
from evals.trial import Model, Trial, run_trial


def main() -> int:
    options = _parser().parse_args()
    try:
        chosen = _choose(options)
        harnesses = [parse(text) for text in options.harness or ["spindle"]]
    except (tasks.TaskError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(f"{task.name:28} {task.prompt.splitlines()[0][:90]}" for task in chosen))
        return 0
    if not (options.url or options.gguf):
        print("Error: name a model: --gguf FILE, or --url http://HOST:PORT/v1 of an API like OpenAI's", file=sys.stderr)
        return 2
    return asyncio.run(_evaluate(options, chosen, harnesses))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evals", description=__doc__)
    parser.add_argument("--gguf", type=Path, help="a model file to run on this machine (extra `local`)")
    parser.add_argument("--url", help="address of a model's API, like OpenAI's")
    parser.add_argument("--key", default="none", help="key for --url")
    parser.add_argument(
        "--harness",
        action="append",
        help="spindle, pi, mini, mini-text; NAME=PROGRAM or LABEL:NAME=PROGRAM; repeatable",
    )
    parser.add_argument("--only", default="", help="tasks by name or kind, comma-separated")
    parser.add_argument("--small", action="store_true", help="only the twelve tasks that are fit for a small model")
    parser.add_argument("--polyglot", type=Path, help="a checkout of Aider's polyglot benchmark: its Python exercises")
    parser.add_argument("--harbor", type=Path, help="a Harbor task, or a folder of them; run here, without containers")
    parser.add_argument("--trials", type=int, default=3, help="how often each task is tried")
    parser.add_argument("--seconds", type=float, default=600, help="the longest a trial may take")
    parser.add_argument("--temperature", type=float, default=0.2)
    parser.add_argument("--max-tokens", type=int, default=2048, help="the longest answer of the model")
    parser.add_argument("--threads", type=int, help="threads of the model's server")
    parser.add_argument(
        "--server-pid", type=int, help="process of the server at --url: answers count by its CPU time, not by the wall"
    )
    parser.add_argument("--out", type=Path, default=Path("evals/out"), help="where trials are kept")
    parser.add_argument("--list", action="store_true", help="show the tasks, run nothing")
    return parser


def _choose(options: argparse.Namespace) -> list[Task]:
    if options.harbor:
        found = harbor_tasks.load(options.harbor)
    else:
        found = polyglot.load(options.polyglot) if options.polyglot else tasks.load()
    wanted = set(options.only.split(",")) - {""}
    chosen = [task for task in found if not wanted or {task.name, task.kind} & wanted]
    if options.small:
        chosen = [task for task in chosen if task.small]
    if not chosen:
        raise tasks.TaskError("no task of that name or kind; --list shows them")
    return chosen


async def _evaluate(options: argparse.Namespace, chosen: list[Task], harnesses: list[Harness]) -> int:
    trials = []
    async with _model(options) as (url, key):
        # Rounds, then tasks, then harnesses: whenever it is stopped, the harnesses have had the same tasks.
        for number in range(1, options.trials + 1):
            sampling = Sampling(temperature=options.temperature, seed=number, max_tokens=options.max_tokens)
            model = Model(url, key, sampling, options.server_pid, options.threads or 1)
            for task in chosen:
                for harness in harnesses:
                    folder = options.out / harness.name / task.name / str(number)
                    try:
                        trial = _kept(folder) or await _run(harness, task, number, model, folder, options)
                    except tasks.TaskError as error:
                        print(f"Left out: {error}", file=sys.stderr, flush=True)
                        continue
                    trials.append(trial)
                    print(_line(trial), flush=True)
    print("\n" + report.table(trials))
    return 0


async def _run(
    harness: Harness, task: Task, number: int, model: Model, folder: Path, options: argparse.Namespace
) -> Trial:
    """Run a trial where every trial runs, then move it to its folder.

    One path for all: the model reads it, and its server can reuse the beginning of the prompt.
    """
    place = (options.out / "running").absolute()
    trial = await run_trial(harness, task, number, model, place, options.seconds)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    place.rename(folder)
    return trial


def _kept(folder: Path) -> Trial | None:
    path = folder / "result.json"
    return Trial(**json.loads(path.read_text())) if path.is_file() else None


def _line(trial: Trial) -> str:
    end = "passed" if trial.passed else f"{trial.reason}: {trial.said}"
    return f"{trial.number} {trial.harness:12} {trial.task:24} {trial.seconds:6.1f} s {trial.calls:3} calls  {end}"


@asynccontextmanager
async def _model(options: argparse.Namespace) -> AsyncIterator[tuple[str, str]]:
    """Give address and key of the model's API; a model file is loaded for it."""
    if options.url:
        yield options.url.rstrip("/"), options.key
        return
    from spindle.llm.local.llama_server import Wanted, lease

    async with lease(Wanted(options.gguf, MODEL, CONTEXT, options.threads)) as facts:
        yield f"{facts.url}/v1", facts.key


if __name__ == "__main__":
    sys.exit(main())
