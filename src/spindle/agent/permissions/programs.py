"""What programs do with their words: which commands they run, and which forms do more than their name says.

`sudo`, `xargs`, `sh -c` and the like run commands that can be read from their words. Others run a command or write a
file only in some forms: `git -c alias.x=!rm x`, `tar --to-command`, `sort -o`. One table for each.
"""

import itertools
import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from spindle.agent.permissions.gaps import ANY, ONE, PLACE, STAR, WORDS, has_gap

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=", re.ASCII)
_RUNNING_VARIABLE = re.compile(
    r"BASH_ENV|PS4|PROMPT_COMMAND|SHELLOPTS|BASHOPTS|BASH_FUNC.*|GLOBIGNORE|IFS|CDPATH|BROWSER|VISUAL|LESS(?:OPEN|CLOSE)|"
    r"GIT_(?:SSH|EXTERNAL|CONFIG|EXEC|PROXY).*|.*(?:PAGER|EDITOR|ASKPASS)|RSYNC_RSH|TAR_OPTIONS"
)
"""Variables from which a shell or another program takes a command, or that change how a line is read."""
_SHELLS = frozenset(
    {"sh", "bash", "rbash", "dash", "zsh", "ksh", "ksh93", "mksh", "ash", "fish", "csh", "tcsh", "yash"}
)
INTERPRETERS = re.compile(
    r"python[\d.]*|pypy\d*|node|nodejs|deno|bun|perl|ruby|php|lua\w*|tclsh|expect|osascript|R|Rscript|ghci|"
    r"[gmn]?awk|sed|ssh|docker|podman|kubectl|gdb|vim?|nvim|emacs|ed|ex|rm|source|[.]"
)
"""Programs that do whatever they are told."""
_STREAMS = re.compile(r"/dev/(?:stdin|fd/.*|tty)|/proc/.*|-")
"""Files that are no files: their text comes from the line itself."""


class Unclear(Exception):
    """The line cannot be read; says why."""


class Word(Struct, frozen=True):
    source: str
    """As it was written."""
    value: str
    """Without its quotes; parts that are not known before the command runs are gaps."""

    @property
    def literal(self) -> bool:
        return not has_gap(self.value)


Words = tuple[Word, ...]


class Inside(Struct):
    """What a command runs."""

    commands: list[Words] = []
    script: str | None = None
    """A text that a shell reads."""
    file: str | None = None
    """A file that a shell reads."""
    free: bool = False
    """Whether the commands inside are all that it does."""


def program(words: Words) -> str:
    """Return the name of the program without its folder."""
    return words[0].value.rpartition("/")[2] if words else ""


def check_variable(name: str, value: str) -> None:
    """Raise `Unclear` if a program may take a command from this variable."""
    if _RUNNING_VARIABLE.fullmatch(name) and value not in ("", "cat", "true", ":", "less", "vi", "vim"):
        raise Unclear(f"the variable {name} may change which commands run")


# -- programs that run what follows --------------------------------------------------------------


class _Wrapper(Struct, frozen=True):
    """A program that runs the command that follows its options. An option that is not listed makes the line unclear."""

    flags: str = ""
    valued: str = ""
    """Options with a value."""
    long: str = ""
    """Long options; those that end in `=` have a value."""
    arguments: int = 0
    """Words between the options and the command."""
    needs_rule: bool = True
    """False if it changes nothing about the command: a rule for the command is enough."""
    script: str = ""
    """The option whose value is a shell line; `*`: all words behind the options are one."""


