"""The list of stored sessions: choose one, look into it, name it, delete it; of this directory or of all."""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spindle.apps.console.input import Pressed, Question
from spindle.apps.console.look import one_line
from spindle.apps.session_title import session_title
from spindle.base.spelling import counted

if TYPE_CHECKING:
    from spindle.apps.console.talk import Talk

Json = dict[str, Any]

_ALIKE = 24
"""Letters at the beginning of two titles that make them look the same."""
_LISTED = 500
_NARROW = 60
"""Columns of a window with no room for the words of the keys."""
_PREVIEWED = 6
"""Messages of a preview."""
_SORTS = {"latest": "modified", "longest": "messageCount", "name": "title"}
_KEYS = {"c-i": "Tab all directories", "c-s": "^S sort", "c-o": "^O look", "c-f": "^F search in texts"}
_OWN_KEYS = {"c-r": "^R rename", "c-d": "^D delete"}
"""For sessions on this machine."""


class SessionPicker:
    def __init__(self, talk: "Talk") -> None:
        self._talk = talk
        self._client = talk.client
        self._everywhere = False
        self._sort = "latest"
        self._query = ""

    async def pick(self, words: str = "") -> Json | None:
        """Return the chosen session as a list has it, or None."""
        while True:
            items = await self._items()
            if not items and not self._everywhere and not self._query:
                self._everywhere = True  # nothing was said in this directory
                items = await self._items()
            if not items and not self._query:
                self._talk.view.say("There are no sessions yet", "yellow")
                return None
            answer = await self._talk.editor.ask(self._question(items, words))
            words = ""
            match answer:
                case None:
                    return None
                case Pressed(key, at, typed):
                    await self._do(key, items[at] if at is not None else None, typed)
                case int():
                    return items[answer]

    async def _items(self) -> list[Json]:
        if self._query:
            found = await self._client.search_sessions(self._query, everywhere=self._everywhere, limit=_LISTED)
            items = [
                {**one["session"], "firstMessage": f"{title_of(one['session'])}: {one['snippet']}"} for one in found
            ]
        else:
            items = await self._client.list_sessions(everywhere=self._everywhere, limit=_LISTED)
        for item, title in zip(items, distinct([title_of(item) for item in items], items), strict=True):
            item["title"] = title
        return sorted(items, key=lambda item: item[_SORTS[self._sort]], reverse=self._sort != "name")

    def _question(self, items: Sequence[Json], words: str) -> Question:
        keys = _KEYS | (_OWN_KEYS if self._talk.local else {})
        where = "all directories" if self._everywhere else "this directory"
        found = f' with "{self._query}"' if self._query else ""
        hint = " · ".join(keys.values()) if self._talk.view.width > _NARROW else "Tab all · ^S sort · ^O look · ^F find"
        title = f"Which session? {where}{found}, {self._sort} first\n{hint}"
        return Question(
            title, [label_of(item, with_cwd=self._everywhere) for item in items], prefill=words, actions=tuple(keys)
        )

    async def _do(self, key: str, item: Json | None, typed: str) -> None:
        names = [*_SORTS]
        match key:
            case "c-i":
                self._everywhere = not self._everywhere
            case "c-s":
                self._sort = names[(names.index(self._sort) + 1) % len(names)]
            case "c-f":
                self._query = typed.strip()
            case _ if item is None:
                pass
            case "c-o":
                self._preview(item)
            case "c-r":
                await self._rename(item)
            case "c-d":
                await self._delete(item)

    def _preview(self, item: Json) -> None:
        say = self._talk.view.say
        say(f"{item['title']}  {one_line(item['cwd'])}", "bold")
        if self._talk.local is None:
            say(one_line(item["firstMessage"])[:400], "dim", kind="more")
            return
        for line in self._talk.local.last_messages(item["path"], _PREVIEWED):
            say(f"  {one_line(line)[:300]}", "dim", kind="more")

    async def _rename(self, item: Json) -> None:
        name = await self._talk.editor.ask(Question("Its name? Empty: none", prefill=item.get("name") or ""))
        if name is None:
            return
        if item["id"] == self._talk.state["sessionId"]:
            await self._client.set_session_name(name)
        elif self._talk.local is not None:
            self._talk.local.rename(item["path"], one_line(name))

    async def _delete(self, item: Json) -> None:
        sure = Question(f"Delete this session for good?\n{label_of(item, with_cwd=True)}", ["No", "Yes"], "ny")
        if await self._talk.editor.ask(sure) != 1:
            return
        if item["id"] == self._talk.state["sessionId"]:
            await self._client.delete_session()
        elif self._talk.local is not None:
            self._talk.local.delete(item["path"])


def title_of(item: Json) -> str:
    return one_line(session_title(item.get("name"), item["firstMessage"])) or "(nothing said yet)"


def distinct(titles: Sequence[str], items: Sequence[Json]) -> list[str]:
    """Return titles of which no two look the same: where they begin alike, by what is different, or their ids."""
    groups: dict[str, list[str]] = {}
    for title in titles:
        groups.setdefault(title[:_ALIKE], []).append(title)
    same = Counter(titles)
    told = []
    for title, item in zip(titles, items, strict=True):
        alike = groups[title[:_ALIKE]]
        rest = title[_shared(alike) :] if len(set(alike)) > 1 else ""
        shown = f"{title[:10].rstrip()}… …{rest}" if rest and len(title) > 2 * _ALIKE else title
        told.append(f"{shown[:80]} #{item['id'][-4:]}" if same[title] > 1 else shown[:80])
    return told


def _shared(titles: Sequence[str]) -> int:
    """Return how many letters all titles begin with."""
    one, other = min(titles), max(titles)
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def label_of(item: Json, *, with_cwd: bool) -> str:
    when = datetime.fromisoformat(item["modified"]).astimezone()
    day = "" if time.time() - when.timestamp() < 43_200 else when.strftime("%Y-%m-%d ")
    title = item.get("title") or title_of(item)[:80]
    place = f"  {one_line(item['cwd'])}" if with_cwd else ""
    return f"{day}{when:%H:%M}  {title} ({counted(item['messageCount'], 'message')}){place}"
