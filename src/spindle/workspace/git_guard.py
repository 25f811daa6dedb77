"""Keeps git from being turned against its owner: what a command or a tool did must not make git run something later.

Git directories may be made and used. But a `.git` that was there is not renamed or replaced, and a new or changed git
directory names no program: the lines and files that do are put back as they were, or put aside. Repairs are yielded one
after another, because one may change what the next one finds.
"""

import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

from msgspec import Struct

from spindle.programs.file_times import is_settled, shows_writes
from spindle.workspace import git_config
from spindle.workspace.git_dirs import (
    Entry,
    GitDirs,
    number_of,
    on_the_way,
    path_in,
    real_of,
    repository_around,
    text_of,
)
from spindle.workspace.git_index import names_git

Repair = Callable[[], None]
PutAside = Callable[[str], None]
"""Moves a file or folder to where the user finds it."""

_CONFIGS: Final = ("config", "config.worktree")
_EXACT: Final = ("hooks", "info/attributes", "commondir", "gitdir")
"""Files of a git directory that there was, besides its configuration, that may not change."""
_TODOS: Final = ("rebase-merge/git-rebase-todo",)
_STRATEGIES: Final = ("rebase-merge/strategy", "sequencer/opts")
"""Files that name a way to merge: git runs the program `git-merge-NAME`, wherever a slash in the name leads."""
_MOST_CONFIG: Final = 1 << 20
_HOME_CONFIGS: Final = ("~/.gitconfig", "~/.config/git/config", "$XDG_CONFIG_HOME/git/config", "$GIT_CONFIG_GLOBAL")


class Config(Struct, frozen=True):
    """A configuration, a list of what a rebase does next, or a way to merge."""

    numbers: tuple[int, ...]
    content: bytes
    named: frozenset[tuple[str, str]]
    """What in it may name programs."""
    link: str = ""
    """Where it leads, if it is out of the folders that are looked after: perhaps to a secret, so none of it is told."""


class Known(Struct, frozen=True):
    """A git directory as it was when it was taken for right."""

    entry: Entry
    configs: dict[str, Config]
    """By path."""
    hooks: frozenset[tuple[str, bytes]]
    """Names and contents of hooks that are no samples."""
    is_own: bool
    """Whether the user made it, not a command."""


