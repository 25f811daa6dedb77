"""Forms of programs that do more than their name says: they run a command or write a file.

`git -c alias.x=!rm x`, `tar --to-command` and `sort -o` are such forms. A table has those of each program; git and sed
have functions of their own.
"""

import re
from typing import Final

from msgspec import Struct

from spindle.agent.fences.shell.gaps import PLACE, has_gap
from spindle.agent.fences.shell.programs import Word, Words, is_read_inside, is_wrapper, program


class _Forms(Struct, frozen=True):
    """Forms of a program that do what its name does not announce."""

    runs: str = ""
    """Long options that run a command; they may be cut short."""
    runs_words: str = ""
    """A regular expression for other words that do."""
    more: str = ""
    """Long options that write a file, or make it read a file that may hold commands."""
    more_words: str = ""


_VIM: Final = _Forms("cmd", r"-[cS].*|\+.+", "", "-[suUwW].*")
_SSH: Final = _Forms(
    "", ".*(?:ProxyCommand|LocalCommand|KnownHostsCommand).*|-S.*", "", "-[46AaCfGgKkMNnqsTtVvXxYy]*[oFJE].*"
)
_AWK: Final = _Forms(
    "", r'.*(?:system\s*\(|getline|\|&|\|\s*"|"\s*\|).*', "file exec load include", "-[fEliDdopv].*|.*[|@>].*"
)
_FD: Final = _Forms("exec exec-batch", "-[a-zA-Z]*[xX].*")
_FORMS: Final = {
    "tar": _Forms(
        "to-command checkpoint-action use-compress-program rsh-command info-script new-volume-script rmt-command",
        "-[A-Za-z]*[IF].*",
        "listed-incremental index-file volno-file",
        "-[A-Za-z]*g.*|[cxtru][A-Za-z]*[IF][A-Za-z]*",
    ),
    "rg": _Forms("pre hostname-bin"),
    "fd": _FD,
    "fdfind": _FD,
    "sort": _Forms("compress-program", "", "output", "-[a-zA-Z]*o.*"),
    "split": _Forms("filter"),
    "shuf": _Forms("", "", "output", "-[a-zA-Z]*o.*"),
    "iconv": _Forms("", "", "output", "-o.*"),
    "file": _Forms("", "", "compile magic-file", "-[a-zA-Z]*[Cm].*"),
    "install": _Forms("strip-program"),
    "man": _Forms("pager html browser config-file", "-[a-zA-Z]*[PHC].*"),
    "less": _Forms(
        "lesskey-content lesskey-src", r"\+!.*", "log-file LOG-FILE lesskey-file", r"-[A-Za-z#~]*[okO].*|\+.*"
    ),
    "bat": _Forms("pager lessopen", "", "generate-config-file", "cache"),
    "ssh": _SSH,
    "scp": _SSH,
    "sftp": _SSH,
    "rsync": _Forms("rsh rsync-path", "-[a-zA-Z]*e.*", "log-file write-batch daemon"),
    "zip": _Forms("unzip-command", "-TT.*", "", "-[a-zA-Z]*T.*"),
    "curl": _Forms("", "", "", r".*%output\{.*"),
    "wget": _Forms("use-askpass"),
    "find": _Forms("", "", "", "-delete|-fprint.*|-fls"),
    "go": _Forms("", "--?(?:exec|toolexec|vettool)(?:=.*)?", "", "generate|run|tool"),
    "cargo": _Forms("config"),
    "tcpdump": _Forms("", "-[a-zA-Z]*z.*", "", "-[a-zA-Z]*w.*"),
    "yq": _Forms("", "", "inplace in-place split-exp split-exp-file", "-[a-zA-Z]*[is].*"),
    "tree": _Forms("", "", "", "-[a-zA-Z]*[oR].*"),
    "npm": _Forms("script-shell", "", "node-options"),
    "gh": _Forms("", "", "", "alias|extension|codespace|config"),
    "vim": _VIM,
    "vi": _VIM,
    "nvim": _VIM,
    "view": _VIM,
    "ex": _VIM,
    "emacs": _Forms("eval funcall", "-f|-eval", "load script", "-l"),
    "gcc": _Forms("", "-wrapper", "", "-fplugin.*|@.*|-B.*|-specs.*"),
    "make": _Forms("eval", "SHELL=.*", "file makefile", "-[a-zA-Z]*[fE].*"),
    "awk": _AWK,
    "gawk": _AWK,
    "mawk": _AWK,
    "nawk": _AWK,
    "psql": _Forms("", r".*\\!.*", "", r".*\\.*"),
    "sqlite3": _Forms(
        "", r".*\.(?:shell|system).*", "", r".*\.(?:load|output|once|import|read|save|backup).*|-cmd|-init"
    ),
}
_GIT: Final = {
    "": _Forms("config-env exec-path=", r"-c.*", "git-dir work-tree attr-source"),
    "*": _Forms(
        "upload-pack receive-pack exec extcmd",
        "ext::.*|fd::.*",
        "ext-diff textconv template output output-directory no-index contents unsafe-paths separate-git-dir",
    ),
    "clone": _Forms("config", "-[uc].*"),
    "grep": _Forms("open-files-in-pager", "-[a-zA-Z]*O.*"),
    "rebase": _Forms("strategy", "-[a-zA-Z]*x.*|-[ivqnfkr]*s.*"),
    **dict.fromkeys(["merge", "pull"], _Forms("strategy", "-[nevqfr]*s.*")),
    **dict.fromkeys(["cherry-pick", "revert"], _Forms("strategy")),
    "bisect": _Forms("", "run", "", "visualize|view"),
    "submodule": _Forms("", "foreach", "", "update|add"),
    "archive": _Forms("", "", "remote", "-o.*"),
    "format-patch": _Forms("", "", "", "-o.*"),
    "hook": _Forms("", "", "", "run"),
    "fast-import": _Forms("", "", "export-marks export-pack-edges allow-unsafe-features"),
    "filter-branch": _Forms("", ".*"),
    "difftool": _Forms("", "-[a-zA-Z]*x.*", "", ".*"),
    **dict.fromkeys(["send-email", "instaweb", "web--browse"], _Forms("", ".*")),
    **dict.fromkeys(
        ["mergetool", "daemon", "shell", "credential", "for-each-repo"],
        _Forms("", "", "", ".*"),
    ),
}
"""By command; `*` is for all, and the empty text for options before the command."""
_READS_ON: Final = frozenset({"find", "awk", "gawk", "mawk", "nawk", "psql", "sqlite3", "make"})
"""Programs for which what comes after `--` is more than names of files."""
_SETS = re.compile(r"-e|--edit|--un.*|--re.*|--add|--append|--fixed-value")
"""Options of `git config` that change something, also with only one word more."""
_HARMLESS_SETTING = re.compile(
    r"(?:user\.(?:name|email)|color\..*|advice\..*|core\.(?:quotepath|autocrlf|safecrlf|abbrev)|init\.defaultbranch|"
    r"commit\.gpgsign|tag\.gpgsign|log\.\w+|diff\.(?:renames|context|noprefix)|gc\.auto|pull\.(?:rebase|ff)|merge\.ff|"
    r"safe\.directory|http\.(?:postbuffer|lowspeed\w+))(?:=[^!\0]*)?|(?:core\.)?pager=(?:cat)?",
    re.IGNORECASE,
)
_HARMLESS_SED = re.compile(
    r"(?s)(?:[\s;{}]|(?:\d+|\$|/(?:[^/\\\n]|\\.)*/I?)(?:[,~+]+(?:\d+|\$|/(?:[^/\\\n]|\\.)*/I?))?|!|[pdqQ=nNgGhHxDPl](?![a-zA-Z])|"
    r"s([/|#,@:])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gpiIm0-9]*(?![a-zA-Z])|[aic]\\?[^\n]*+)*+"
)
_GIT_VALUED: Final = (
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--config-env",
    "--exec-path",
    "--attr-source",
)


