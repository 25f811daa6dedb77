"""Session updates of the Agent Client Protocol, made from events and stored messages."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from spindle.agent.fences.previews import hunks, in_words
from spindle.shapes import messages
from spindle.shapes.approvals import AddressPreview, DiffPreview, FieldsPreview, PermissionRequest, Preview
from spindle.shapes.builtin_tools import TASK_TOOL, kind_of
from spindle.shapes.codec import to_builtins
from spindle.shapes.events import BackgroundEnd, BackgroundStart
from spindle.tools.todo import TodoPhase

Update = dict[str, Any]

RESUME = "/resume-run"
"""A message that goes on with an interrupted run."""
OUTPUT_CHARS = 8192
"""How much of a running command's output is shown: the last characters."""
UPDATE_SECONDS = 0.1
"""Between two updates of one call."""
DIFF_BYTES = 1 << 20
"""For larger files, only the parts that change are shown."""


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def terminal_block(id: str) -> dict[str, Any]:
    return {"type": "terminal", "terminalId": id}


def chunk(kind: str, content: dict[str, Any], message_id: str | None = None) -> Update:
    """Return a part of a message; `kind` is `user_message`, `agent_message` or `agent_thought`."""
    update: Update = {"sessionUpdate": f"{kind}_chunk", "content": content}
    return update | ({"messageId": message_id} if message_id else {})


def line(text: str) -> Update:
    """Return a remark that is not part of the answer."""
    return chunk("agent_thought", text_block(f"{text}\n"))


def background_line(event: BackgroundStart | BackgroundEnd) -> str:
    if isinstance(event, BackgroundStart):
        return f"{event.id} runs in the background: {event.command}"
    return f"{event.id} exited with code {event.exit_code}"


def blocks(content: Iterable[Any]) -> list[dict[str, Any]]:
    """Return texts and images as the content of a call."""
    shown = []
    for block in content:
        if isinstance(block, messages.Text):
            shown.append({"type": "content", "content": text_block(block.text)})
        elif isinstance(block, messages.Image):
            shown.append({"type": "content", "content": _image(block)})
    return shown


def _image(block: messages.Image) -> dict[str, Any]:
    return {"type": "image", "data": block.data, "mimeType": block.mime_type}


# -- tool calls ----------------------------------------------------------------------------------


def describe(name: str, arguments: Any, cwd: str) -> Update:
    """Return the fields of a call that its arguments tell: title, kind, file and line."""
    given = arguments if isinstance(arguments, dict) else {}
    path, subject = given.get("path"), given.get("command") or given.get("pattern") or given.get("path")
    if name == TASK_TOOL:
        subject = f"{given.get('agent') or 'general'}: {given.get('prompt') or ''}"
    title = " ".join(str(subject).split()) if isinstance(subject, str) else ""
    title = title if name == "bash" and title else f"{name} {title}".rstrip()
    update: Update = {"title": title[:200] or name, "name": name, "kind": kind_of(name)}
    if isinstance(path, str) and path:
        place: dict[str, Any] = {"path": _absolute(path, cwd)}
        if isinstance(offset := given.get("offset"), int) and offset > 0:
            place["line"] = offset
        update["locations"] = [place]
    return update


def planned_diff(name: str, arguments: Any, cwd: str) -> list[dict[str, Any]]:
    """Return the changes that a call of edit or write has made, by its arguments."""
    given = arguments if isinstance(arguments, dict) else {}
    path = given.get("path")
    if not isinstance(path, str):
        return []
    if name == "write" and isinstance(text := given.get("content"), str):
        return [_diff(_absolute(path, cwd), None, text)]
    if name != "edit":
        return []
    edits = given.get("edits") if isinstance(given.get("edits"), list) else [given]
    return [
        _diff(_absolute(path, cwd), edit["oldText"], edit["newText"])
        for edit in edits or ()
        if isinstance(edit, dict) and isinstance(edit.get("oldText"), str) and isinstance(edit.get("newText"), str)
    ]