class GitGuard:
    def __init__(self, tops: list[str], temporary: str) -> None:
        """`tops`: folders that commands may write; nobody looks for repositories in the `temporary` one."""
        self._dirs = GitDirs([*tops, temporary])
        self._tops = tops
        self.known: dict[str, Known] = {}
        """By the path of the entry."""
        self.places: dict[str, str] = {}
        """Files and folders that may not change at all, each with the git directory it belongs to."""
        self._made: set[tuple[int, int]] = set()
        """Git directories that commands made."""
        self._configs: dict[str, Config] = {}
        self._without_links: dict[str, tuple[int, int, int]] = {}
        """Folders of hooks in which there was no link, with the time of their last change."""
        self.links: dict[str, str] = {}
        """Links in git directories, and where they lead."""
        homes = [os.path.expanduser(os.path.expandvars(path)) for path in (*_HOME_CONFIGS, "/etc/gitconfig")]
        self._home = [path for path in homes if "$" not in path]
        """Configurations of the user, for all repositories."""
        self._on_path = path_folders(tops)
        """Folders of PATH that commands may write."""
        around = filter(None, map(repository_around, tops))
        self._around = {path: place for path, place in around if not self._is_inside(path)}
        """Repositories around the folders: entries and their git directories. Commands cannot change them."""
        self.is_quiet = True
        """Whether no process of a command is there: one that has mapped a file may write to it without a trace."""

    @property
    def too_many(self) -> list[str]:
        return self._dirs.too_many

    def remember(self) -> None:
        """Take what is there now for right."""
        known: dict[str, Known] = {}
        for path, entry in self._dirs.look(recent=True).items():
            if self._is_inside(path):
                configs = {one: config for one in _gated(path, entry) if (config := self._config(one)) is not None}
                before = self.known.get(path)
                same = before is not None and before.entry.number == entry.number
                hooks = _hooks(entry.place) if before is None or not same else before.hooks
                known[path] = Known(entry, configs, hooks, entry.number not in self._made)
        known.update({path: one for path, one in self.known.items() if path not in known and _is_hollow(one)})
        self.links = {path: os.path.realpath(path) for path in self._dirs.links}
        if known != self.known:
            self.known = known
        self.places = self._exact()

    def take(self, known: dict[str, Known], links: dict[str, str]) -> None:
        """Take what another agent knew for right."""
        self.known, self.links = known, links
        self.places = self._exact()

    def adopt(self, known: dict[str, Known], links: dict[str, str], tops: list[str]) -> None:
        """Take what another agent knows for right in its `tops`, where it is at work."""
        ours = {path: one for path, one in self.known.items() if not is_below(path, tops)}
        self.known = ours | {path: one for path, one in known.items() if self._is_inside(path)}
        ours_of_links = {path: to for path, to in self.links.items() if not is_below(path, tops)}
        self.links = ours_of_links | {path: to for path, to in links.items() if self._is_inside(path)}
        self.places = self._exact()

    @property
    def obeyed(self) -> set[str]:
        """Names that agents obey, as they were when the folders were looked at last."""
        return self._dirs.obeyed

    def is_part(self, path: str) -> bool:
        """Say whether a file that a tool is to change is a `.git`, or in a git directory."""
        if "/.git/" in f"{path}/":
            return True
        places = [one.entry.place for one in self.known.values() if one.entry.place]
        return any(path == place or path.startswith(f"{place}/") for place in places)

    def wrong(self, put_aside: PutAside) -> Iterator[tuple[str, Repair]]:
        """Yield what is wrong now: a path with words about it, and the repair. To be called until nothing comes."""
        now = self._dirs.look()
        opened = set[str]()
        while closed := {path for path in self._dirs.closed - opened if self._is_inside(path)}:
            opened |= closed
            for path in sorted(closed):
                yield f"{path} was closed to its owner: it is opened, to look for git in it", _opening(path)
            now = self._dirs.look()  # there may be more of them inside
        moved = [*self._moved(now, put_aside), *self._linked(put_aside)]
        if moved:
            yield from moved
            now = self._dirs.look()
        numbers = {one.entry.number: one for one in self.known.values()}
        for path, entry in now.items():
            if self._is_inside(path):
                yield from self._changed(path, entry, now, numbers, put_aside)
        for path, known in self.known.items():
            is_gone = path not in now and path.endswith("/.git") and known.entry.form == "folder"
            is_gone = is_gone and known.is_own and number_of(os.path.dirname(path)) == known.entry.above
            if is_gone or (path not in now and _is_hollow(known)):
                for one in known.configs:
                    yield from self._gate(one, known, put_aside)

    def _changed(
        self,
        path: str,
        entry: Entry,
        now: dict[str, Entry],
        numbers: dict[tuple[int, int], Known],
        put_aside: PutAside,
    ) -> Iterator[tuple[str, Repair]]:
        """Yield what is wrong with an entry that is there. `numbers`: what is known, wherever it was."""
        before = self.known.get(path)
        if before is None or (before.entry.number != entry.number and entry.form == "folder"):
            before = before or numbers.get(entry.number)
            if before is None:
                self._made.add(entry.number)
            yield from self._new(path, entry, now, before, put_aside)
        elif before.entry.place != entry.place:  # a link on the way has changed
            yield from self._new(path, entry, now, before, put_aside)
        for one in _gated(path, entry):
            if self._is_inside(one):
                yield from self._gate(one, before, put_aside)
        if entry.form == "folder":
            index = os.path.join(entry.place, "index")
            if self._is_inside(index) and names_git(index, keep=self.is_quiet):
                text = f"{index} has files of a git directory, which git would write there: it is put aside"
                yield f"{text} (git reset makes a new one)", _moving(index, put_aside)
            if self._is_of_another_worktree(entry.place):
                yield from _led_away(entry.place)
            yield from self._led_out(entry.place, now, put_aside)

    def still_counts(self, place: str) -> bool:
        """Say whether the git directory of one of the `places` is there, or was the user's and has to be."""
        known = self.known.get(self.places.get(place, ""))
        if known is None or os.path.isdir(known.entry.place):
            return True
        return known.is_own and os.path.isdir(os.path.dirname(self.places[place]))

    # -- entries -----------------------------------------------------------------------------------

    def _moved(self, now: dict[str, Entry], put_aside: PutAside) -> Iterator[tuple[str, Repair]]:
        """Yield entries of the user's that were renamed or replaced."""
        elsewhere = {
            entry.number: path for path, entry in now.items() if path not in self.known and entry.form == "folder"
        }
        for path, known in self.known.items():
            old, entry = known.entry, now.get(path)
            if not path.endswith("/.git") or not known.is_own or number_of(os.path.dirname(path)) != old.above:
                continue
            if old.form == "folder":
                if entry is not None and (entry.form, entry.number) == (old.form, old.number):
                    continue
                if (there := elsewhere.get(old.number)) is not None:
                    yield f"{path} was renamed: it is put back", _renaming(there, path, put_aside)
                elif entry is not None and entry.form != "folder":
                    yield f"{path} was replaced: the new one is put aside", _moving(path, put_aside)
            elif entry is None or entry.form != old.form:
                yield f"{path} was changed: it is put back as it was", _writing(path, old.form, put_aside)

    def _new(
        self, path: str, entry: Entry, now: dict[str, Entry], before: Known | None, put_aside: PutAside
    ) -> Iterator[tuple[str, Repair]]:
        """Yield what a new entry has that names programs, unless it had that where it was before."""
        place = entry.place
        if entry.form != "folder":
            if place and not (self._is_inside(place) and (place in now or not os.path.lexists(place))):
                text = f"{path} is new and leads to {place}, where commands may not make a repository: it is put aside"
                yield text, _moving(path, put_aside)
            return
        hooks = os.path.join(place, "hooks")
        if os.path.islink(hooks) or (os.path.lexists(hooks) and not os.path.isdir(hooks)):
            yield f"{hooks} is new: it is put aside", _moving(hooks, put_aside)
        for name, content in _hooks(place):
            if before is None or (name, content) not in before.hooks:
                one = os.path.join(hooks, name)
                yield f"{one} is a new hook, which git would run: it is put aside", _moving(one, put_aside)

    def _led_out(self, place: str, now: dict[str, Entry], put_aside: PutAside) -> Iterator[tuple[str, Repair]]:
        """Yield a git directory whose configuration is where nobody looks, unless it was so from the start."""
        common = os.path.join(place, "commondir")
        if common in self.places or not os.path.lexists(common):
            return
        shared = real_of(os.path.join(place, path_in(text_of(common))))
        if os.path.islink(common):
            is_right = False
        elif self._is_inside(shared):
            is_right = shared in now or shared in {one.place for one in now.values()}
        else:  # the repository of a worktree, which commands cannot write
            is_right = os.path.join(shared, "worktrees") == os.path.dirname(place)
        if not is_right:
            yield f"{common} leads to another repository: it is put aside", _moving(common, put_aside)

    def _linked(self, put_aside: PutAside) -> Iterator[tuple[str, Repair]]:
        """Yield new links in git directories that stand for a folder, or through which git would write elsewhere."""
        for path in sorted(self._dirs.links):
            if self._is_inside(path) and self.links.get(path) != (there := os.path.realpath(path)):
                if os.path.isdir(path):
                    text = f"{path} was made a link: the folder that it leads to is put there"
                    yield text, self._unlinking(path, put_aside)
                elif not self._is_inside(there):
                    yield f"{path} was made a link that leads to {there}: it is put aside", _moving(path, put_aside)

    def _unlinking(self, path: str, put_aside: PutAside) -> Repair:
        def repair() -> None:
            there = os.path.realpath(path)
            put_aside(path)
            if self._dirs.covers(there) and not f"{path}/".startswith(f"{there}/"):
                shutil.move(there, path)

        return repair

    # -- configurations ----------------------------------------------------------------------------

    def _gate(self, path: str, before: Known | None, put_aside: PutAside) -> Iterator[tuple[str, Repair]]:
        """Yield a configuration that names what it did not name before, or that is gone."""
        old = None if before is None else before.configs.get(path)
        was_here = old is not None
        if old is None and before is not None:  # the directory was moved as a whole
            old = before.configs.get(os.path.join(before.entry.place, os.path.basename(path)))
        config = self._config(path)
        if config is None:
            if os.path.lexists(path):
                yield f"{path} is no plain file, or too large: it is put aside", _moving(path, put_aside)
            elif old is not None and before is not None and before.is_own and os.path.basename(path) in _CONFIGS:
                yield f"{path} was removed: it is put back as it was", _as_it_was(path, old, put_aside)
        elif what := _wrong_with(path, config, old):
            is_list = path.endswith((*_TODOS, *_STRATEGIES))
            if old is not None and was_here and not (is_list and not config.link):
                yield f"{what}: it is put back as it was", _as_it_was(path, old, put_aside)
            elif os.path.realpath(path) != path:  # its text is no business of who has made the link
                yield f"{what}: it is put aside", _moving(path, put_aside)
            else:
                text = config.content.decode("utf-8", "surrogateescape")
                cleaned = _without_runs(text) if is_list else git_config.without(text, config.named)
                content = cleaned.encode("utf-8", "surrogateescape")
                yield f"{what}: these lines are removed", _restoring(path, content, put_aside)

    def _config(self, path: str) -> Config | None:
        """Return a configuration; None: there is none, or it cannot be read as one."""
        try:
            status = os.stat(path)
            if os.path.islink(path) and real_of(path).startswith("/proc/"):
                return None
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_CONFIG:
                return None
            numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            known = self._configs.get(path)
            if known is not None and known.numbers == numbers:
                return known
            now = time.time_ns()
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                content, link = file.read(_MOST_CONFIG + 1), self._led_to(path, file.fileno())
        except OSError:
            return None
        text = content.decode("utf-8", "surrogateescape")
        if path.endswith("-todo"):
            named = frozenset(("exec", line) for line in text.split("\n") if _is_exec(line))
        elif path.endswith(_STRATEGIES):
            named = frozenset(("strategy", line) for line in text.split("\n") if _is_led(line))
        else:
            place = os.path.dirname(path)
            named = frozenset(
                (key, value)
                for key, value, _ in git_config.entries(text)
                if key != "core.worktree" or not self._is_of_submodule(place, value)
            )
        config = Config(numbers, content, named, link)
        if self.is_quiet and is_settled(status.st_ctime_ns, now) and shows_writes(path, status.st_dev):
            self._configs[path] = config
        return config

    def _led_to(self, path: str, file: int) -> str:
        """Return where an open file of ours is, if links lead out of the folders; else nothing."""
        real = os.readlink(f"/proc/self/fd/{file}") if sys.platform == "linux" else os.path.realpath(path)
        return real if self._is_inside(path) and not self._dirs.covers(real) else ""

    def _is_of_submodule(self, place: str, tree: str) -> bool:
        """Say whether a configuration names the folder where a submodule is checked out, and nothing of git."""
        real = real_of(os.path.join(place, tree))
        is_git = "/.git/" in f"{real}/" or is_below(real, [place])
        return "/modules/" in place and not place.endswith("/.git") and self._is_inside(real) and not is_git

    def _exact(self) -> dict[str, str]:
        """Return the files that the known git directories, and the user's own configuration, make git run or read."""
        found: dict[str, str] = dict.fromkeys(_real(self._home), "")
        everywhere = [(text, os.path.dirname(path)) for path in self._home if (text := _naming(self._config(path)))]
        found.update(dict.fromkeys(self._named([*everywhere], "/"), ""))
        for path, place, configs in self._repositories():
            found.update({os.path.join(place, name): path for name in _EXACT})
            found.update(dict.fromkeys(self._linked_hooks(os.path.join(place, "hooks")), path))
            own = [(text, os.path.dirname(one)) for one in configs if (text := _naming(self._config(one)))]
            found.update(dict.fromkeys(self._named(own + everywhere, os.path.dirname(path)), path))
        return {one: path for one, path in found.items() if self._is_inside(one)}

    def _repositories(self) -> Iterator[tuple[str, str, Iterable[str]]]:
        """Yield the git directories that may name files of ours: their entry, their place, their configurations."""
        for path, known in self.known.items():
            place = known.entry.place
            if place and not self._is_of_another_worktree(place):
                yield path, place, known.configs
                shared, name = os.path.split(os.path.dirname(place))
                if name == "worktrees" and not self._is_inside(shared):  # we are in a worktree of it
                    yield path, shared, [os.path.join(shared, _CONFIGS[0])]
        for path, place in self._around.items():
            yield path, place, [os.path.join(place, name) for name in _CONFIGS]

    def _named(self, waiting: list[tuple[str, str]], top: str) -> Iterator[str]:
        """Yield the files that configurations name: included ones, hooks, programs. `waiting`: each with its folder."""
        seen: set[str] = set()
        while waiting:
            text, folder = waiting.pop()
            for one in git_config.included(text, folder):
                if one not in seen:
                    seen.add(one)
                    yield from on_the_way(one)
                    if more := _naming(self._config(one)):
                        waiting.append((more, os.path.dirname(os.path.realpath(one))))
            for name in git_config.hook_folders(text):
                hooks = os.path.join(top, name)
                yield from on_the_way(hooks, links_only=True)
                yield from _of_hooks(real := os.path.realpath(hooks), self._tops)
                yield from self._linked_hooks(real)
            for word in git_config.by_name(text) if self._on_path else ():
                yield from (os.path.join(one, word) for one in self._on_path)
            for word, may_come in git_config.programs(text):
                one = os.path.join(top, os.path.expanduser(word))
                is_meant = may_come or os.path.isfile(one)
                if is_meant and self._is_inside(os.path.realpath(one)) and not os.path.isdir(one):
                    yield from on_the_way(one)

    def _is_of_another_worktree(self, place: str) -> bool:
        """Say whether a git directory belongs to a worktree outside of the folders. Others make and remove these at any
        time, so they may be half made, and be gone."""
        if os.path.basename(os.path.dirname(place)) != "worktrees":
            return False
        return not self._is_inside(os.path.realpath(path_in(text_of(os.path.join(place, "gitdir"))) or "/"))

    def _linked_hooks(self, folder: str) -> Iterator[str]:
        """Yield what hooks are links to, and the folder itself, if it is one."""
        try:
            status = os.lstat(folder)
        except OSError:
            return
        changed = (status.st_dev, status.st_ino, status.st_ctime_ns)
        if self._without_links.get(folder) == changed:
            return
        now = time.time_ns()
        if stat.S_ISLNK(status.st_mode):
            yield from on_the_way(folder, links_only=True)
            yield from _of_hooks(os.path.realpath(folder), self._tops)
        links: list[str] | None = None
        with suppress(OSError), os.scandir(folder) as entries:
            links = [entry.path for entry in entries if entry.is_symlink()]
        for link in links or ():
            yield from on_the_way(link)
        if links == [] and stat.S_ISDIR(status.st_mode) and is_settled(status.st_ctime_ns, now):
            self._without_links[folder] = changed

    def _is_inside(self, path: str) -> bool:
        return is_below(path, self._tops)


