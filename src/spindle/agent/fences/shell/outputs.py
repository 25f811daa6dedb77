"""Finds files that a program may write though neither its name nor the rule that allows it says so.

`forms` knows forms of programs that are dangerous. Here it is the other way round: what is not known to be harmless is
asked about, so nothing has to be added for a new program or a new option. Three kinds of programs are not looked at:
those that write nothing, those whose name says that they write, and those that run code of the project anyway.
"""

import re
from typing import Final
from urllib.parse import unquote

from msgspec import Struct

from spindle.agent.fences.shell.gaps import NUMBER, PLACE, has_gap
from spindle.agent.fences.shell.programs import INTERPRETERS, Word, Words, is_wrapper, program

_WRITES_NOTHING = re.compile(
    r"ls|cat|head|tail|[efz]?grep|rg|wc|diff|cmp|comm|cut|tr|nl|tac|rev|paste|join|fold|fmt|column|expand|unexpand|"
    r"stat|du|df|ps|id|whoami|groups|date|uname|hostname|uptime|which|type|command|cksum|b2sum|md5sum|sha\d*sum|od|hexdump|"
    r"strings|readlink|realpath|basename|dirname|echo|printf|test|\[|true|false|pwd|printenv|jq|pgrep|getent|locale|nproc|"
    r"arch|seq|sleep|wait|kill|cd|pushd|popd|exit|export|set|unset|read|local|declare|return|shift|trap|factor|expr|"
    r"sort|shuf|find|fd|fdfind|file|less|more|man|bat|tree|yq|sed"
)
"""Programs of which no form writes a file, but for those that `forms` knows."""
_SAYS_SO = re.compile(
    r"cp|mv|rm|rmdir|mkdir|touch|chmod|chown|chgrp|ln|tee|dd|install|rsync|scp|sftp|tar|zip|unzip|gzip|gunzip|bzip2|xz|zstd|"
    r"patch|split|truncate|mktemp|mkfifo|shred|cpio|ar|write|dos2unix|unix2dos"
)
"""Programs that are there to write files: a rule for all of their forms means it."""
_RUNS_THE_PROJECT = re.compile(
    r"npm|npx|pnpm|yarn|g?make|cmake|ninja|just|task|pytest|py\.test|tox|nox|uv|poetry|cargo|rustc|go|gcc|g\+\+|cc|clang|"
    r"mvn|gradle|dotnet|bazel|rake|bundle|mix|composer|jest|vitest|tsc|eslint|swift|javac?|sbt|stack|cabal|zig|meson|ctest"
)
"""Programs that run what they find, and so may write whatever they like."""

_OUTPUT_WORDS = re.compile(
    "o|out|outputs?|outfile|outdir|outputfile|save|write|dump|export|log|logfile|trace|record|stderr|stdout|dest|"
    "destination|into|archive|artifacts?|report|backup|store|tee|inplace"
)
_NO_OUTPUT = re.compile("format|level|style|mode|colou?r|type|width|size|encoding|limit|count|verbosity|only")
"""Last parts of names of options that only say how something is written."""


class _Harmless(Struct, frozen=True):
    """Options of a program that has others which write files, and how many files it reads."""

    flags: str = ""
    valued: str = ""
    """Options with a value."""
    long: str = ""
    """Long options; those that end in `=` have a value."""
    operands: int = 1