_SU: Final = _Wrapper("flmpP", "gGsw", "login preserve-environment pty group= supp-group= shell=", 1, script="-c")
_ARCH: Final = _Wrapper("vRFZLXBIST3", "p", "verbose addr-no-randomize 32bit", needs_rule=True)
_LOADER: Final = _Wrapper(
    "", "", "library-path= preload= audit= argv0= inhibit-cache inhibit-rpath= glibc-hwcaps-prepend="
)
_WRAPPERS: Final = {
    "sudo": _Wrapper(
        "AbEHknPSi", "ugpCTrtDhRU", "preserve-env non-interactive user= group= login set-home stdin chdir="
    ),
    "doas": _Wrapper("nLs", "uCa"),
    "env": _Wrapper("i0v", "uC", "ignore-environment null unset= chdir= debug"),
    "xargs": _Wrapper(
        "0rtpox",
        "InPLdsaE",
        "null no-run-if-empty verbose interactive exit max-args= max-procs= max-lines= delimiter= arg-file= replace=",
    ),
    "exec": _Wrapper("cl", "a"),
    "setsid": _Wrapper("cfw", "", "ctty fork wait"),
    "busybox": _Wrapper(),
    "toybox": _Wrapper(),
    "chroot": _Wrapper("", "", "userspec= groups= skip-chdir", 1),
    "flock": _Wrapper("enosuxF", "wE", "exclusive shared nonblock unlock timeout= close no-fork", 1, script="-c"),
    "strace": _Wrapper("fqtTvyrkCc", "epsPEobaIOSuX", "trace= output="),
    "ltrace": _Wrapper("fcCSrtT", "eosnpul"),
    "watch": _Wrapper("bcdegptx", "nq", "interval= differences no-title color", script="*"),
    "unshare": _Wrapper("muinpUCTrfc", "SGRw", "mount uts ipc net pid user fork map-root-user mount-proc root= wd="),
    "nsenter": _Wrapper("amuinpUCTF", "tSGrw", "target= all mount uts ipc net pid user"),
    "setpriv": _Wrapper(
        "d",
        "",
        "ruid= euid= reuid= rgid= egid= regid= clear-groups keep-groups init-groups groups= inh-caps= ambient-caps= "
        "bounding-set= no-new-privs nnp securebits= pdeathsig= reset-env selinux-label= apparmor-profile=",
    ),
    "taskset": _Wrapper("ac", "", "all-tasks cpu-list", 1),
    "chrt": _Wrapper("abdfioRv", "TPD", "all-tasks batch deadline fifo idle other rr verbose reset-on-fork", 1),
    "numactl": _Wrapper("al", "imNCpx", "interleave= membind= cpunodebind= physcpubind= localalloc preferred="),
    "setarch": _ARCH,
    "linux32": _ARCH,
    "linux64": _ARCH,
    "i386": _ARCH,
    "x86_64": _ARCH,
    "prlimit": _Wrapper(
        "", "", "core= cpu= data= fsize= nofile= nproc= rss= stack= as= locks= memlock= rtprio= verbose"
    ),
    "runuser": _Wrapper("flmpP", "gGsuw", "user= login preserve-environment", script="-c"),
    "su": _SU,
    "script": _Wrapper("aefqO", "EIOTBom", "append flush quiet return timing=", script="-c"),
    "ssh": _Wrapper("46AaCfGgKkMNnqsTtVvXxYy", "BbcDEeFIiJLlmOopQRSWw", arguments=1, script="*"),
    "unbuffer": _Wrapper("p"),
    "catchsegv": _Wrapper(),
    "ld.so": _LOADER,
    "command": _Wrapper("p", needs_rule=False),
    "builtin": _Wrapper(needs_rule=False),
    "time": _Wrapper("pvaq", "fo", "verbose portability quiet append format=", needs_rule=False),
    "timeout": _Wrapper("fpv", "sk", "foreground preserve-status verbose signal= kill-after=", 1, needs_rule=False),
    "nice": _Wrapper("", "n", "adjustment=", needs_rule=False),
    "ionice": _Wrapper("t", "cn", "class= classdata= ignore", needs_rule=False),
    "nohup": _Wrapper(needs_rule=False),
    "stdbuf": _Wrapper("", "ioe", "input= output= error=", needs_rule=False),
}
_ARCHITECTURE = re.compile(r"x86_64|i\d86|linux\d+|uname26|aarch64|arm\w*|ppc\w*|s390x?|mips\w*|riscv\w*")
_WRITING_OPTION: Final = {"time": "-o", "strace": "-o", "ltrace": "-o"}


