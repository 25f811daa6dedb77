"""What every store promises, as checks that run on it: `spindle.testing.check_store`."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from spindle.sessions.entries import Header, SessionError, new_header
from spindle.sessions.pages import BadCursor
from spindle.sessions.store import (
    Card,
    Conflict,
    Lease,
    LeaseLost,
    SessionHeld,
    SessionStore,
)
from spindle.sessions.tally import Tally
from spindle.shapes.codec import encode

ODD = "a \u2028 line, half a pair: \ud83d, a NUL: \0, \U0001f600"
NEWS_SECONDS = 5.0


class BrokenPromise(AssertionError):
    """A store does not do what a store promises; the text says what."""


def check_store(opened: Callable[[], SessionStore]) -> list[str]:
    """Run every check on stores that `opened` opens at one empty place. Returns the names of the checks.

    Each call of `opened` is another node at that place. Raises `BrokenPromise`.
    """
    for number, check in enumerate(CHECKS):
        one, other = opened().within(f"check-{number}"), opened().within(f"check-{number}")
        try:
            check(one, other)
        finally:
            other.close()
            one.close()
    return [check.__name__ for check in CHECKS]


def keeps_bytes(one: SessionStore, other: SessionStore) -> None:
    header, *lines = _lines("s", 3)
    odd = encode({"type": "custom", "id": "odd", "parentId": None, "timestamp": "", "text": ODD}) + b"\n"
    lease = one.lease("s")
    one.append(lease, [header, *lines], 0, _card("s", lines))
    one.append(lease, [odd], 4, _card("s", lines))
    found = other.load("s")
    _must(found is not None and found.lines == [header, *lines, odd], "load returns every line, byte for byte")
    _must(found is not None and found.revision == 5, "the revision is the number of lines")
    since = other.load("s", 3)
    _must(since is not None and since.lines == [lines[-1], odd], "load since a revision returns the lines after it")
    end = other.load("s", 5)
    _must(end is not None and end.lines == [], "load since the last revision returns no lines")
    _must(other.load("none") is None, "a session that is not there is None")


def compares_revisions(one: SessionStore, other: SessionStore) -> None:
    header, *lines = _lines("s", 2)
    lease = one.lease("s")
    one.append(lease, [header, *lines], 0, _card("s", lines))
    for expected in (0, 2, 4):
        with _raises(Conflict, f"an append at revision {expected} of 3 is a conflict"):
            one.append(lease, lines, expected, _card("s", lines))
    one.append(lease, [], 3, _card("s", lines, count=9))
    found = other.load("s")
    _must(found is not None and found.revision == 3, "an append that is refused, or has no lines, adds none")
    _must(one.page().cards[0].info.id == "s", "it is in the list")


def lets_one_writer_win(one: SessionStore, other: SessionStore) -> None:
    header, *_ = _lines("s", 0)
    lease = one.lease("s")
    one.append(lease, [header], 0, _card("s", []))

    def add(number: int) -> bool:
        line = encode({"type": "custom", "id": f"e{number}", "parentId": None, "timestamp": ""}) + b"\n"
        try:
            one.append(lease, [line, line], 1, _card("s", []))
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        won = list(threads.map(add, range(8)))
    found = other.load("s")
    _must(won.count(True) == 1, "of several appends at one revision one wins")
    _must(found is not None and found.revision == 3, "the lines of the others are not there")
    _must(found is not None and found.lines[1] == found.lines[2], "lines of two appends are not interleaved")


def leases_to_one(one: SessionStore, other: SessionStore) -> None:
    header, *_ = _lines("s", 0)
    lease = one.lease("s")
    one.append(lease, [header], 0, _card("s", []))
    for store in (one, other):
        with _raises(SessionHeld, "a session that is held is not leased again, be it to the same node"):
            store.lease("s")
    holder = other.holder("s")
    _must(holder is not None, "others see who holds it")
    _must(one.holds(lease), "the holder knows that it holds it")
    _must(one.node.node in [node.node for node in one.nodes()], "who holds a lease is one of the nodes that are alive")
    with _raises(SessionHeld, "a session that is held is not deleted"):
        other.delete("s")
    one.release(lease)
    _must(other.holder("s") is None, "a lease that was given back is free")
    second = other.lease("s")
    _must(second.number > lease.number, "a later lease has a greater number")
    with _raises(LeaseLost, "who gave a lease back, or lost it, adds nothing"):
        one.append(lease, [header], 1, _card("s", []))
    with _raises(LeaseLost, "an append without lines says whether the lease is lost"):
        one.append(lease, [], 1, _card("s", []))
    one.release(lease)
    _must(one.holder("s") is not None, "an old lease that is given back takes nothing away")
    with _raises(LeaseLost, "a made-up lease adds nothing"):
        other.append(Lease("s", second.node, second.number + 7), [header], 1, _card("s", []))
    other.release(second)
    unused = one.lease("new")
    one.release(unused)
    _must(other.load("new") is None, "a lease alone makes no session")


def frees_leases_at_its_end(one: SessionStore, other: SessionStore) -> None:
    header, *_ = _lines("s", 0)
    one.append(one.lease("s"), [header], 0, _card("s", []))
    one.close()
    _must(other.holder("s") is None, "a store that is closed holds nothing")
    other.release(other.lease("s"))


def lists_by_pages(one: SessionStore, other: SessionStore) -> None:
    for number in range(5):
        id = f"s{number}"
        header, *lines = _lines(id, 1, cwd=f"/dir{number % 2}", time=1000 + 10 * (number // 2))
        lease = one.lease(id)
        one.append(lease, [header, *lines], 0, _card(id, lines, cwd=f"/dir{number % 2}"))
        one.release(lease)
    lease = one.lease("sub")
    header, *lines = _lines("sub", 1)
    one.append(lease, [header, *lines], 0, _card("sub", lines, of="s1"))
    one.release(lease)
    found: list[str] = []
    cursor, pages = None, 0
    while True:
        page = other.page(limit=2, cursor=cursor)
        found += [card.info.id for card in page.cards]
        cursor, pages = page.cursor, pages + 1
        if cursor is None:
            break
    _must(found == ["s4", "s2", "s3", "s0", "s1"], f"pages go on, latest first, then by id: {found}")
    _must(pages == 3, "the last page has no cursor")
    _must([card.info.id for card in other.page(cwd="/dir1").cards] == ["s3", "s1"], "a list of one directory")
    _must([card.info.id for card in other.page(of="s1").cards] == ["sub"], "those that work for a session")
    with _raises(BadCursor, "a cursor that is none is refused"):
        other.page(cursor="rubbish")
    other.delete("s1")
    _must(other.load("s1") is None and other.load("sub") is None, "a session goes with those that work for it")
    _must(len(other.page().cards) == 4, "what was deleted is in no list")
    other.delete("s1")


def knows_cut_off_runs(one: SessionStore, other: SessionStore) -> None:
    for id, state in (("cut", "begun"), ("done", "ended"), ("asks", "waiting")):
        header, *lines = _lines(id, 1)
        run = {"type": "custom", "customType": "spindle.run", "id": "r", "parentId": None, "timestamp": ""}
        lines.append(encode({**run, "data": {"state": state, "session": id}}) + b"\n")
        lease = one.lease(id)
        one.append(lease, [header, *lines], 0, _card(id, lines))
        if id != "cut":
            one.release(lease)
        else:
            _must("cut" not in other.cut_off() or other.name != one.name, "a run that is worked on is not cut off")
    one.close()
    _must(
        other.cut_off() == ["cut"],
        f"a run without a holder is cut off, if it neither ended nor waits: {other.cut_off()}",
    )


def keeps_spaces_apart(one: SessionStore, other: SessionStore) -> None:
    header, *_ = _lines("s", 0)
    mine = one.within("ann")
    lease = mine.lease("s")
    mine.append(lease, [header], 0, _card("s", []))
    theirs = other.within("bob")
    _must(theirs.load("s") is None and theirs.page().cards == [], "a user sees no sessions of another")
    lease = theirs.lease("s")
    theirs.append(lease, [header], 0, _card("s", []))
    theirs.release(lease)
    theirs.delete("s")
    _must(mine.load("s") is not None, "a user deletes no sessions of another")
    mine.put("kind", "key", b"1", 0)
    _must(theirs.get("kind", "key") is None, "a user sees no records of another")
    mine.close()
    theirs.close()


def compares_records(one: SessionStore, other: SessionStore) -> None:
    _must(one.get("usage", "a/b") is None, "a record that is not there is None")
    first = one.put("usage", "a/b", b"\0\xff1", 0)
    found = other.get("usage", "a/b")
    _must(found is not None and found.value == b"\0\xff1" and found.revision == first, "a record keeps its bytes")
    with _raises(Conflict, "a record that is there is not made again"):
        other.put("usage", "a/b", b"2", 0)
    with _raises(Conflict, "a record at another revision is not written"):
        other.put("usage", "a/b", b"2", first + 1)

    def count(store: SessionStore) -> None:
        for _ in range(10):
            while True:
                record = store.get("usage", "count")
                number, revision = (0, 0) if record is None else (int(record.value), record.revision)
                try:
                    store.put("usage", "count", b"%d" % (number + 1), revision)
                    break
                except Conflict:
                    continue

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(count, (one, other)))
    record = one.get("usage", "count")
    _must(record is not None and record.value == b"20", "no write of a record is lost")
    with _raises(Conflict, "a record at another revision is not removed"):
        one.put("usage", "a/b", None, first + 1)
    one.put("usage", "a/b", None, first)
    _must(other.get("usage", "a/b") is None, "a record that was removed is gone")


def tells_news(one: SessionStore, other: SessionStore) -> None:
    heard: list[str] = []
    stop = one.watch(heard.append)
    end = time.monotonic() + NEWS_SECONDS
    while "s" not in heard and time.monotonic() < end:
        one.notify("s")
        time.sleep(0.05)
    stop()
    _must("s" in heard, "who watches hears of it")


CHECKS = (
    keeps_bytes,
    compares_revisions,
    lets_one_writer_win,
    leases_to_one,
    frees_leases_at_its_end,
    lists_by_pages,
    knows_cut_off_runs,
    keeps_spaces_apart,
    compares_records,
    tells_news,
)


def _lines(id: str, messages: int, cwd: str = "/work", time: int = 1000) -> list[bytes]:
    header = new_header(cwd, session_id=id)
    said = [
        {"type": "message", "id": f"m{number}", "parentId": None, "timestamp": "2026-01-01T00:00:00.000Z",
         "message": {"role": "user", "content": f"text {number}", "timestamp": time}}
        for number in range(messages)
    ]  # fmt: skip
    return [header.ended, *(encode(one) + b"\n" for one in said)]


def _card(id: str, lines: list[bytes], *, cwd: str = "/work", of: str | None = None, count: int = 0) -> Card:
    tally = Tally()
    for line in lines:
        tally.add(line)
    header = Header(new_header(cwd, session_id=id).ended)
    return Card(tally.info(id, header, 1000), works=tally.works, of=of, told=[("e", count)])


def _must(true: bool, promise: str) -> None:
    if not true:
        raise BrokenPromise(promise)


@contextmanager
def _raises(kind: type[SessionError], promise: str) -> Iterator[None]:
    try:
        yield
    except kind:
        return
    raise BrokenPromise(promise)