_HARMLESS: Final = {
    "uniq": _Harmless(
        "cdDiuz", "fsw", "count repeated ignore-case unique zero-terminated skip-fields= skip-chars= check-chars="
    ),
    "xxd": _Harmless("abCdeEip", "cglos", "plain postscript bits include"),
    "ptx": _Harmless("AfORrTt", "bFgiMoSwW", "references ignore-case auto-reference", 100),
    "curl": _Harmless(
        "fgGiIjkLNnpsSv0123456#",
        "AbdeFHmPrtuUwXxyYz",
        "fail fail-with-body location location-trusted silent show-error no-show-error head include get "
        "insecure verbose compressed ipv4 ipv6 http1.0 http1.1 http2 http3 tlsv1.2 tlsv1.3 globoff no-buffer "
        "no-progress-meter progress-bar path-as-is parallel retry-all-errors retry-connrefused anyauth basic "
        "digest negotiate next tcp-nodelay version help netrc header= request= data= data-raw= data-binary= "
        "data-urlencode= json= form= form-string= user= user-agent= referer= cookie= url= max-time= connect-"
        "timeout= retry= retry-delay= retry-max-time= range= proxy= noproxy= resolve= cacert= capath= cert= "
        "key= max-redirs= max-filesize= limit-rate= interface= oauth2-bearer= proto= url-query= unix-socket= "
        "parallel-max= write-out=",
        100,
    ),
    "wget": _Harmless(
        "qvdS46n",
        "tTQUwl",
        "quiet verbose no-verbose debug server-response spider no-parent no-clobber no-check-certificate no-"
        "cache no-cookies inet4-only inet6-only version help tries= timeout= dns-timeout= connect-timeout= "
        "read-timeout= wait= quota= header= user-agent= referer= user= post-data= method= body-data= max-"
        "redirect= limit-rate= ca-certificate=",
        100,
    ),
}
_GIT_KEEPS_TO_ITSELF = re.compile(
    "add|am|annotate|apply|archive|bisect|blame|branch|cat-file|check-(?:attr|ignore|mailmap|ref-format)|checkout|cherry|"
    "cherry-pick|clean|clone|commit|commit-tree|config|count-objects|describe|diff|diff-(?:files|index|tree)|fetch|for-each-ref|"
    "format-patch|fsck|gc|grep|hash-object|init|log|ls-(?:files|remote|tree)|merge|merge-base|merge-tree|mv|name-rev|notes|"
    "patch-id|prune|pull|push|range-diff|rebase|reflog|remote|reset|restore|rev-(?:list|parse)|revert|rm|shortlog|show|"
    "show-(?:branch|ref)|sparse-checkout|stash|status|stripspace|switch|symbolic-ref|tag|update-index|update-ref|var|"
    "verify-(?:commit|tag)|version|whatchanged|worktree|write-tree|submodule|"
    "difftool|mergetool|filter-branch|send-email|instaweb|daemon|shell|credential|for-each-repo|hook|fast-import"
)
"""Commands of git that change nothing but the repository and its files, or that `forms` asks about."""
_FORMAT_OF_FILE = re.compile(r"(?:-[^-]*w|--write-out=?)[@\0].*", re.DOTALL)
"""The file may say `%output{NAME}`."""
_GIT_MAKES_PLACES = frozenset({"clone", "init", "worktree", "mv", "push", "remote"})
"""Commands of git that take folders in which they write, or whose hooks they run."""
_RECORDERS = frozenset({"strace", "ltrace", "script"})
"""Programs that run another one and write down what it does."""


def unknown_output(words: Words, named: int) -> str | None:
    """Return why the command may write a file that nobody was told of; None if no word says so.

    The first `named` words are those that the rule says itself.
    """
    name = program(words)
    if name in _HARMLESS:
        return _other_than(_HARMLESS[name], words, named, name)
    if not _is_looked_at(words):
        return None
    if name == "git":
        at = git_command(words)
        command = words[at].value if at < len(words) else ""
        if at >= named and command and not command.startswith("-") and not _GIT_KEEPS_TO_ITSELF.fullmatch(command):
            return f"what `git {command}` writes is not known"
        return None
    for word in words[max(named, 1) :]:
        if word.value == "--":
            break
        if _names_output(word.value):
            return f"`{name} {word.source}` may write a file"
    return None


def files(words: Words, named: int) -> list[Word]:
    """Return the words that may be files which the command writes. They should lie where edits may be free."""
    name = program(words)
    if name == "wget":  # names its file like the last part of the address
        plain = (unquote(word.value.partition("?")[0]) for word in words[1:])
        ends = [
            Word(word.source, value.rstrip("/").rpartition("/")[2])
            for word, value in zip(words[1:], plain, strict=True)
        ]
        return [word for word in ends if word.value and not word.value.startswith("-")]
    if not _is_looked_at(words):
        return []
    if name == "git":
        at = git_command(words)
        if at < named or at >= len(words) or words[at].value not in _GIT_MAKES_PLACES:
            return []
        return _parts(words[at + 1 :])
    return _parts(words[max(named, 1) :])


