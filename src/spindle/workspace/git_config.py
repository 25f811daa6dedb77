"""What a configuration of git names: programs that git would run, files that it includes, folders with hooks.

Git has too many such keys for a list, so the keys that are known to name none are listed, and every other one counts.
The text is read more strictly than git does: a line that git might understand in two ways counts, too.
"""

import os
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Final

_PLAIN: Final = {
    "core": "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol "
    "safecrlf quotepath abbrev sparsecheckout sparsecheckoutcone compression sharedrepository protecthfs protectntfs "
    "untrackedcache preloadindex whitespace commentchar longpaths splitindex multipackindex commitgraph trustctime "
    "checkstat bigfilethreshold",
    "remote": "url fetch push pushurl mirror tagopt prune promisor partialclonefilter pushdefault skipdefaultupdate "
    "gh-resolved followremotehead",
    "branch": "remote merge rebase pushremote description autosetupmerge autosetuprebase sort vscode-merge-base "
    "gh-merge-base github-pr-owner-number",
    "submodule": "url active branch path ignore fetchrecursesubmodules shallow recurse fetchjobs alternatelocation "
    "alternateerrorstrategy",
    "user": "name email signingkey useconfigonly",
    "author": "name email",
    "committer": "name email",
    "init": "defaultbranch",
    "pull": "rebase ff",
    "push": "default autosetupremote followtags recursesubmodules",
    "extensions": "worktreeconfig partialclone objectformat refstorage compatobjectformat noop",
    "fetch": "prune prunetags parallel recursesubmodules writecommitgraph fsckobjects output unpacklimit all",
    "gc": "auto autodetach autopacklimit pruneexpire reflogexpire reflogexpireunreachable worktreepruneexpire packrefs",
    "pack": "threads window depth windowmemory compression",
    "index": "version threads sparse",
    "status": "short branch showuntrackedfiles submodulesummary relativepaths renames",
    "color": "ui status diff branch interactive",
    "commit": "gpgsign verbose cleanup status",
    "tag": "gpgsign sort",
    "merge": "ff conflictstyle log renames renamelimit stat",
    "rebase": "autosquash autostash stat updaterefs abbreviatecommands missingcommitscheck",
    "rerere": "enabled autoupdate",
    "diff": "algorithm renames renamelimit submodule colormoved mnemonicprefix noprefix context ignoresubmodules",
    "log": "date decorate abbrevcommit follow",
    "maintenance": "auto strategy",
    "feature": "manyfiles experimental",
    "advice": "*",
    "column": "ui",
    "http": "postbuffer version",
    "lfs": "repositoryformatversion access locksverify",
}
_SAFE: Final = {section: frozenset(keys.split()) for section, keys in _PLAIN.items()}
_NO_PROGRAMS: Final = ("include.path", "includeif.path", "core.hookspath", "core.worktree", "init.templatedir")
_HEAD: Final = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\\n]|\\.)*)")?\s*\]\s*')
_ODD: Final = re.compile(r'["\\#;]')
_ESCAPED: Final = {"t": "\t", "n": "\n", "b": "\b"}
_LINE: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=(.*))?")


@lru_cache(64)
def entries(text: str) -> tuple[tuple[str, str, str], ...]:
    """Return `section.key`, value and line of everything that may name a program or another file.

    A key without a section stands for a line that cannot be read.
    """
    return tuple(_entries(text))


def _entries(text: str) -> Iterator[tuple[str, str, str]]:
    section = ""
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if "\0" in line:
            yield "", line.replace("\0", " "), line
            continue
        if not line.strip() or line.lstrip().startswith(("#", ";")):
            continue
        if head := _HEAD.fullmatch(line):
            section = head[1].lower()
            continue
        found = _LINE.fullmatch(line)
        if found is None or not section or line.endswith("\\") or line.startswith("\ufeff"):
            yield "", line.strip(), line
            continue
        key, value = found[1].lower(), _value((found[2] or "").strip())
        safe = _SAFE.get(section.partition(".")[0], frozenset())
        # An address may name a program, and so may what stands for one.
        if (key in safe or "*" in safe) and "::" not in value and not value.startswith("-"):
            continue
        yield f"{section}.{key}", value, line


def _value(text: str) -> str:
    """Return a value as git understands it: without quotes and comments."""
    if not _ODD.search(text):
        return text
    found, is_quoted, signs = "", False, iter(text)
    for sign in signs:
        if sign == '"':
            is_quoted = not is_quoted
        elif sign == "\\":
            sign = next(signs, "")
            found += _ESCAPED.get(sign, sign)
        elif sign in "#;" and not is_quoted:
            return found.rstrip()
        else:
            found += sign
    return found


def without(text: str, named: Collection[tuple[str, str]]) -> str:
    """Return a configuration without the lines of these keys and values."""
    lines = {line for key, value, line in entries(text) if (key, value) in named}
    return "\n".join(line for line in text.split("\n") if line.removesuffix("\r") not in lines)


def included(text: str, folder: str) -> list[str]:
    """Return the files that a configuration in `folder` includes, under whatever condition."""
    return [
        os.path.join(folder, os.path.expanduser(value))
        for key, value, _ in entries(text)
        if key in ("include.path", "includeif.path") and value
    ]


def hook_folders(text: str) -> list[str]:
    """Return the folders that a configuration names for hooks, and for the files of new repositories."""
    keys = ("core.hookspath", "init.templatedir")
    return [os.path.expanduser(value) for key, value, _ in entries(text) if key in keys and value]


def programs(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the words in which a configuration may name programs, with whether that may be a file to come: of an alias
    only the first, which git runs; the others are often files to work on."""
    for key, value, _ in entries(text):
        if key not in _NO_PROGRAMS:
            words = value.replace("'", " ").replace('"', " ").lstrip("!").split()
            for index, word in enumerate(words):
                is_run = index == 0 or not key.startswith("alias.")
                yield word, is_run and "/" in word and "://" not in word


def by_name(text: str) -> Iterator[str]:
    """Yield the programs that a configuration names without a folder, so that git finds them in the folders of PATH.
    Those of an alias are left out: who calls it by its name runs what the project has."""
    for key, value, _ in entries(text):
        if key not in _NO_PROGRAMS and not key.startswith("alias."):
            word = (value.replace("'", " ").replace('"', " ").lstrip("!").split() or [""])[0]
            if word and "/" not in word:
                yield f"git-credential-{word}" if key.startswith("credential.") and value[:1] != "!" else word
