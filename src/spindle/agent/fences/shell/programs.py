"""Programs that run other commands: `sudo`, `xargs`, `sh -c` and the like. Their commands are read from their words."""

import itertools
import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from spindle.agent.fences.shell.gaps import ANY, ONE, STAR, WORDS, has_gap

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
            parts += [_filled(rest[:end], "{}", found_file(words))] if end else []
    return parts


def found_file(words: Words) -> str:
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
    if not all(word.literal for word in words[:at]) or has_gap(given.get("-c", "")):
        raise Unclear(f"the command that {name} runs is not known")
    return _behind_options(words[at:], name, wrapper, given)


def _behind_options(rest: Words, name: str, wrapper: _Wrapper, given: dict[str, str]) -> Inside:
    """Read the words behind the options and arguments of a wrapper: a command, or a shell line."""
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
        if option == "-" and name not in ("env", "su"):  # to others it is a program of that name
            break
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


def is_wrapper(name: str) -> bool:
    """Say whether the program runs the command that its words name."""
    return name in _WRAPPERS or name in _SHELLS


def runs_others(name: str) -> bool:
    """Say whether the program does nothing but run what it is told to."""
    return is_wrapper(name) or INTERPRETERS.fullmatch(name) is not None


def is_read_inside(name: str) -> bool:
    """Say whether `look_inside` finds all that the program runs."""
    return is_wrapper(name) or name in _BUILTINS
