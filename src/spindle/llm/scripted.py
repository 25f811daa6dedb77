"""A model that answers from a script: for tests, demonstrations and work on a wire. No network, no key.

A script is a list of steps, in Python (`Script([...])`, see `spindle.testing`) or in a JSON file whose path is the
model's `base_url` (`--model scripted/FILE.json`). The file holds the list itself or `{"steps": [...]}`. A step is a
text, or an object with any of these keys:

    text        what the model says: a text (streamed word by word) or a list of exact pieces
    thinking    what it thinks first, in the same form
    calls       tools it calls then: [{"name": "bash", "arguments": {"command": "ls"}, "id": "c1"}]. The `id` may be
                missing; the arguments may be a list of pieces of raw JSON, for a call that comes bit by bit or broken
    usage       {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0}
    stop        `stop`, `length` or `toolUse`, if not the obvious one
    delay       seconds before the answer begins
    pace        seconds before each piece
    error       an error text, e.g. "429 Too many requests". Alone it refuses the request; after text, thinking or
                calls it breaks the answer off
    cut         true: the answer breaks off, as when a server dies
    match       a regular expression: the step answers requests whose last user text it finds

A list of pieces may also hold pauses: {"wait": 0.5} for seconds, {"gate": "name"} until `Script.release("name")`.

Each request takes the next step without `match`; the last one repeats. Steps with a `match` that fits come first; of
several with the same `match`, the second answers the second request of that turn (the one with the tools' results), and
so on; again the last repeats.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec

from spindle.llm.cost import add_cost
from spindle.llm.errors import ModelError
from spindle.llm.live import LiveMessage
from spindle.llm.stream import Chunk, Finished, Request, Started, StreamOptions
from spindle.shapes.codec import decode, encode
from spindle.shapes.messages import AssistantMessage, Usage, UserMessage, Wire, text_of
from spindle.shapes.model import Model, ModelCost
from spindle.shapes.pieces import StreamEvent

CUT = "Stream ended without finish_reason"


class ScriptError(ModelError):
    """A script that cannot be read or does not fit the request."""


class Pause(Wire, forbid_unknown_fields=True):
    wait: float = 0.0
    gate: str | None = None


Pieces: TypeAlias = str | list[str | Pause]


class Call(Wire, forbid_unknown_fields=True):
    name: str
    arguments: Any = msgspec.field(default_factory=dict)
    id: str | None = None


class StepUsage(Wire, forbid_unknown_fields=True):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


class Step(Wire, forbid_unknown_fields=True):
    """One answer; the module's docstring explains the keys."""

    text: Pieces = ""
    thinking: Pieces = ""
    calls: list[Call] = msgspec.field(default_factory=list)
    usage: StepUsage = msgspec.field(default_factory=StepUsage)
    stop: str | None = None
    delay: float = 0.0
    pace: float = 0.0
    error: str | None = None
    cut: bool = False
    match: str | None = None


AnyStep: TypeAlias = str | dict[str, Any] | Step | Callable[[Request], "str | dict[str, Any] | Step"]
"""A function is called when its turn comes and gets the request."""


class Script:
    """Steps, and how far they have been played. Raises `ScriptError` if a step is not valid."""

    def __init__(self, steps: Iterable[AnyStep]) -> None:
        self.requests: list[Request] = []
        """Every request so far."""
        self._steps = [step if callable(step) else _step(step) for step in steps]
        if not self._steps:
            raise ScriptError("A script needs at least one step")
        self._taken = 0
        self._released: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._reached: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def model(self, **fields: Any) -> Model:
        """Return a model that plays this script; `fields` are those of `Model`."""
        address = f"script:{uuid4().hex}"
        _scripts[address] = self
        defaults: dict[str, Any] = {
            "id": "script",
            "name": "Scripted model",
            "api": "scripted",
            "provider": "scripted",
            "base_url": address,
            "reasoning": True,
            "input": ["text", "image"],
            "cost": ModelCost(0, 0, 0, 0),
            "context_window": 200_000,
            "max_tokens": 16_384,
        }
        return Model(**{**defaults, **fields})

    def release(self, gate: str) -> None:
        """Let answers pass a gate, now and later."""
        self._released[gate].set()

    async def reached(self, gate: str) -> None:
        """Wait until an answer has come to a gate."""
        await self._reached[gate].wait()

    async def hold(self, gate: str) -> None:
        """Wait at a gate until it is released."""
        self._reached[gate].set()
        await self._released[gate].wait()

    def next_step(self, request: Request) -> Step:
        """Record a request and return the step that answers it. Raises `ScriptError` if no step does."""
        self.requests.append(request)
        text, round_number = _turn(request)
        matching = [step for step in self._steps if isinstance(step, Step) and step.match is not None]
        fitting = [step for step in matching if re.search(step.match or "", text)]
        if fitting:
            fitting = [step for step in fitting if step.match == fitting[0].match]
            return fitting[min(round_number, len(fitting) - 1)]
        steps = [step for step in self._steps if step not in matching]
        if not steps:
            raise ScriptError(f"No step of the script fits the message {text[:80]!r}")
        step = steps[min(self._taken, len(steps) - 1)]
        self._taken += 1
        return step if isinstance(step, Step) else _step(step(request))