def is_known(name: str) -> bool:
    """Say whether the program has forms that a rule for all of them would cover by mistake."""
    return name in _FORMS or is_wrapper(name) or name in ("git", "sed")


def is_read(name: str) -> bool:
    """Say whether `look_inside` or `hidden_effect` finds all that the program runs."""
    return is_read_inside(name) or name == "git"


def hidden_effect(words: Words, *, certain: bool) -> str | None:
    """Return what the command does beyond its name, in words; None: nothing. `certain` leaves out mere writing, and
    words that are not known before."""
    name = program(words)
    if name == "git":
        return _of_git(words[1:], certain)
    if name == "sed":
        return _of_sed(words[1:], certain)
    forms = _FORMS.get(name)
    if forms is None:
        return None
    return _effect(forms, words[1:], name, certain)


def _effect(forms: _Forms, words: Words, name: str, certain: bool) -> str | None:
    for word in words:
        value = word.value
        if value == "--":
            if name not in _READS_ON:
                return None
        elif has_gap(value[:1]) and not value.startswith(PLACE):
            if not certain:
                return f"`{word.source}` may be an option of {name}"
        elif _is_form(value, forms.runs, forms.runs_words):
            return f"`{name} {value}` may run other commands"
        elif not certain and _is_form(value, forms.more, forms.more_words):
            return f"`{name} {value}` may write files or run other commands"
    return None