def foreign_repository(words: Words) -> list[Word]:
    """Return the words that may be the folder of a repository whose hooks git runs: it pushes to them."""
    at = git_command(words)
    command = words[at].value if program(words) == "git" and at < len(words) else ""
    if command == "remote":
        return _parts(words[at + 3 :])
    operands = [word for word in words[at + 1 :] if not word.value.startswith("-")]
    return _parts(tuple(operands[:1])) if command == "push" else []


def git_command(words: Words) -> int:
    """Return the number of the word that is the command of git."""
    at = 1
    while at < len(words) and words[at].value.startswith("-"):
        at += 2 if words[at].value in ("-C", "-c", "--git-dir", "--work-tree", "--namespace") else 1
    return at


def _is_looked_at(words: Words) -> bool:
    name = program(words)
    if not name or words[0].value.startswith("./") or INTERPRETERS.fullmatch(name):
        return False
    if is_wrapper(name) and name not in _RECORDERS:
        return False
    return not any(kind.fullmatch(name) for kind in (_WRITES_NOTHING, _SAYS_SO, _RUNS_THE_PROJECT))


def _names_output(value: str) -> bool:
    if not value.startswith("-") or len(value) < 2:
        return False
    if re.fullmatch(r"-[oO][^=]*|-[a-zA-Z]{1,2}[oO]", value):
        return True
    parts = re.split("[-_.:]+", value.partition("=")[0].lstrip("-").lower())
    if parts[0] == "no" or _NO_OUTPUT.fullmatch(parts[-1]):
        return False
    return any(_OUTPUT_WORDS.fullmatch(part) for part in parts) or parts[-2:] == ["in", "place"]


def _may_be_option(word: Word) -> bool:
    return has_gap(word.value[:1]) and not word.value.startswith((NUMBER, PLACE))


def _parts(words: Words) -> list[Word]:
    """Return words, and parts of words, that may be files."""
    found = []
    for word in words:
        value = word.value
        if value.startswith("-"):
            option, equals, rest = value.partition("=")
            value = rest if equals else option[2:] if not value.startswith("--") else ""
        elif re.match(r"[\w.-]+=", value):
            value = value.partition("=")[2]
        elif re.match(r"[\w+.-]+://", value) and not value.startswith("file:"):
            continue
        if value:
            found.append(Word(word.source, value.removeprefix("file://")))
    return found


def _other_than(harmless: _Harmless, words: Words, named: int, name: str) -> str | None:
    """Return why a word of a command may be none of the harmless ones."""
    operands, at, options = 0, 1, True
    while at < len(words):
        word, known, takes_next = words[at], True, False
        if word.value == "--":
            options = False
        elif options and word.value.startswith("-") and word.value != "-":
            known, takes_next = _option(harmless, word.value)
            following = words[at + 1].value if takes_next and at + 1 < len(words) else ""
            if name == "curl" and _FORMAT_OF_FILE.fullmatch(word.value + following):
                known = False
        else:
            operands += 1
            known = operands <= harmless.operands and not _may_be_option(word)
        if at >= named and not known:
            return f"`{name} {word.source}` may write a file"
        at += 2 if takes_next else 1
    return None


def _option(harmless: _Harmless, value: str) -> tuple[bool, bool]:
    """Say whether an option is harmless, and whether the next word is its value."""
    if value.startswith("--"):
        option, equals, _ = value[2:].partition("=")
        long = harmless.long.split()
        return option in long or f"{option}=" in long, not equals and f"{option}=" in long
    rest = value[1:].lstrip(harmless.flags)
    return not rest or rest[0] in harmless.valued, len(value) == 2 and bool(rest)  # of glued letters it is not sure
