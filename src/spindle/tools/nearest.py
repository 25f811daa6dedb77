"""Words for a call that missed: the lines, names and tools that are nearest to what the model asked for.

A model that reads only "not found" often gives up or tries the same again. The search is bounded, so that a miss in a
large file or a large tree costs little, and nothing is changed by a guess.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

_CANDIDATES = 3
_LIKE_ENOUGH = 0.45
_MAX_LINES = 100_000
"""Lines of a file that are looked at."""
_COMPARED = 60
"""Places that are compared letter by letter, after a quick choice by their words."""
_SHOWN_LINES = 12
_AROUND = 2
"""Lines before and after that are shown too: an edit that missed often needs a longer text."""
_SMALL_FILE = 30
"""Lines of a file that is shown as a whole if no place in it is like the text."""
_SHOWN_WIDTH = 200
_COMPARED_LETTERS = 4000
_NEXT_STEP = "Call edit again with exactly these lines as oldText, and the changed lines as newText."
_NEAREST_PLACE = (
    "Call edit again with exactly these lines as oldText, but only those of the one place that is meant, and the "
    "changed lines as newText."
)
_SHORTER = "Long lines are cut here (…). Call edit again with a short part of the line that is meant as oldText."
_ONE_PLACE = (
    "Call edit again with all lines of the one place that is meant as oldText, and the changed lines as newText; or "
    'with "replace_all": true if every occurrence is meant.'
)


def near_lines(lines: Sequence[str], wanted: str) -> str:
    """Return what follows a missed edit: the places of a text that are most like `wanted`."""
    old = wanted.strip("\n").split("\n")
    places = _best_places(lines, old)
    if not places and len(lines) > _SMALL_FILE:
        return "\nNothing in the file is like it. Read the file, then copy the text from it."
    if not any(line.strip() for line in lines):
        return "\nThe file is empty. Give it its content with write."
    places, count = places or [0], min(len(old), _SHOWN_LINES) if places else len(lines)
    shown = _shown(lines, places, count)
    step = _NEXT_STEP if len(places) == 1 else _NEAREST_PLACE
    if any(len(line.rstrip("\n")) > _SHOWN_WIDTH for line in lines[places[0] : places[-1] + count]):
        step = _SHORTER
    if count == len(lines):
        return f"\nThis is the whole file:\n{shown}\n{step}"
    begin = ", ".join(str(place + 1) for place in places)
    if step is _NEXT_STEP:
        step += _as_argument([line.rstrip("\n") for line in lines[places[0] : places[0] + len(old)]], old)
    return f"\nThe nearest lines of the file (line {begin}), and those around them, are:\n{shown}\n{step}"


def _as_argument(found: list[str], old: Sequence[str]) -> str:
    """Return lines that differ only in blanks as the argument that they are; empty if they are others, or long. A small
    model that was shown the lines alone sent what it had sent before."""
    text = "\n".join(found)
    if len(text) > _SHOWN_WIDTH or _without_blanks(found) != _without_blanks(old):
        return ""
    import json

    return f' Only blanks differ: "oldText": {json.dumps(text, ensure_ascii=False)}'


def _without_blanks(lines: Sequence[str]) -> str:
    return "".join("".join(lines).split())


def same_lines(lines: Sequence[str], numbers: Sequence[int], more: int, count: int) -> str:
    """Return what follows an edit whose text occurs `count` times: where it begins, and the first few places.

    `numbers` are lines from 1; each occurrence goes over `more` further lines.
    """
    begin = ", ".join(map(str, numbers)) + (" …" if count > len(numbers) else "")
    shown = _shown(lines, [number - 1 for number in numbers[:_CANDIDATES]], min(more + 1, _SHOWN_LINES))
    return f" They begin in lines {begin}:\n{shown}\n{_ONE_PLACE}"


def _shown(lines: Sequence[str], places: Sequence[int], count: int) -> str:
    """Return stretches of `count` lines, with those around them, as they stand in the file: they are to be copied.

    Numbers before them would be taken for a part of their indentation.
    """
    wanted = {number for place in places for number in range(place - _AROUND, place + count + _AROUND)}
    rows: list[str] = []
    for number in sorted(number for number in wanted if 0 <= number < len(lines)):
        rows += ["…"] * bool(rows and number - 1 not in wanted)
        line = lines[number].rstrip("\n")
        rows.append(line if len(line) <= _SHOWN_WIDTH else line[:_SHOWN_WIDTH] + "…")
    return "\n".join(rows).strip("\n")


def _best_places(lines: Sequence[str], old: Sequence[str]) -> list[int]:
    """Return the numbers of the lines, from 0, where the most similar stretches of the same length begin."""
    from difflib import SequenceMatcher

    text = "\n".join(line.strip() for line in old)[:_COMPARED_LETTERS]
    matcher = SequenceMatcher(None, "", text, autojunk=False)
    scored = []
    for start in _likely_places(lines, old):
        found = "\n".join(line.strip() for line in lines[start : start + len(old)])[:_COMPARED_LETTERS]
        matcher.set_seq1(found)
        if matcher.real_quick_ratio() >= _LIKE_ENOUGH and matcher.quick_ratio() >= _LIKE_ENOUGH:
            scored.append((matcher.ratio(), start))
    wanted = _without_blanks(old)
    same = [start for _, start in scored if _without_blanks(lines[start : start + len(old)]) == wanted]
    if len(same) == 1:
        return same
    best: list[int] = []
    for score, start in sorted(scored, key=lambda one: -one[0]):
        if score >= _LIKE_ENOUGH and all(abs(start - other) >= len(old) for other in best):
            best.append(start)
    return sorted(best[:_CANDIDATES])


def _likely_places(lines: Sequence[str], old: Sequence[str]) -> list[int]:
    """Return where a stretch with many words of `old` begins. Takes time proportional to the text."""
    where: dict[str, list[int]] = {}
    for number, line in enumerate(old):
        for word in set(_words(line)):
            where.setdefault(word, []).append(number)
    votes: Counter[int] = Counter()
    for number in range(min(len(lines), _MAX_LINES)):
        for word in set(_words(lines[number])) & where.keys():
            offsets = where[word]
            if len(offsets) <= _CANDIDATES:  # a word that is everywhere says nothing
                for offset in offsets:
                    votes[max(number - offset, 0)] += len(word)
    return [start for start, _ in votes.most_common(_COMPARED)]


def _words(line: str) -> Iterator[str]:
    import re

    return (match[0] for match in re.finditer(r"\w+|[^\w\s]{2,}", line[:_COMPARED_LETTERS]))


_ELSEWHERE = {
    **dict.fromkeys(
        (
            "shell",
            "local_shell",
            "exec_command",
            "execute_command",
            "run_command",
            "run_shell_command",
            "run_terminal_cmd",
            "terminal",
            "glob",
            "list_dir",
            "list_directory",
            "list_files",
            "search_files",
            "search_file_content",
            "grep_search",
            "python",
        ),
        "bash",
    ),
    **dict.fromkeys(("read_file", "readfile", "view", "view_file", "open_file", "cat"), "read"),
    **dict.fromkeys(("write_file", "write_to_file", "writefile", "create_file", "create"), "write"),
    **dict.fromkeys(
        (
            "replace",
            "str_replace",
            "str_replace_editor",
            "str_replace_based_edit_tool",
            "replace_in_file",
            "apply_patch",
            "apply_diff",
            "multiedit",
            "multi_edit",
            "edit_file",
        ),
        "edit",
    ),
}
"""Tools of other programs, and what does their work here."""


def near_tools(name: str, names: Iterable[str]) -> str:
    """Return what follows `Tool X not found`: the nearest name, and all names."""
    from spindle.base.spelling import did_you_mean

    known = list(names)
    own = _ELSEWHERE.get(name.lower())
    hint = f" Did you mean {own}?" if own in known else did_you_mean(name.rpartition(".")[2], known)
    return f".{hint} The tools are: {', '.join(known)}" if known else ". There are no tools"