def path_folders(tops: Iterable[str]) -> list[str]:
    """Return the folders of PATH that lie in one of these."""
    named = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [one for one in dict.fromkeys(map(os.path.realpath, named)) if is_below(one, tops)]


def is_below(path: str, tops: Iterable[str]) -> bool:
    """Say whether a path is one of these folders, or below one."""
    return any(path == top or path.startswith(f"{top.rstrip('/')}/") for top in tops)


_HOOKS: Final = (
    *("pre-commit", "pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-rebase", "pre-push"),
    *("post-checkout", "post-merge", "post-rewrite", "post-index-change", "fsmonitor-watchman", "pre-auto-gc"),
    *("applypatch-msg", "pre-applypatch", "post-applypatch", "reference-transaction", "sendemail-validate"),
    *("pre-receive", "update", "post-receive", "post-update", "proc-receive", "push-to-checkout"),
)


def _wrong_with(path: str, config: Config, old: Config | None) -> str:
    """Return in words what is wrong with a configuration, but none of its text, which may be a secret."""
    if config.link:
        return "" if old is not None and old.link == config.link else f"{path} leads to {config.link}"
    new = config.named - (old.named if old is not None else frozenset())
    words = ", ".join(sorted({key or "a line that cannot be read" for key, _ in new}))[:200]
    return f"{path} names something that git would run ({words})" if new else ""


