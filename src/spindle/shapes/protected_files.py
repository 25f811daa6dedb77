"""Files that make this agent, or other programs, run something or follow other instructions.

A tool that may change them can run code later, without another question. `acceptEdits` therefore asks about them.
"""

import os
import re
import unicodedata
from typing import Final

# Not here: files that only the project's own build, tests and scripts obey (`package.json`, `Makefile`, `conftest.py`).
# A user who starts those runs the project's code, and knows it.
PROTECTED_FOLDERS: Final = (
    # ours
    ".pi",
    ".spindle",
    ".agents",
    # version control, and the hooks that it runs
    ".git",
    ".hg",
    ".jj",
    ".githooks",
    ".husky",
    ".lefthook",
    # shells and what they reach
    ".ssh",
    ".mise",
    # editors and development containers
    ".vscode",
    ".idea",
    ".zed",
    ".fleet",
    ".devcontainer",
    # builds on servers
    ".github",
    ".gitlab",
    ".gitea",
    ".forgejo",
    ".circleci",
    ".buildkite",
    ".woodpecker",
    ".semaphore",
    ".teamcity",
    ".tekton",
    ".builds",
    ".azure-pipelines",
    # build tools that load programs from there
    ".cargo",
    ".mvn",
    ".yarn",
    # other agents
    ".agent",
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".windsurf",
    ".clinerules",
    ".roo",
    ".kiro",
    ".continue",
    ".amazonq",
    ".omp",
    ".openhands",
    ".goose",
    ".kilocode",
    ".junie",
    ".augment",
    ".trae",
    ".crush",
    ".factory",
    ".opencode",
    ".qwen",
    ".xcsh",
)
"""Everything in a folder of this name, wherever the folder is."""
PROTECTED_FILES: Final = (
    # ours
    ".mcp.json",
    "AGENTS.md",
    "AGENTS.override.md",
    "CLAUDE.md",
    "CLAUDE.local.md",
    # version control; HEAD is the file that makes any folder a git repository, with a configuration that git obeys
    ".gitattributes",
    ".gitconfig",
    ".gitmodules",
    "HEAD",
    ".hgrc",
    ".pre-commit-config.yaml",
    ".pre-commit-config.yml",
    "lefthook.yml",
    "lefthook.yaml",
    "lefthook.toml",
    "lefthook.json",
    ".lefthook.yml",
    ".lefthook.yaml",
    ".overcommit.yml",
    ".lintstagedrc",
    ".lintstagedrc.json",
    ".lintstagedrc.yaml",
    ".lintstagedrc.yml",
    # shells, and programs that act when a shell enters a folder
    ".envrc",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".mise.toml",
    "mise.toml",
    ".mise.local.toml",
    "mise.local.toml",
    ".cshrc",
    ".tcshrc",
    ".kshrc",
    ".login",
    ".xprofile",
    ".xinitrc",
    ".xsession",
    "config.fish",
    "flake.nix",
    "shell.nix",
    "devenv.nix",
    "devbox.json",
    # editors and tools that obey a file in the folder they are started in
    ".exrc",
    ".vimrc",
    ".nvimrc",
    ".nvim.lua",
    ".gdbinit",
    ".lldbinit",
    ".pdbrc",
    ".irbrc",
    ".pryrc",
    ".ghci",
    ".octaverc",
    ".Rprofile",
    ".curlrc",
    ".wgetrc",
    ".ripgreprc",
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pnpmfile.cjs",
    ".dir-locals.el",
    ".devcontainer.json",
    ".gitpod.yml",
    # builds on servers
    ".gitlab-ci.yml",
    ".travis.yml",
    ".drone.yml",
    ".cirrus.yml",
    ".build.yml",
    "appveyor.yml",
    ".appveyor.yml",
    "cloudbuild.yaml",
    "buildspec.yml",
    ".woodpecker.yml",
    ".woodpecker.yaml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "Jenkinsfile",
    # other agents
    ".claude.json",
    ".cursorrules",
    ".windsurfrules",
    ".roorules",
    ".roomodes",
    "GEMINI.md",
    "WARP.md",
    ".goosehints",
    ".aider.conf.yml",
    "crush.json",
    ".crush.json",
    "opencode.json",
    "opencode.jsonc",
)
"""Every file of this name, wherever it is."""


AT_EVERY_DEPTH: Final = (".pi", ".spindle", ".claude", ".mcp.json")
"""Names that an agent which is started in that very folder obeys: a sandbox protects them wherever they are."""


def _plain(name: str) -> str:
    """Return the name that all spellings have in common which some file system takes for the same name.

    Some ignore case and accents' order, some ignore characters without width, or dots and blanks at the end.
    """
    if name.isascii():
        return name.lower().rstrip(". ")
    visible = "".join(sign for sign in name if unicodedata.category(sign) != "Cf")
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold()).rstrip(". ")


_EVERYWHERE: Final = (".git", ".pi", ".spindle", ".agents")
"""These count even if the agent works inside of such a folder. Others may hold checkouts to work in."""
_FOLDERS: Final = frozenset(map(_plain, PROTECTED_FOLDERS))
_FILES: Final = frozenset(map(_plain, PROTECTED_FILES))


def names_protected(pattern: str) -> bool:
    """Say whether a part of a pattern for paths is a protected name."""
    return any(_plain(part) in _FOLDERS | _FILES for part in pattern.split("/"))


def obeyed_below(path: str, top: str) -> bool:
    """Say whether a path leads to, or into, a name in `AT_EVERY_DEPTH` below a folder."""
    rest = path[len(top.rstrip("/")) :]
    return path.startswith(top.rstrip("/") + "/") and any(_plain(part) in AT_EVERY_DEPTH for part in rest.split("/"))


def is_protected(path: str, root: str) -> bool:
    """Say whether a file is protected, by its absolute path or because a protected name in `root` leads to it."""
    above = root.rstrip("/") + "/" if path.startswith(root.rstrip("/") + "/") else ""
    *folders, name = (_plain(part.partition(":")[0]) for part in path[len(above) :].split("/"))
    if name in _FILES or name in _FOLDERS or any(folder in _FOLDERS for folder in folders):
        return True
    if any(_plain(part) in _EVERYWHERE for part in above.split("/")):
        return True
    return any(path == place or path.startswith(f"{place}/") for place in _led_to(root))


def _led_to(root: str) -> list[str]:
    """Return where protected names of a folder lead: links, and a `.git` that names another folder."""
    places = []
    try:
        with os.scandir(root) as entries:
            names = [one.name for one in entries if one.is_symlink() and _plain(one.name) in _FOLDERS | _FILES]
        places = [os.path.realpath(os.path.join(root, name)) for name in names]
    except OSError:
        pass
    try:
        with open(os.path.join(root, ".git"), encoding="utf-8", errors="surrogateescape") as file:
            if match := re.fullmatch(r"gitdir: (.+)\n*", file.read(5000)):
                places.append(os.path.realpath(os.path.join(root, match[1])))
    except OSError:
        pass  # a folder, as a rule
    return places
