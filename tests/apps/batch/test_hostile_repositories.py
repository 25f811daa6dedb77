"""A model that may only write files cannot make git run a program, nor make it show or hide what it should not."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import Tasks, git, make_repo
from .test_folder import bash

KEYS = {"ANTHROPIC_API_KEY": "key-of-a-provider", "SPINDLE_REMOTE_TOKEN": "token-of-the-server"}


def writes(**files: str) -> dict[str, Any]:
    """Return a step of the model that writes files; the names are those of `NAMES`."""
    return {"calls": [{"name": "write", "arguments": {"path": name, "content": text}} for name, text in files.items()]}


def hostile(ran: Path, *more: str) -> str:
    """Return a configuration in which all that git could run leaves its name, and the environment, in `ran`."""

    def program(name: str) -> str:
        return f"sh -c 'env > {ran}/{name}; cat; exit 0'"

    return "\n".join(
        [
            "[core]",
            "repositoryformatversion = 0",
            f'fsmonitor = "{program("fsmonitor")}"',
            "hooksPath = hooks",
            f'sshCommand = "{program("ssh")}"',
            *more,
            '[filter "x"]',
            *(f'{kind} = "{program(kind)}"' for kind in ("clean", "smudge", "process")),
            "required = true",
            '[diff "x"]',
            f'textconv = "{program("textconv")}"',
            f'command = "{program("diff")}"',
            "[diff]",
            f'external = "{program("external")}"',
            '[merge "x"]',
            f'driver = "{program("merge")}"',
            '[remote "origin"]',
            f'url = "ext::{program("ext")}"',
            f'uploadpack = "{program("uploadpack")}"',
            "promisor = true",
            "[extensions]",
            "partialClone = origin",
            "[protocol]",
            "allow = always",
            '[protocol "ext"]',
            "allow = always",
            "",
        ]
    )


ATTRIBUTES = "* filter=x diff=x merge=x\n"
HOOK = "#!/bin/sh\nenv > %s/hook\n"


def attack(kind: str, ran: Path) -> dict[str, str]:
    config = hostile(ran)
    own = {"a.txt": "changed\n", ".gitattributes": ATTRIBUTES}
    if kind == "config":
        return {".git/config": config, ".git/hooks/post-index-change": HOOK % ran, **own}
    if kind == "included":
        return {".git/config": "[core]\n\tbare = false\n[include]\n\tpath = ../more\n", "more": config, **own}
    if kind == "info/attributes":
        return {".git/config": config, ".git/info/attributes": ATTRIBUTES, "a.txt": "changed\n"}
    if kind == "replaced .git":
        made = {"evil/HEAD": "ref: refs/heads/main\n", "evil/config": config, "evil/objects/x": "", "evil/refs/x": ""}
        return {**made, ".git": "gitdir: evil\n", **own}
    if kind == "submodule":
        return {"sub/.git/config": config, "sub/.gitattributes": ATTRIBUTES, "sub/i.txt": "changed\n", **own}
    if kind == "nested":
        made = {"HEAD": f"{'1' * 40}\n", "config": config, "objects/x": "", "refs/x": ""}
        return {**{f"new/.git/{name}": text for name, text in made.items()}, "new/x": "x", **own}
    assert kind == "our own directory"
    made = {"config": config, "info/attributes": ATTRIBUTES, "commondir": "../../work/evil\n"}
    made = {f"../objects/{number}/{name}": text for number in (0, 1) for name, text in made.items()}
    return {**made, "evil/config": config, **own}


@pytest.mark.parametrize(
    ("kind", "workspace"),
    [
        ("config", "clone"),
        ("config", "copy"),
        ("config", "none"),
        ("included", "clone"),
        ("info/attributes", "copy"),
        ("replaced .git", "worktree"),
        ("submodule", "clone"),
        ("nested", "worktree"),
        ("our own directory", "worktree"),
    ],
)
def test_files_of_the_model_make_git_run_nothing(tasks: Tasks, kind: str, workspace: str) -> None:
    inner = make_repo(tasks.place.root / "inner", i_txt="inner\n")
    repo = make_repo(tasks.place.project / "repo", a_txt="a\n", b_txt="b\n")
    git(repo, "submodule", "add", "-q", str(inner), "sub")
    git(repo, "commit", "-q", "-m", "sub")
    ran = tasks.place.root / "ran"
    ran.mkdir()
    tasks.place.env |= KEYS
    tasks.script(writes(**attack(kind, ran)), "done")
    tasks.write(*({"id": name, "prompt": "p", "repo": "repo"} for name in ("first", "second")))
    done = tasks.run("--workspace", workspace, "--jobs", "1", "--tools", "write")
    assert not os.listdir(ran)
    assert done.returncode == 0, done.stdout
    assert "+changed" in (tasks.runs / "first/patch.diff").read_text()


@pytest.mark.parametrize("workspace", ["worktree", "clone", "copy"])
def test_the_repository_behind_a_workspace_is_not_obeyed_once_it_has_changed(tasks: Tasks, workspace: str) -> None:
    repo = make_repo(tasks.place.project / "repo", a_txt="a\n")
    ran = tasks.place.root / "ran"
    ran.mkdir()
    config = (repo / ".git/config").read_text() + hostile(ran)
    tasks.script(
        writes(**{f"{repo}/.git/config": config, f"{repo}/.git/info/attributes": ATTRIBUTES, "a.txt": "changed\n"}),
        "done",
    )
    tasks.write(*({"id": name, "prompt": "p", "repo": "repo"} for name in ("first", "second")))
    tasks.run("--workspace", workspace, "--jobs", "1", "--retries", "0", "--tools", "write")
    assert not os.listdir(ran)
    assert tasks.statuses() == {"first": "ok", "second": "error"}
    assert "have changed since the batch began" in tasks.lines()[-1]["error"]
    assert "+changed" in (tasks.runs / "first/patch.diff").read_text()


def test_files_outside_are_not_shown(tasks: Tasks) -> None:
    """`core.worktree` and a link in place of a submodule name another folder."""
    inner = make_repo(tasks.place.root / "inner", i_txt="inner\n")
    repo = make_repo(tasks.place.project / "repo", a_txt="a\n")
    git(repo, "submodule", "add", "-q", str(inner), "sub")
    git(repo, "commit", "-q", "-m", "sub")
    tasks.place.write("private/secret.txt", "secret\n")
    private = tasks.place.root / "private"
    tasks.script(
        writes(**{".git/config": f"[core]\n\tbare = false\n\tworktree = {private}\n", "a.txt": "changed\n"}),
        bash(f"rm -rf sub; ln -s {private} sub"),
        "done",
    )
    tasks.write({"id": "a", "prompt": "p", "repo": "repo"})
    assert tasks.run("--workspace", "clone").returncode == 0
    patch = (tasks.runs / "a/patch.diff").read_text()
    assert "+changed" in patch and "+secret" not in patch


@pytest.mark.parametrize(
    "hiding",
    [
        "git update-index --assume-unchanged a.txt; git config core.ignoreStat true",
        "git config core.fileMode false; git config core.excludesFile $PWD/.all; echo '*' > .all",
        "echo '* working-tree-encoding=UTF-16' > .gitattributes",
        "echo '* text working-tree-encoding=nothing' > .git/info/attributes",
        "printf '[attr]text working-tree-encoding=nothing\\n[attr]diff filter=x\\n' > .gitattributes",
        "echo '*' >> .git/info/exclude",
        "rm -rf .git",
        "rm -rf .git/objects .git/HEAD",
        "rm .git/index; mkdir .git/index",
    ],
)
def test_a_change_is_not_hidden(tasks: Tasks, hiding: str) -> None:
    make_repo(tasks.place.project / "repo", a_txt="a\n", b_txt="b\n")
    tasks.place.write("project/repo/.gitattributes", "*.txt text\n")
    git(tasks.place.project / "repo", "add", "-A")
    git(tasks.place.project / "repo", "commit", "-q", "-m", "attributes")
    tasks.script(bash(f"{hiding}; echo changed > a.txt; chmod +x b.txt; echo new > new.txt"), "done")
    tasks.write({"id": "a", "prompt": "p", "repo": "repo"})
    done = tasks.run("--workspace", "clone")
    assert done.returncode == 0, done.stdout + (tasks.runs / "a/log").read_text()
    patch = (tasks.runs / "a/patch.diff").read_text()
    assert "+changed" in patch and "new mode 100755" in patch and "+++ b/new.txt" in patch


def test_the_objects_of_a_clone_from_elsewhere_are_kept(tasks: Tasks) -> None:
    repo = make_repo(tasks.place.root / "far", a_txt="a\n")
    tasks.script(bash("rm -rf .git; echo changed > a.txt"), "done")
    tasks.write({"id": "a", "prompt": "p", "repo": f"file://{repo}"})
    assert tasks.run("--retries", "0").returncode == 0
    assert "-a\n+changed" in (tasks.runs / "a/patch.diff").read_text()


def test_a_file_that_git_cannot_store_keeps_no_other_out(tasks: Tasks) -> None:
    repo = make_repo(tasks.place.project / "repo", a_txt="a\n", b_txt="b\n")
    (repo / ".gitattributes").write_text("*.wide working-tree-encoding=UTF-16LE\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "wide")
    tasks.script(
        bash("printf odd > x.wide; echo changed > a.txt; rm b.txt; for i in 1 2 3; do echo $i > n$i; done"), "done"
    )
    tasks.write({"id": "a", "prompt": "p", "repo": "repo"})
    assert tasks.run("--retries", "0").returncode == 0
    patch = (tasks.runs / "a/patch.diff").read_text()
    assert all(wanted in patch for wanted in ("+changed", "-b", "b/n1", "b/n2", "b/n3")) and "x.wide" not in patch
    assert "x.wide is not recorded" in (tasks.runs / "a/log").read_text()


def test_a_pipe_that_git_would_wait_for_holds_no_task(tasks: Tasks) -> None:
    make_repo(tasks.place.project / "repo", a_txt="a\n")
    tasks.script(bash("mkdir sub; mkfifo sub/.gitattributes; echo changed > sub/a.txt"), "done")
    tasks.write({"id": "a", "prompt": "p", "repo": "repo"})
    assert tasks.run("--retries", "0").returncode != 0
    assert "sub/.gitattributes is a pipe" in tasks.lines()[-1]["error"]


HONEST = {
    ".gitattributes": "*.txt text eol=crlf\n*.bin binary\n*.up filter=up\n[attr]plain -text -diff\n*.plain plain\n",
    "deep/er/.gitattributes": "*.txt -text\n/u.enc working-tree-encoding=UTF-16LE\n",
    "a.txt": "one\ntwo\n",
    "same.txt": "one\n",
    "deep/er/b.txt": "crlf\r\nstays\r\n",
    "deep/er/u.enc": "wide\n",
    "x.bin": "\0\1\r\n",
    "y.plain": "y\r\n",
    "big.up": "FILTERED\n",
    "same.up": "FILTERED\n",
    "folder/one": "1\n",
    "folder/two": "2\n",
    "file": "f\n",
    "linked/x": "x\n",
    "gone": "g\n",
    'od"d na\\me\t.txt': "odd\n",
    "lfs.dat": "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 3\n",
}
EDITS = r"""printf 'one\r\nthree\r\n' > a.txt; printf 'crlf\r\ngoes\n' > deep/er/b.txt; printf '\0\2\n' > x.bin
printf 'z\n' > y.plain; printf 'changed\n' > big.up; touch same.txt; chmod +x file; rm gone
printf 'w\0o\0r\0d\0\n\0' > deep/er/u.enc; for odd in od*; do printf 'odd\r\nmore\r\n' > "$odd"; done
rm -r folder; echo now a file > folder; mv file file.sav; mkdir file; mv file.sav file/inside
mv linked elsewhere; ln -s elsewhere linked; printf 'new\r\n' > new.txt; echo /ignored > .gitignore; echo i > ignored
sed -i s/size.3/size.4/ lfs.dat; ln -s nowhere dangling; printf '' > empty
"""


@pytest.mark.parametrize("workspace", ["worktree", "clone", "copy"])
def test_an_honest_patch_says_what_the_user_would_commit(tasks: Tasks, workspace: str) -> None:
    filters = {"clean": "tr a-z A-Z", "smudge": f"env >> {tasks.place.root}/filter-env; tr A-Z a-z"}
    given = {"core.autocrlf": "input", "filter.up.clean": filters["clean"], "filter.up.smudge": filters["smudge"]}
    tasks.place.write("home/.gitconfig", "")
    for key, value in given.items():
        git(tasks.place.root, "config", "--file", str(tasks.place.root / "home/.gitconfig"), key, value)
    home = {"HOME": str(tasks.place.root / "home"), "GIT_CONFIG_GLOBAL": str(tasks.place.root / "home/.gitconfig")}
    tasks.place.env |= home | KEYS
    repo = make_repo(tasks.place.project / "repo", x="x\n")
    for name, text in HONEST.items():
        path = repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-16-le") if name.endswith(".enc") else text.encode())

    def users_git(cwd: Path, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=cwd, env={**tasks.place.env, **home}, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    users_git(repo, "add", "-A")
    users_git(repo, "commit", "-q", "-m", "all")
    users_git(repo, "rm", "-rq", "--cached", ".")
    users_git(repo, "reset", "-q", "--hard")
    (tasks.place.root / "filter-env").write_text("")
    tasks.script(bash(EDITS), "done")
    tasks.write({"id": "a", "prompt": "p", "repo": "repo"})
    done = tasks.run("--workspace", workspace)
    assert done.returncode == 0, done.stdout
    assert not any(key in (tasks.place.root / "filter-env").read_text() for key in KEYS)
    patch = tasks.runs / "a/patch.diff"
    assert "same." not in patch.read_text(errors="replace")
    trees = []
    for name, change in (("edited", ("sh", "-c", EDITS)), ("applied", ("git", "apply", str(patch)))):
        clone = tasks.place.root / name
        users_git(tasks.place.root, "clone", "-q", str(repo), str(clone))
        subprocess.run(change, cwd=clone, env={**tasks.place.env, **home}, check=True)
        users_git(clone, "add", "-A")
        trees.append(users_git(clone, "ls-files", "-s"))
    assert trees[0] == trees[1]


# -- where the agent works, and what its neighbours get ------------------------------------------


@pytest.mark.parametrize("workspace", ["worktree", "clone", "copy", "none"])
def test_a_link_does_not_decide_where_the_agent_works(tasks: Tasks, workspace: str) -> None:
    repo = make_repo(tasks.place.project / "repo", a_txt="a\n")
    (tasks.place.root / "private").mkdir()
    (repo / "lib").mkdir()
    (repo / "lib/x").write_text("x")
    (repo / "out").symlink_to(tasks.place.root / "private")
    (repo / "src").symlink_to("lib")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "links")
    tasks.script(bash("touch here"), "done")
    away = f"rm -r ../lib; ln -s {tasks.place.root}/private ../lib"
    tasks.write(
        {"id": "out", "prompt": "p", "repo": "repo", "cwd": "out", "setup": "touch set-up"},
        {"id": "inside", "prompt": "p", "repo": "repo", "cwd": "src"},
        {"id": "later", "prompt": "p", "repo": "repo", "cwd": "lib", "setup": away},
    )
    assert tasks.run("--workspace", workspace, "--retries", "0", "--jobs", "1").returncode == 1
    assert tasks.statuses() == {"out": "error", "inside": "ok", "later": "error"}
    assert not os.listdir(tasks.place.root / "private")
    assert "b/lib/here" in (tasks.runs / "inside/patch.diff").read_text()
    assert "leads out of" in next(line["error"] for line in tasks.lines() if line["id"] == "out")


def test_verify_does_not_follow_a_link_of_the_agent(tasks: Tasks) -> None:
    make_repo(tasks.place.project / "repo", a_txt="a\n")
    tasks.place.write("project/repo/lib/x", "x")
    git(tasks.place.project / "repo", "add", "-A")
    git(tasks.place.project / "repo", "commit", "-q", "-m", "lib")
    (tasks.place.root / "private").mkdir()
    tasks.script(bash(f"cd ..; rm -r lib; ln -s {tasks.place.root}/private lib"), "done")
    tasks.write({"id": "a", "prompt": "p", "repo": "repo", "cwd": "lib", "verify": "touch verified"})
    assert tasks.run("--retries", "0").returncode == 1
    assert not os.listdir(tasks.place.root / "private")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"repo": "file:///r", "cwd": "/etc"}, "must be a directory inside"),
        ({"repo": "file:///r", "cwd": "a/../../.."}, "must be a directory inside"),
        ({"repo": "file:///r", "ref": "-q"}, "is an option"),
        ({"repo": "repo", "ref": "--force"}, "is an option"),
        ({"repo": "empty", "cwd": "/etc"}, "outside of"),
    ],
)
def test_words_that_lead_elsewhere(tasks: Tasks, task: dict[str, str], said: str) -> None:
    make_repo(tasks.place.project / "repo", a_txt="a\n")
    (tasks.place.project / "empty").mkdir()
    git(tasks.place.project / "empty", "init", "-q")
    tasks.script("done")
    tasks.write({"id": "a", "prompt": "p", **task})
    done = tasks.run("--retries", "0")
    assert done.returncode != 0
    assert re.search(said, done.stdout + done.stderr), json.dumps([done.stdout, done.stderr])
