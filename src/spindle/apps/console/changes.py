"""What this conversation did to files, and taking back its last message.

Only the tools' own reports are known here: what `edit` and `write` changed, not what a shell command did.
"""

from typing import TYPE_CHECKING, Any

from spindle.apps.console.look import clean, one_line
from spindle.shapes.builtin_tools import kind_of

if TYPE_CHECKING:
    from spindle.apps.console.talk import Talk

Json = dict[str, Any]

_OF_FILE = 200
"""Lines that are shown of each file."""
_COLOURS = {"+": "green", "-": "red"}


class Changes:
    def __init__(self, talk: "Talk") -> None:
        self._talk = talk
        self._client = talk.client

    async def show(self) -> None:
        """Print the changes of every file, in the order in which they were made."""
        say, files = self._talk.view.say, _by_file(await self._branch())
        for path, lines in files.items():
            say(one_line(path), "bold", kind="text")
            for line in lines[:_OF_FILE]:
                say(f"  {line}", _COLOURS.get(line[:1], "dim"), kind="more")
            if len(lines) > _OF_FILE:
                say(f"  … {len(lines) - _OF_FILE} more lines", "dim", kind="more")
        if files:
            say("Changes by edit and write in this conversation; shell commands may have made others.", "dim")
        else:
            say("The tools edit and write have changed no file in this conversation.", "dim")

    async def undo(self) -> None:
        """Go back to before the user's last message, and put it into the input. Files stay as they are."""
        branch = await self._branch()
        last = max((at for at, entry in enumerate(branch) if _message(entry).get("role") == "user"), default=None)
        if last is None:
            self._talk.view.say("There is no message of yours to take back", "yellow")
            return
        done = await self._client.navigate_tree(branch[last]["id"])
        if not done.get("cancelled"):
            self._talk.editor.put(done.get("editorText") or "")
            changed = ", ".join(map(one_line, _by_file(branch[last:])))
            files = f"files stay as they are, also {changed}" if changed else "files stay as they are"
            self._talk.remark = f"Your last message is taken back; {files}. /tree goes there again"

    async def _branch(self) -> list[Json]:
        """Return the entries of the conversation as it stands, oldest first."""
        data = await self._client.get_entries()
        return _path(data["entries"], data["leafId"])


def _path(entries: list[Json], leaf: str | None) -> list[Json]:
    by_id = {entry.get("id"): entry for entry in entries}
    found = []
    while (entry := by_id.get(leaf)) is not None:
        found.append(entry)
        leaf = entry.get("parentId")
    return found[::-1]


def _message(entry: Json) -> Json:
    message = entry.get("message")
    return message if isinstance(message, dict) else {}


def _by_file(entries: list[Json]) -> dict[str, list[str]]:
    """Return the lines of the changes that tools reported, by path."""
    calls: dict[Any, Json] = {}
    files: dict[str, list[str]] = {}
    for message in map(_message, entries):
        if message.get("role") == "assistant":
            calls |= {block.get("id"): block for block in message.get("content") or () if isinstance(block, dict)}
        elif message.get("role") == "toolResult" and not message.get("isError"):
            call = calls.get(message.get("toolCallId"), {})
            arguments = call.get("arguments")
            if kind_of(call.get("name", "")) != "edit" or not isinstance(arguments, dict):
                continue
            details = message.get("details")
            diff = details.get("diff") if isinstance(details, dict) else None
            lines = clean(str(diff or _added(arguments.get("content")))).split("\n")
            files.setdefault(str(arguments.get("path")), []).extend(lines)
    return files


def _added(content: Any) -> str:
    """Return a whole file as a diff: what was there before is not known."""
    return "\n".join(f"+{line}" for line in str(content or "").splitlines())