def look_inside(words: Words) -> Inside:
    """Find what a command runs. Raises `Unclear`."""
    name = program(words)
    if re.fullmatch(r"ld-(?:linux|musl).*|ld64?\.so.*", name):
        name = "ld.so"
    if name in _SHELLS:
        return _of_shell(words)
    if name in _BUILTINS:
        return _BUILTINS[name](words)
    if name in _WRAPPERS and not (name == "command" and len(words) > 1 and words[1].value in ("-v", "-V")):
        return _wrapped(words, name, _WRAPPERS[name])
    return Inside()


def _of_eval(words: Words) -> Inside:
    return Inside(script=_joined(words[2 if words[1:] and words[1].value == "--" else 1 :]), free=True)


def _of_trap(words: Words) -> Inside:
    given = tuple(word for word in words[1:] if word.value != "--")
    return Inside(script="" if given and given[0].value.startswith("-") else _joined(given[:1]), free=True)


def _of_jobs(words: Words) -> Inside:
    return Inside([words[2:]] if len(words) > 2 and words[1].value == "-x" else [])


def _joined(words: Words) -> str:
    if not all(word.literal for word in words):
        raise Unclear("it runs a text that is not known before")
    return " ".join(word.value for word in words)


def _file_to_run(words: Words) -> str | None:
    first = next((word.value for word in words if word.value != "--"), None)
    if first is not None and (has_gap(first) or _STREAMS.fullmatch(first)):
        raise Unclear("a shell reads commands from elsewhere")
    return first


def _of_shell(words: Words) -> Inside:
    at, takes_script = 1, False
    while at < len(words) and re.match("[-+].", words[at].value):
        option = words[at].value
        at += 1
        if option == "--":
            break
        if option in ("--rcfile", "--init-file") or has_gap(option):
            raise Unclear("a shell reads commands from elsewhere")
        if not option.startswith("--"):
            takes_script = takes_script or (option[0] == "-" and "c" in option)
            if "s" in option or "i" in option:
                raise Unclear("a shell reads commands from elsewhere")
            at += option[1:].count("o") + option[1:].count("O")
    if takes_script:
        return Inside(script=_joined(words[at : at + 1]), free=True)
    if at >= len(words) and not any(word.value in ("--version", "--help") for word in words):
        raise Unclear("a shell reads commands from elsewhere")
    return Inside(file=_file_to_run(words[at:]))


def _found_commands(words: Words) -> list[Words]:
    if any(ANY in word.value or WORDS in word.value for word in words[1:] if not re.match(r"[\w./]", word.value)):
        raise Unclear("not all arguments of find are known")
    parts = []
    for index, word in enumerate(words):
        if word.value in ("-exec", "-execdir", "-ok", "-okdir"):
            rest = words[index + 1 :]
            end = next((number for number, item in enumerate(rest) if item.value in (";", "+")), len(rest))
            parts += [_filled(rest[:end], "{}", _found_file(words))] if end else []
    return parts


def _found_file(words: Words) -> str:
    """Return what the paths that find comes across look like: the pattern of `-name` ends them."""
    values = [word.value for word in words]
    if values.count("-name") != 1 or any(value in ("-o", "-or", ",", "!", "-not") for value in values):
        return ANY
    name = next((after for value, after in itertools.pairwise(values) if value == "-name"), ANY)
    return ANY if re.search(r"[\[\\]", name) else f"{ANY}/{name.replace('*', STAR).replace('?', ONE)}"


def _filled(words: Words, mark: str, value: str) -> Words:
    return tuple(Word(word.source, word.value.replace(mark, value)) for word in words)


