"""Words of other programs that people type here, in the chat after a slash and on the command line first.

Each does the same here, or says in one line what does. The words are commands of pi, oh-my-pi, Claude Code, codex,
opencode and Gemini. A command of ours, of an extension or of a template goes first where it has the same name.
"""

import re
from typing import Final

from msgspec import Struct


class Word(Struct, frozen=True):
    chat: str = ""
    """What `/word` means: a command with its slash, which is run, or what to do instead, in a line."""
    line: str = ""
    """What to do instead of `spindle word`. At the end, `UPDATE` stands for the command that brings a newer version."""
    is_lone: bool = True
    """Whether `line` only holds for the word alone, because a message may begin with it."""


_PAGE: Final = "spindle export writes a session as a page that you can give to others"
_SETTINGS: Final = "settings are in settings.json (spindle doctor says where)"
_STATUS: Final = "spindle doctor says what is found and which model would be used"
_PROVIDERS: Final = "spindle keys lists providers that have a key, spindle models their models"
_SESSIONS: Final = "spindle sessions lists what was said here"
_ASK: Final = 'ask with spindle -p "…", or in the chat: spindle'
_EXTENSIONS: Final = "spindle extensions lists extensions, begins new ones and chooses which are loaded"
_NEWER: Final = "a newer Spindle comes with UPDATE"
_NEWER_CHAT: Final = "A newer Spindle comes with your installer: spindle update, in a shell, says with which command"
_CHANGES: Final = "What is new stands in CHANGELOG.md of the project; spindle version prints the version"
_COST: Final = "/cost in the chat tells tokens and money of a session; spindle sessions show, later"
_TOOLS: Final = "spindle doctor lists the tools of a new session; --tools A,B chooses"
_SKILLS: Final = "spindle doctor lists the skills that are found here"
_AGENTS: Final = "subagents are Markdown files in agents/ of the agent directory, or in .pi/agents of a project"
_UNDO: Final = "/undo in the chat takes back a message and what it did to files: spindle -c"
_REPORT: Final = "Tell what is wrong where the project keeps its issues; spindle doctor prints what helps to find it"
_THEME: Final = "The chat has the colours of your terminal; NO_COLOR=1 turns them off"
_REPEAT: Final = "A script repeats a prompt, as in: while sleep 600; do spindle -c -p 'Look again'; done"
_PAGE_HERE: Final = "A session in a browser, of a phone too: spindle serve, in a shell; --attach is for a terminal"