_scripts: dict[str, Script] = {}
"""Scripts by the address of their model: a file, or a name for a script made in Python."""


def load_script(path: str) -> Script:
    """Read a script file. Raises `ScriptError` with a text fit to show."""
    try:
        value = decode(Path(path).expanduser().read_bytes())
        steps = value["steps"] if isinstance(value, dict) and "steps" in value else value
        if not isinstance(steps, list):
            raise ScriptError("expected a list of steps")
        return Script(steps)
    except OSError as error:
        raise ScriptError(f"Cannot read the script {path}: {error.strerror}") from None
    except (msgspec.DecodeError, ScriptError) as error:
        raise ScriptError(f"Bad script {path}: {error}") from None


async def stream(model: Model, request: Request, options: StreamOptions) -> AsyncGenerator[Chunk, None]:
    """Play the next step of the model's script."""
    live = LiveMessage(model)
    try:
        if model.base_url not in _scripts:
            _scripts[model.base_url] = load_script(model.base_url)
        script = _scripts[model.base_url]
        step = script.next_step(request)
    except ScriptError as error:
        yield Finished(live.finish("error", str(error)))
        return
    await asyncio.sleep(step.delay)
    if step.error is not None and not (step.text or step.thinking or step.calls):
        yield Finished(live.finish("error", step.error))
        return
    yield Started(live)
    for start, pieces in _blocks(step, live):
        yield start
        for piece in pieces:
            if isinstance(piece, Pause):
                await asyncio.sleep(piece.wait)
                if piece.gate is not None:
                    await script.hold(piece.gate)
                continue
            if step.pace:
                await asyncio.sleep(step.pace)
            yield live.append(len(live.blocks) - 1, piece)
        yield live.end(len(live.blocks) - 1)
    if step.error is not None or step.cut:
        yield Finished(live.finish("error", step.error or CUT))
        return
    usage = step.usage
    live.usage = Usage(usage.input, usage.output, usage.cache_read, usage.cache_write)
    live.counted = True
    add_cost(live.usage, live.price)
    yield Finished(live.finish(step.stop or ("toolUse" if step.calls else "stop")))


def _blocks(step: Step, live: LiveMessage) -> Iterator[tuple[StreamEvent, list[str | Pause]]]:
    """Open the blocks of an answer one after the other, each with the pieces it is made of."""
    if step.thinking:
        yield live.start_thinking(), _pieces(step.thinking)
    if step.text:
        yield live.start_text(), _pieces(step.text)
    for call in step.calls:
        pieces = call.arguments if isinstance(call.arguments, list) else [encode(call.arguments).decode()]
        yield live.start_tool_call(call.id or f"call_{uuid4().hex[:16]}", call.name), pieces


def _pieces(value: Pieces) -> list[str | Pause]:
    return list(re.findall(r"\s*\S+\s*|\s+", value)) if isinstance(value, str) else value


def _step(value: str | dict[str, Any] | Step) -> Step:
    if isinstance(value, str):
        return Step(text=value)
    try:
        step = value if isinstance(value, Step) else msgspec.convert(value, Step, from_attributes=True)
        for call in step.calls:
            if isinstance(call.arguments, list):
                call.arguments = msgspec.convert(call.arguments, list[str | Pause], from_attributes=True)
        if step.match is not None:
            re.compile(step.match)
    except (msgspec.ValidationError, re.error) as error:
        raise ScriptError(f"{error} (in the step {str(value)[:80]})") from None
    return step


def _turn(request: Request) -> tuple[str, int]:
    """Return the last user text and how many answers have followed it. What the agent tells after results is none."""
    answers = 0
    for message in reversed(request.messages):
        if isinstance(message, UserMessage) and not (text := text_of(message.content, "\n")).startswith("<remark>"):
            return text, answers
        answers += isinstance(message, AssistantMessage)
    return "", answers