def _wrapped(words: Words, name: str, wrapper: _Wrapper) -> Inside:
    """Find the command behind the options of a wrapper."""
    if wrapper is _ARCH and len(words) > 1 and _ARCHITECTURE.fullmatch(words[1].value):
        words = (words[0], *words[2:])
    given: dict[str, str] = {}
    at = _read_options(words, name, wrapper, given)
    at = _skip_arguments(words, name, at, given) + wrapper.arguments
    if name == "flock" and len(words) > at + 1 and words[at].value in ("-c", "--command"):
        given["-c"], words = words[at + 1].value, words[:at]
    rest = words[at:]
    if not all(word.literal for word in words[:at]) or has_gap(given.get("-c", "")):
        raise Unclear(f"the command that {name} runs is not known")
    if rest and rest[0].value.startswith("-"):
        raise Unclear(f"the option {rest[0].value} of {name} is not known")
    if wrapper.script == "*":
        return Inside(script=_joined(rest) if rest else None)
    if wrapper.script:
        return _with_script(rest, name, given.get(wrapper.script))
    if name == "xargs" and rest:
        mark = given.get("-I") or given.get("--replace")
        rest = _filled(rest, mark, ANY) if mark else (*rest, Word("{}", WORDS))
    return Inside([rest] if rest else [], free=not wrapper.needs_rule and _WRITING_OPTION.get(name) not in given)


def _skip_arguments(words: Words, name: str, at: int, given: dict[str, str]) -> int:
    """Skip the variables that a wrapper sets, and the user's name that only some forms have."""
    while name in ("env", "sudo", "doas") and at < len(words) and "=" in words[at].value:
        variable, _, value = words[at].value.partition("=")
        check_variable(variable, value)
        at += 1
    return at + (name == "runuser" and not given.keys() & {"-u", "--user"})


def _with_script(rest: Words, name: str, script: str | None) -> Inside:
    """Read a wrapper that takes a shell line, or else a command; without both it starts a shell."""
    if script is None and (not rest or name in ("su", "script")):
        raise Unclear(f"`{name}` starts a shell")
    return Inside([rest] if script is None else [], script=script)


def _read_options(words: Words, name: str, wrapper: _Wrapper, given: dict[str, str]) -> int:
    """Put the options of a wrapper into `given`, each with its value. Returns the number of the word behind them."""
    long = wrapper.long.split() + (["command="] if wrapper.script == "-c" else [])
    valued = wrapper.valued + wrapper.script.lstrip("-*")
    at = 1
    while at < len(words) and (option := words[at].value).startswith("-"):
        at += 1
        if option in ("-", "--"):
            break
        if option.startswith("--"):
            option, equals, value = option.partition("=")
            takes_next = not equals and f"{option[2:]}=" in long
            if not takes_next and f"{option[2:]}=" not in long and option[2:] not in long:
                raise Unclear(f"the option {option} of {name} is not known")
            option = "-c" if option == "--command" else option
        elif name == "nice" and re.fullmatch(r"-\d+", option):
            continue
        else:
            flags, letter, value = _letters(option[1:], valued)
            if set(flags) - set(wrapper.flags):
                raise Unclear(f"the option {option} of {name} is not known")
            option, takes_next = f"-{letter}", bool(letter) and not value
        if takes_next:
            value, at = words[at].value if at < len(words) else "", at + 1
        given[option] = value
    return at


def _letters(letters: str, valued: str) -> tuple[str, str, str]:
    """Split the letters of an option: those without a value, the one with a value, the value."""
    at = next((at for at, letter in enumerate(letters) if letter in valued), len(letters))
    return letters[:at], letters[at : at + 1], letters[at + 1 :]


_BUILTINS: Final[dict[str, Callable[[Words], Inside]]] = {
    "find": lambda words: Inside(_found_commands(words)),
    "source": lambda words: Inside(file=_file_to_run(words[1:])),
    ".": lambda words: Inside(file=_file_to_run(words[1:])),
    "eval": _of_eval,
    "trap": _of_trap,
    "jobs": _of_jobs,
}