def _led_away(place: str) -> Iterator[tuple[str, Repair]]:
    """Yield a worktree that would get its configuration and hooks from elsewhere than its repository."""
    common = os.path.join(place, "commondir")
    named, own = path_in(text_of(common)), os.path.dirname(os.path.dirname(place))
    if os.path.islink(common) or (named and real_of(os.path.join(place, named)) != own):

        def repair() -> None:
            os.unlink(common)
            _create(common, b"../..\n", 0o644)

        yield f"{common} leads to another repository: it is put back", repair


def _naming(config: Config | None) -> str:
    """Return the text of a configuration that names something; empty: it names nothing, or there is none."""
    return config.content.decode("utf-8", "surrogateescape") if config is not None and config.named else ""


def _real(paths: Iterable[str]) -> Iterator[str]:
    """Yield where paths lead; folders above several of them are looked at once."""
    plain = {"/"}
    for path in paths:
        here = path if os.path.normpath(path) == path and os.path.isabs(path) else ""
        while here and here not in plain:
            if os.path.islink(here):
                here = ""
            else:
                plain.add(here)
                here = os.path.dirname(here)
        yield path if here else os.path.realpath(path)


def _is_hollow(known: Known) -> bool:
    """Say whether a git directory lacks what makes it one, but may be used by others or be one again."""
    return known.entry.form == "folder" and not known.entry.place.endswith("/.git") and os.path.isdir(known.entry.place)