def asked(request: PermissionRequest, cwd: str) -> Update:
    """Return the call that a question is about, with what it would do."""
    preview = request.preview
    update: Update = {
        "toolCallId": request.tool_call_id or request.id,
        **describe(request.tool_name or "", request.arguments, cwd),
        "status": "pending",
        "content": _shown(preview),
    }
    if request.arguments is not None:
        update["rawInput"] = request.arguments
    if request.kind != "tool" or (isinstance(preview, DiffPreview | FieldsPreview | AddressPreview)):
        update["title"] = request.summary
    if request.kind == "outside":
        update["kind"] = "execute"
    return update


def _shown(preview: Preview | None) -> list[dict[str, Any]]:
    """Return a preview as the content of a call: each hunk of a diff as one, else text."""
    if isinstance(preview, DiffPreview):
        if preview.new_file:
            return [_diff(preview.path, None, new) for _, new in hunks(preview.patch)]
        return [_diff(preview.path, old, new) for old, new in hunks(preview.patch)]
    return [{"type": "content", "content": text_block(text)}] if (text := in_words(preview)) else []


def _diff(path: str, old: str | None, new: str) -> dict[str, Any]:
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def _absolute(path: str, cwd: str) -> str:
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))


def _file_text(path: str) -> str | None:
    """Return the content of a text file; None if there is none, or it is too long."""
    try:
        if not os.path.isfile(path):
            return None  # opening a pipe may take for ever
        with open(path, "rb") as file:
            data = file.read(DIFF_BYTES + 1)
        return data.decode() if len(data) <= DIFF_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None


class CallView:
    """One tool call as the editor sees it, from its first piece to its end."""

    def __init__(self, id: str, name: str, cwd: str, *, saved: bool = True) -> None:
        """`saved`: the file on disk is what an edit changes, so that the whole of it can be shown."""
        self._id = id
        self.name = name
        self._saved = saved
        self._cwd = cwd
        self.arguments: Any = None
        self._shown = False
        self._before: tuple[str, str | None] | None = None
        """Path of the file that the call changes, and its text before that."""
        self._next = 0.0
        """When the next update of a running call may go out."""
        self._terminal = ""
        """Id of the editor's terminal in which the call runs a command."""

    def begin(self, arguments: Any = None, *, running: bool = False) -> Update:
        """Return the call as known so far; `running`: the tool runs."""
        self.arguments = arguments
        update: Update = {"toolCallId": self._id, **describe(self.name, arguments, self._cwd)}
        update |= {"status": "in_progress" if running else "pending"}
        if arguments is not None:
            update["rawInput"] = arguments
        path = arguments.get("path") if isinstance(arguments, dict) else None
        if (
            running
            and isinstance(path, str)
            and (self.name == "write" or (self._saved and kind_of(self.name) == "edit"))
        ):
            place = _absolute(path, self._cwd)
            self._before = place, _file_text(place)
        return self._told(update)

    def run_in(self, terminal: str) -> Update:
        """Show a terminal of the editor instead of the output."""
        self._terminal = terminal
        return self._told({"toolCallId": self._id, "status": "in_progress", "content": [terminal_block(terminal)]})

    def progress(self, content: Iterable[Any]) -> Update | None:
        """Return the end of the output so far; None if the editor got an update a moment ago."""
        now, tail = time.monotonic(), messages.text_of(list(content))[-OUTPUT_CHARS:]
        if now < self._next or not tail:
            return None
        self._next = now + UPDATE_SECONDS
        return self._told({"toolCallId": self._id, "status": "in_progress", "content": blocks([messages.Text(tail)])})

    def end(self, content: list[Any], is_error: bool, details: Any = None, changed: Any = None) -> Update:
        """Return the end of the call; `changed` are the arguments it ran with, if the user changed them."""
        if changed is not None:
            self.arguments, self._before = changed, None
        shown = [terminal_block(self._terminal)] if self._terminal else blocks(content)
        if not is_error and kind_of(self.name) == "edit":
            shown = self._changes() or shown
        raw: dict[str, Any] = {"output": messages.text_of(content)}
        if details is not None:
            raw["details"] = to_builtins(details)
        status = "failed" if is_error else "completed"
        update = {"toolCallId": self._id, "status": status, "content": shown, "rawOutput": raw}
        if changed is not None:
            update |= {**describe(self.name, changed, self._cwd), "rawInput": changed}
        return self._told(update)

    def _changes(self) -> list[dict[str, Any]]:
        if self._before is not None:
            path, old = self._before
            new = _file_text(path)
            if new not in (None, old) and (old is not None or self.name == "write"):
                return [_diff(path, old, new)]
        return planned_diff(self.name, self.arguments, self._cwd)

    def _told(self, update: Update) -> Update:
        kind = "tool_call_update" if self._shown else "tool_call"
        self._shown = True
        if kind == "tool_call" and "title" not in update:
            update = {**describe(self.name, self.arguments, self._cwd), **update}
        return {"sessionUpdate": kind, **update}


