"""What the agent did to files, and taking back its last turn: files and conversation."""

from typing import TYPE_CHECKING, Any

from spindle.apps.console.input import Question
from spindle.apps.console.look import clean, one_line

if TYPE_CHECKING:
    from spindle.apps.console.talk import Talk

Json = dict[str, Any]

_OF_FILE = 200
"""Lines that are shown of each file."""
_COLOURS = {"+": "green", "-": "red"}
_MOST_NAMES = 8


class Changes:
    def __init__(self, talk: "Talk") -> None:
        self._talk = talk
        self._client = talk.client

    async def show(self) -> None:
        """Print how files differ from the state before this session first changed any."""
        say, changes = self._talk.view.say, await self._client.get_changes()
        for file in changes["files"]:
            name = one_line(f"{file['oldPath']} → {file['path']}" if "oldPath" in file else file["path"])
            counts = f"+{file.get('added', 0)} -{file.get('removed', 0)}" if "added" in file else "binary"
            say(f"{name}  {file['status']}, {counts}", "bold", kind="text")
            lines = _body(file.get("diff") or "")
            for line in lines[:_OF_FILE]:
                say(f"  {line}", _COLOURS.get(line[:1], "dim"), kind="more")
            if len(lines) > _OF_FILE:
                say(f"  … {len(lines) - _OF_FILE} more lines", "dim", kind="more")
        for file in changes["notCovered"][:_MOST_NAMES]:
            say(f"Not compared: {one_line(file['path'])} ({file['why']})", "dim", kind="more")
        if not changes["files"]:
            say("No file has changed since this session began to work on files.", "dim")

    async def undo(self) -> None:
        """Go back to before the user's last message: the conversation, and the files. The message is in the input."""
        if (last := await self._last_message()) is None:
            self._talk.view.say("There is no message of yours to take back", "yellow")
            return
        found = (await self._client.list_checkpoints())["checkpoints"]
        fitting = [one for one in found if one.get("promptId") == last and one["onBranch"] and one["isKept"]]
        if fitting:
            await self._restore(fitting[0]["id"], "Your last message is taken back")
            return
        done = await self._client.navigate_tree(last)
        if not done.get("cancelled"):
            self._talk.editor.put(done.get("editorText") or "")
            self._talk.remark = "Your last message is taken back; files stay as they are. /tree goes there again"

    async def rewind(self, entry: str) -> None:
        """Go back to before a message: the conversation, the files, or both."""
        found = (await self._client.list_checkpoints())["checkpoints"]
        kept = next((one["id"] for one in found if one.get("promptId") == entry and one["isKept"]), None)
        ways = ["Conversation and files", "Conversation only", "Files only"] if kept else ["Conversation only"]
        how = await self._talk.editor.ask(Question("Take back what?", ways))
        if how is None:
            return
        if kept is not None and how != 1:
            await self._restore(kept, "All since that message is taken back", conversation=how == 0)
            return
        done = await self._client.navigate_tree(entry)
        if not done.get("cancelled"):
            self._talk.editor.put(done.get("editorText") or "")
            why = "" if kept else ": no state of them was kept for that message"
            self._talk.remark = f"The conversation is taken back; files stay as they are{why}. /tree goes there again"

    async def redo(self) -> None:
        """Take an undo back."""
        found = (await self._client.list_checkpoints())["checkpoints"]
        turns = {one["id"] for one in found if one["kind"] == "turn"}
        last = next((one for one in reversed(found) if one["onBranch"]), None)
        if last is None or last["kind"] != "restore" or last.get("restored") not in turns:
            self._talk.view.say("There is no undo to take back", "yellow")
        else:
            await self._restore(last["id"], "The undo is taken back")

    async def _restore(self, checkpoint: str, words: str, *, conversation: bool = True) -> None:
        would = await self._client.restore(checkpoint, conversation=conversation, dry_run=True)
        if conflicts := would["conflicts"]:
            title = f"Changed by someone else, too: {_names(conflicts)}. Overwrite?"
            if await self._talk.editor.ask(Question(title, ["No", "Yes"], "ny")) != 1:
                self._talk.view.say("Nothing was taken back", "dim")
                return
        done = await self._client.restore(checkpoint, conversation=conversation, force=bool(conflicts))
        if done.get("cancelled"):
            return
        self._talk.editor.put(done.get("editorText") or "")
        files = f"files put back: {_names(done['files'])}" if done["files"] else "no file had changed"
        remark = f"{words}; {files}. {'/undo' if words.startswith('The undo') else '/redo'} takes this back"
        if conversation:
            self._talk.remark = remark  # for behind the conversation, which is shown again
        else:
            self._talk.view.say(remark, "dim")

    async def _last_message(self) -> str | None:
        """Return the id of the user's last message on this branch."""
        data = await self._client.get_entries()
        by_id, at = {entry.get("id"): entry for entry in data["entries"]}, data["leafId"]
        while (entry := by_id.get(at)) is not None:
            message = entry.get("message")
            if isinstance(message, dict) and message.get("role") == "user":
                return str(entry["id"])
            at = entry.get("parentId")
        return None


def _body(diff: str) -> list[str]:
    """Return the lines of a diff without its head."""
    lines = clean(diff).rstrip("\n").split("\n")
    return lines[next((at for at, line in enumerate(lines) if line.startswith("@@")), len(lines)) :]


def _names(files: list[Json]) -> str:
    names = [one_line(file["path"]) for file in files[:_MOST_NAMES]]
    return ", ".join(names) + (f" and {len(files) - _MOST_NAMES} more" if len(files) > _MOST_NAMES else "")