def _of_hooks(folder: str, tops: list[str]) -> list[str]:
    """Return what may not change in a folder of hooks: all of it, or the hooks if it holds the project, too."""
    if any(top == folder or top.startswith(f"{folder}/") for top in tops):
        return [os.path.join(folder, name) for name in _HOOKS]
    return [folder]


def _gated(path: str, entry: Entry) -> list[str]:
    """Return the files whose lines are looked at."""
    found = [os.path.join(entry.place, name) for name in (*_CONFIGS, *_TODOS, *_STRATEGIES)] if entry.place else []
    return [*found, os.path.join(os.path.dirname(path), ".gitmodules")] if path.endswith("/.git") else found


def _hooks(place: str) -> frozenset[tuple[str, bytes]]:
    found = set()
    with suppress(OSError):
        for name in os.listdir(os.path.join(place, "hooks")):
            if not name.endswith(".sample"):
                found.add((name, text_of(os.path.join(place, "hooks", name)).encode("utf-8", "surrogateescape")))
    return frozenset(found)


def _is_exec(line: str) -> bool:
    return line.split(maxsplit=1)[:1] in (["exec"], ["x"])


def _is_led(line: str) -> bool:
    """Say whether a line may name a program by its path as a way to merge."""
    return "/" in line


def _without_runs(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if not (_is_exec(line) or _is_led(line)))