# -- plan, stored messages -----------------------------------------------------------------------


def plan(phases: list[TodoPhase]) -> Update:
    tasks = [task for phase in phases for task in phase.tasks if task.status != "abandoned"]
    entries = [{"content": task.content, "priority": "medium", "status": task.status} for task in tasks]
    return {"sessionUpdate": "plan", "entries": entries}


def user_chunks(message: messages.UserMessage, id: str | None) -> Iterator[Update]:
    """Return a message of the user as updates. `id`, here and below, is that of its entry: the same live and stored."""
    for block in messages.blocks_of(message.content):
        shown = _image(block) if isinstance(block, messages.Image) else text_block(block.text)
        yield chunk("user_message", shown, id)


def answer_chunks(
    message: messages.AssistantMessage, id: str, view: Callable[[str, str], CallView]
) -> Iterator[Update]:
    """Return an answer as updates, as if it came now. `view` is called with the id and the tool of each call."""
    for block in message.content:
        if isinstance(block, messages.Text) and block.text:
            yield chunk("agent_message", text_block(block.text), id)
        elif isinstance(block, messages.Thinking) and block.thinking:
            yield chunk("agent_thought", text_block(block.thinking), id)
        elif isinstance(block, messages.ToolCall):
            yield view(block.id, block.name).begin(block.arguments)


def custom_chunk(message: messages.CustomMessage, id: str | None) -> Update:
    return chunk("agent_message", text_block(messages.text_of(message.content)), id)


def replay(stored: Iterable[tuple[str, messages.AgentMessage]], cwd: str, *, running: bool = False) -> Iterator[Update]:
    """Return a conversation as updates, as if it happened now; `running`: calls may still end."""
    calls: dict[str, CallView] = {}

    def view(id: str, name: str) -> CallView:
        calls[id] = CallView(id, name, cwd)
        return calls[id]

    for id, message in stored:
        match message:
            case messages.UserMessage():
                yield from user_chunks(message, id)
            case messages.AssistantMessage():
                yield from answer_chunks(message, id, view)
                if message.stop_reason == "error" and message.error_message:
                    yield line(f"The model failed: {message.error_message}")
            case messages.ToolResultMessage():
                call = calls.pop(message.tool_call_id, None)
                call = call or CallView(message.tool_call_id, message.tool_name, cwd)
                yield call.end(message.content, message.is_error, message.details, message.changed_input)
            case messages.BashExecutionMessage():
                call = CallView(id, "bash", cwd)
                yield call.begin({"command": message.command})
                yield call.end([messages.Text(message.output)], bool(message.exit_code or message.cancelled))
            case messages.CustomMessage() if message.display:
                yield custom_chunk(message, id)
            case messages.BranchSummaryMessage() | messages.CompactionSummaryMessage():
                yield line("What came before was summarised.")
    for call in () if running else calls.values():
        yield call.end([messages.Text("No result is known.")], True)