# -- dangerous forms -----------------------------------------------------------------------------


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
_SSH: Final = _Forms("", ".*(?:ProxyCommand|LocalCommand|KnownHostsCommand).*|-S.*", "", "-[oFJE].*")
_AWK: Final = _Forms(
    "", r'.*(?:system\s*\(|getline|\|&|\|\s*"|"\s*\|).*', "file exec load include", "-[fEliDdopv].*|.*[|@>].*"
)
_FD: Final = _Forms("exec exec-batch", "-[a-zA-Z]*[xX].*")
_FORMS: Final = {
    "tar": _Forms(
        "to-command checkpoint-action use-compress-program rsh-command info-script new-volume-script rmt-command",
        "-[A-Za-z]*[IF].*",
        "",
        "[cxtru][A-Za-z]*[IF][A-Za-z]*",
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
    "man": _Forms("pager html browser", "-[a-zA-Z]*[PH].*"),
    "less": _Forms("", r"\+!.*", "log-file LOG-FILE lesskey-file", r"-[okO].*|\+.*"),
    "bat": _Forms("pager"),
    "ssh": _SSH,
    "scp": _SSH,
    "sftp": _SSH,
    "rsync": _Forms("rsh rsync-path", "-[a-zA-Z]*e.*", "log-file write-batch daemon"),
    "zip": _Forms("unzip-command", "-TT.*", "", "-[a-zA-Z]*T.*"),
    "curl": _Forms(
        "", "", "config output remote-name dump-header cookie-jar output-dir trace hsts", "-[a-zA-Z#]*[oOcDK].*"
    ),
    "wget": _Forms("use-askpass", "", "execute config", "-[a-zA-Z]*e.*"),
    "find": _Forms("", "", "", "-delete|-fprint.*|-fls"),
    "go": _Forms("", "--?(?:exec|toolexec|vettool)(?:=.*)?", "", "generate|run|tool"),
    "cargo": _Forms("", "", "config"),
    "tcpdump": _Forms("", "-[a-zA-Z]*z.*", "", "-[a-zA-Z]*w.*"),
    "yq": _Forms("", "", "inplace", "-[a-zA-Z]*i.*"),
    "tree": _Forms("", "", "", "-o.*"),
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
        "ext-diff textconv template output output-directory no-index contents",
    ),
    "clone": _Forms("config", "-[uc].*"),
    "grep": _Forms("open-files-in-pager", "-[a-zA-Z]*O.*"),
    "rebase": _Forms("", "-[a-zA-Z]*x.*"),
    "bisect": _Forms("", "run"),
    "submodule": _Forms("", "foreach", "", "update|add"),
    "archive": _Forms("", "", "remote", "-o.*"),
    "format-patch": _Forms("", "", "", "-o.*"),
    "hook": _Forms("", "", "", "run"),
    "fast-import": _Forms("", "", "export-marks export-pack-edges"),
    "filter-branch": _Forms("", ".*"),
    "difftool": _Forms("", "-[a-zA-Z]*x.*", "", ".*"),
    **dict.fromkeys(
        ["mergetool", "send-email", "instaweb", "daemon", "shell", "credential", "for-each-repo"],
        _Forms("", "", "", ".*"),
    ),
}
"""By command; `*` is for all, and the empty text for options before the command."""
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


def runs_others(name: str) -> bool:
    """Say whether the program does nothing but run what it is told to."""
    return name in _WRAPPERS or name in _SHELLS or INTERPRETERS.fullmatch(name) is not None


def is_known(name: str) -> bool:
    """Say whether the program has forms that a rule for all of them would cover by mistake."""
    return name in _FORMS or name in _WRAPPERS or name in _SHELLS or name in ("git", "sed")


def is_read(name: str) -> bool:
    """Say whether `look_inside` or `hidden_effect` finds all that the program runs."""
    return name in _WRAPPERS or name in _SHELLS or name in _BUILTINS or name == "git"


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
            return None
        if has_gap(value[:1]) and not value.startswith(PLACE):
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
        return _of_git_config(rest, certain)
    if command == "commit":  # its texts are no options
        rest = tuple(
            w
            for before, w in zip((words[at], *rest), rest, strict=False)
            if before.value not in ("-m", "-am", "--message")
        )
    elif command in _GIT and (found := _effect(_GIT[command], rest or words[at : at + 1], f"git {command}", certain)):
        return found
    return _effect(_GIT["*"], rest, f"git {command}", certain)


def _of_git_config(words: Words, certain: bool) -> str | None:
    values = [word.value for word in words if not word.value.startswith("-")]
    reads = any(re.fullmatch("--get.*|--list|-l|get|list", word.value) for word in words) or len(values) < 2
    if reads or _HARMLESS_SETTING.fullmatch("=".join(values[:2])):
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