WORDS: Final[dict[str, Word]] = {
    # What the agent is, and what it costs.
    "status": Word(line=_STATUS),
    "context": Word("/status"),
    "usage": Word("/cost", _COST),
    "stats": Word("/cost", _COST),
    "cost": Word(line=_COST),
    "session": Word("/cost", "spindle sessions lists, shows, renames and deletes sessions"),
    "doctor": Word("See what is found and what is wrong: spindle doctor, in a shell"),
    "debug": Word("See what is found and what is wrong: spindle doctor, in a shell", "--verbose says more; " + _STATUS),
    "config": Word("/settings", _SETTINGS, is_lone=False),
    "settings": Word(line=_SETTINGS),
    "setup": Word("/login", "nothing has to be set up but a model: spindle keys set PROVIDER"),
    "tools": Word("/status", _TOOLS),
    "skills": Word("/status", _SKILLS),
    "skill": Word("/status", _SKILLS),
    "agents": Word("Subagents are Markdown files in agents/ of the agent directory, or in .pi/agents here", _AGENTS),
    "agent": Word("/agents", _AGENTS),
    "subagents": Word("/agents", _AGENTS),
    "memory": Word("What the agent always knows stands in AGENTS.md, here or in the agent directory"),
    "hooks": Word(
        "What hooks do elsewhere, extensions do here: Python files in extensions/ of the agent directory",
        "what hooks do elsewhere, extensions do here: Python files in extensions/ of the agent directory",
    ),
    "plugin": Word("/extensions", _EXTENSIONS),
    "plugins": Word("/extensions", _EXTENSIONS),
    "extension": Word("/extensions", _EXTENSIONS),
    "extensions": Word(
        "See which are loaded and begin a new one: spindle extensions, in a shell; /reload reads them again"
    ),
    "prompts": Word("/help", "prompt templates are Markdown files in prompts/ of the agent directory"),
    "install": Word("/extensions", _EXTENSIONS, is_lone=False),
    "remove": Word(line=_EXTENSIONS, is_lone=False),
    "uninstall": Word(line=_EXTENSIONS, is_lone=False),
    "list": Word(line="spindle extensions, spindle models and spindle sessions list what there is", is_lone=False),
    "update": Word(_NEWER_CHAT, _NEWER, is_lone=False),
    "upgrade": Word(_NEWER_CHAT, _NEWER, is_lone=False),
    "changelog": Word(_CHANGES, "what is new stands in CHANGELOG.md of the project"),
    "release-notes": Word("/changelog", "what is new stands in CHANGELOG.md of the project"),
    # Models and providers.
    "models": Word("/model"),
    "provider": Word("/login", _PROVIDERS),
    "providers": Word("/login", _PROVIDERS),
    "connect": Word("/login", "spindle login signs in, spindle keys set PROVIDER keeps a key"),
    "llama": Word("Get a small model that runs in this process: spindle models pull smollm2, in a shell"),
    "setup-token": Word("/login", "spindle login signs in, spindle keys set PROVIDER keeps a key"),
    "auth": Word("/login"),
    "effort": Word("/thinking", "--thinking LEVEL says how hard to think"),
    "reasoning": Word("/thinking", "--thinking LEVEL says how hard to think"),
    "fast": Word("Think less with /thinking low, or choose a quicker model with /model"),
    # Sessions.
    "sessions": Word("/resume"),
    "history": Word("/resume", _SESSIONS),
    "chat": Word("/resume"),
    "continue": Word("/resume", "spindle -c goes on with the last session of this directory"),
    "resume": Word(line="spindle -c goes on with the last session of this directory, spindle --resume lets you choose"),
    "ls": Word("!ls runs it in the shell", _SESSIONS),
    "reset": Word("/new", "spindle begins a new session each time; -c goes on with the last"),
    "new": Word(line="spindle begins a new session each time; -c goes on with the last"),
    "branch": Word("/fork", "--fork SESSION begins a new session as a copy of another"),
    "fork": Word(line="--fork SESSION begins a new session as a copy of another"),
    "clone": Word(line="--fork SESSION begins a new session as a copy of another"),
    "import": Word(line="spindle --session FILE goes on with the session in a file"),
    "rename": Word("/name", "spindle sessions rename ID NAME does that"),
    "title": Word("/name"),
    "tag": Word("/name"),
    "summarize": Word("/compact"),
    "compress": Word("/compact"),
    "share": Word("Write a page that you can give to others: /export FILE.html", _PAGE),
    "unshare": Word("Nothing is published: /export writes a file, and it is yours to delete"),
    "undo": Word(line=_UNDO),
    "rewind": Word(line=_UNDO),
    "restore": Word("/undo", _UNDO),
    "checkpoint": Word("/undo", _UNDO),
    "apply": Word("Changes are made where you work, at once: /diff shows them", "changes are made where you work"),
    # What may run.
    "plan": Word("/permissions plan", "--permission-mode plan lets the agent only read"),
    "approvals": Word("/permissions", "--permission-mode MODE says what may run"),
    "allowed-tools": Word("/permissions"),
    "yolo": Word("/permissions bypass", "--permission-mode bypass lets everything run"),
    "sandbox": Word("Begin with spindle --sandbox workspace-write", "--sandbox LEVEL fences commands"),
    "add-dir": Word("Begin with spindle --add-dir DIR to let a folder count as part of the working directory"),
    "privacy-settings": Word("Nothing is sent to anybody but the model's provider"),
    # What goes on.
    "bashes": Word("/background"),
    "tasks": Word("/background"),
    "ps": Word("/background"),
    "kill": Word("/background"),
    "loop": Word(_REPEAT, _REPEAT),
    "goal": Word("Say it in a message; --max-turns and other limits say how far the agent may go"),
    "side": Word("/btw"),
    "todos": Word("Ask the agent how far it is; its list belongs to the session"),
    "btw": Word("Just write it: a message that is sent while the agent works steers it; Alt-Enter sends it for later"),
    "reload": Word(line="files are read again at each start; /reload does it in the chat"),
    "stop": Word("Esc interrupts the run"),
    # The terminal.
    "hotkeys": Word("/help"),
    "keybindings": Word("/help"),
    "shortcuts": Word("/help"),
    "vim": Word('"editingMode": "vi" in settings.json gives vi keys'),
    "theme": Word(_THEME, "the chat has the colours of your terminal"),
    "themes": Word(_THEME),
    "color": Word("/theme"),
    "voice": Word("There is no voice: a program of your system that types what you say works here"),
    "remote-control": Word(_PAGE_HERE, "spindle serve has a page for the browser, of a phone too"),
    "web": Word("/remote-control", "spindle serve has a page for the browser"),
    "mobile": Word("/remote-control"),
    "desktop": Word("/remote-control"),
    "statusline": Word("The status line shows what there is; extensions may add to it"),
    "terminal-setup": Word("Nothing has to be set up: Ctrl-J, or \\ and Enter, begins a new line"),
    "output-style": Word("Say how to answer in AGENTS.md, here or in the agent directory"),
    "personality": Word("/output-style"),
    "editor": Word("Ctrl-G writes in your editor"),
    "mention": Word("Type @ and a few letters of a file's name"),
    "directory": Word("The first line of the chat says where it works; begin elsewhere with spindle --cwd DIR"),
    "ide": Word("An editor that speaks the Agent Client Protocol starts spindle acp"),
    "q": Word("/quit"),
    "bug": Word(_REPORT),
    "feedback": Word("/bug"),
    "experimental": Word("Nothing is hidden behind a switch: /help lists what there is"),
    "hook": Word(line="what hooks do elsewhere, extensions do here"),
    "prompt": Word(line="prompt templates are Markdown files in prompts/ of the agent directory"),
    "server": Word(line="spindle serve starts a server, spindle mcp lists servers with tools"),
    "servers": Word(line="spindle serve starts a server, spindle mcp lists servers with tools"),
    "key": Word(line="spindle keys lists providers that have a key"),
    "template": Word(line="prompt templates are Markdown files in prompts/ of the agent directory"),
    "rules": Word("/permissions", "--allow, --ask and --deny RULE say what may run"),
    # Work that a message asks for.
    "init": Word(
        "Ask for it: Look at this project and write AGENTS.md for agents that work here",
        "nothing has to be set up but a model: spindle keys set PROVIDER",
    ),
    "review": Word(
        "Ask for it: Review the changes since the last commit. As prompts/review.md it is your own command",
        'git diff | spindle -p "Review this change"',
    ),
    "security-review": Word("Ask for it: Look for security problems in the changes since the last commit"),
    "pr-comments": Word("Ask for it: Show the comments of this pull request, with gh"),
    "install-github-app": Word("On a server of your own, a script does it: spindle -p, see docs/cookbook.md"),
    "ask": Word("Just write it, without a slash", _ASK),
    "exec": Word(
        "!COMMAND runs a command of the shell", 'ask with spindle -p "…"; --exec COMMAND lets tools work elsewhere'
    ),
    "e": Word(line='ask with spindle -p "…"'),
    "run": Word("!COMMAND runs a command of the shell", _ASK),
    "app-server": Word(line="spindle --mode rpc serves a program, spindle serve many", is_lone=False),
    "cloud": Word(line="spindle serve on another machine, and spindle --attach ws://HOST:PORT here"),
    "attach": Word(line="spindle --attach ws://HOST:PORT does that"),
}
_MEANS_PRINT: Final = ("run", "exec", "e")
_VERBS: Final = (
    *("add", "create", "delete", "disable", "edit", "enable", "get", "info", "install", "list", "ls", "new", "reload"),
    *("remove", "rm", "search", "set", "show", "uninstall", "update"),
)
"""With one of them behind it, a word is an order and begins no message."""


def in_the_chat(name: str) -> str | None:
    """Return what `/name` means: a command of ours with its slash, or a line for the user; None if it is no word."""
    word = WORDS.get(name.lower())
    return word.chat or None if word else None


def on_the_command_line(words: list[str]) -> str | None:
    """Return what to do instead, if the words are a command of another program."""
    first = words[0].lower()
    word = WORDS.get(first)
    if word is None or not word.line:
        return None
    plain_words = all(re.fullmatch(r"[\w:./@-]+", other) for other in words)
    is_order = len(words) > 1 and plain_words and words[1].lower() in _VERBS
    return word.line if len(words) == 1 or is_order or not word.is_lone else None


def means_print(words: list[str]) -> bool:
    """Say whether `run "x"` or `exec "x"` was meant: to ask this once."""
    return len(words) == 2 and words[0] in _MEANS_PRINT