def _is_form(value: str, long: str, words: str) -> bool:
    option = value.partition("=")[0][2:]
    if value.startswith("--") and any(
        name.rstrip("=").startswith(option) for name in long.split() if name[-1:] != "=" or "=" in value
    ):
        return True
    return bool(words) and re.fullmatch(words, value, re.DOTALL) is not None


def _of_git(words: Words, certain: bool) -> str | None:
    at = 0
    while at < len(words) and words[at].value.startswith("-"):
        value = words[at].value
        if value == "-c" and at + 1 < len(words) and _HARMLESS_SETTING.fullmatch(words[at + 1].value):
            at += 2
            continue
        if found := _effect(_GIT[""], words[at : at + 1], "git", certain):
            return found
        at += 2 if value in _GIT_VALUED else 1
    if at < len(words) and not words[at].literal:
        return None if certain else f"the command of git, `{words[at].source}`, is not known"
    command, rest = words[at].value if at < len(words) else "", words[at + 1 :]
    if command == "config":
        return _of_git_config(rest)
    if command == "commit":  # its texts are no options
        rest = tuple(
            w
            for before, w in zip((words[at], *rest), rest, strict=False)
            if before.value not in ("-m", "-am", "--message")
        )
    elif command in _GIT and (found := _effect(_GIT[command], rest or words[at : at + 1], f"git {command}", certain)):
        return found
    return _effect(_GIT["*"], rest, f"git {command}", certain)


def _of_git_config(words: Words) -> str | None:
    values = [word.value for word in words if not word.value.startswith("-")]
    options = [word.value for word in words if word.value.startswith("-")]
    reads = any(re.fullmatch("--get.*|--list|-l", one) for one in options) or values[:1] in (["get"], ["list"])
    reads = reads or (len(values) < 2 and values != ["edit"] and not any(map(_SETS.fullmatch, options)))
    elsewhere = any(re.match("-f|--f|--bl", one) for one in options)
    if reads or (_HARMLESS_SETTING.fullmatch("=".join(values[:2])) and not elsewhere):
        return None
    return "a setting of git may run other commands"


def _of_sed(words: Words, certain: bool) -> str | None:
    scripts: list[str] = []
    others: list[Word] = []
    at = 0
    while at < len(words):
        value = words[at].value
        at += 1
        if value == "--":
            others += words[at:]
            break
        if re.fullmatch("-[nErszu]*e|--expression", value):
            scripts += [word.value for word in words[at : at + 1]]
            at += 1
        elif re.fullmatch(
            "-[nErszu]+|--(?:quiet|silent|regexp-extended|null-data|separate|unbuffered|debug|posix|version|help)",
            value,
        ):
            pass
        elif re.match("-[nErsz]*i|--in-place", value):
            if not certain:
                return "`sed -i` writes files"
        elif value.startswith(("-", "\0")):
            if not certain:
                return f"`sed {words[at - 1].source}` may run other commands"
        else:
            others.append(words[at - 1])
    if not scripts and others:
        scripts = [others[0].value]
    for script in scripts:
        if certain and not has_gap(script):
            if re.search(
                r"(?:^|[;{}\n0-9$/!])\s*e(?:\s|$)|[/|#,@:][gpiIm0-9]*e[gpiIm0-9]*\s*(?:$|[;}\n])", script
            ) and not _HARMLESS_SED.fullmatch(script):
                return "this script of sed may run other commands"
        elif not certain and (has_gap(script) or not _HARMLESS_SED.fullmatch(script)):
            return "this script of sed may run commands or write files"
    return None