def _opening(path: str) -> Repair:
    def repair() -> None:
        file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.chmod(f"/proc/self/fd/{file}", stat.S_IMODE(os.fstat(file).st_mode) | 0o700)
        finally:
            os.close(file)

    return repair


def _moving(path: str, put_aside: PutAside) -> Repair:
    return lambda: put_aside(path)


def _renaming(there: str, path: str, put_aside: PutAside) -> Repair:
    def repair() -> None:
        if os.path.lexists(path):
            put_aside(path)
        os.rename(there, path)

    return repair


def _writing(path: str, form: str, put_aside: PutAside) -> Repair:
    """Make the entry again that was a link or a file."""
    kind, _, content = form.partition(" ")

    def repair() -> None:
        if os.path.lexists(path):
            put_aside(path)
        if kind == "link":
            os.symlink(content.removeprefix("to "), path)
        else:
            _create(path, content.encode("utf-8", "surrogateescape"), 0o644)

    return repair


def _as_it_was(path: str, old: Config, put_aside: PutAside) -> Repair:
    return _writing(path, f"link to {old.link}", put_aside) if old.link else _restoring(path, old.content, put_aside)


def _restoring(path: str, content: bytes, put_aside: PutAside) -> Repair:
    def repair() -> None:
        mode = 0o644
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.lexists(path):
            mode = stat.S_IMODE(os.stat(path).st_mode)
            put_aside(path)
        _create(path, content, mode)

    return repair


def _create(path: str, content: bytes, mode: int) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
