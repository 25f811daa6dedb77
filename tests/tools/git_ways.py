"""Ways to make the user's next git run something, and ordinary work with git; for tests and `benchmarks/sandboxes`.

Each way is a list of commands, for one call of `bash` each. It works if the file `$TOP/MARK` is there after `use_git`.
"""
# ruff: noqa: E501 - a way is one line

import os
import shutil
import subprocess
from pathlib import Path

IDENTITY = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "n", "GIT_AUTHOR_EMAIL": "e"}
IDENTITY |= {"GIT_COMMITTER_NAME": "n", "GIT_COMMITTER_EMAIL": "e", "GIT_ALLOW_PROTOCOL": "file"}

EVIL = 'evil() { printf "[core]\\n\\tfsmonitor = touch %s/MARK; false\\n" "$TOP"; }; '
HOOK = 'hook() { mkdir -p "$1"; printf "#!/bin/sh\\ntouch $TOP/MARK\\n" >"$1/$2"; chmod +x "$1/$2"; }; '
BARE = 'bare() { mkdir -p $1/objects $1/refs; echo "ref: refs/heads/main" >$1/HEAD; evil >$1/config; }; '
LINK = 'gitlink() { git update-index --add --cacheinfo "160000,$(git rev-parse HEAD),$1"; }; '
NEW = 'new() { mkdir -p "$1"; git init -q "$1"; git -C "$1" commit -q --allow-empty -m x; }; '
MEANS = EVIL + HOOK + BARE + LINK + NEW
"""Functions for the steps."""
APART = (
    "mkdir -p deep; cd deep; git init -q; mkdir r; mv .git/objects .git/refs r; cp .git/config .git/HEAD r; mkdir -p r/worktrees/x; "
    "cp .git/HEAD r/worktrees/x; rm -rf .git; echo ../.. >r/worktrees/x/commondir; echo /no/.git >r/worktrees/x/gitdir; echo gitdir: r/worktrees/x >.git"
)

WAYS = {
    "config": ["evil >>.git/config"],
    "a key in the form of git": ['git config core.fsmonitor "touch $TOP/MARK; false"'],
    "a key on the line of its section": ['echo "[core] fsmonitor = touch $TOP/MARK; false" >>.git/config'],
    "a line that goes on": ["printf '[core]\\nfsmon\\\\\\nitor = touch %s/MARK\\n' $TOP >>.git/config", "evil >>.git/config"],
    "hard link, then write": ["ln .git/config x", "evil >>x"],
    "hard link to a hook's sample": ["ln .git/hooks/pre-commit.sample x", "hook . x; mv x .git/hooks/pre-commit"],
    "renamed, and a link": ["mv .git g2; ln -s g2 .git", "evil >>g2/config"],
    "renamed, copied, and a file": ["mv .git g2; cp -r g2 g3; evil >>g3/config; echo gitdir: g3 >.git"],
    "renamed to the temporary folder": ["mv .git $TMPDIR/g; cp -r $TMPDIR/g .git; evil >>.git/config"],
    "removed and made again": ["rm -rf .git; git init -q; evil >>.git/config"],
    "a file in a folder": ["bare deep/g3; echo gitdir: g3 >deep/.git"],
    "a file first, its directory later": ["mkdir -p deep; echo gitdir: g3 >deep/.git", "bare deep/g3"],
    "a directory deep down": ["mkdir -p deep; cd deep; git init -q; evil >>.git/config"],
    "a hook deep down": ["mkdir -p deep; cd deep; git init -q; hook .git/hooks post-index-change"],
    "a link deep down": ["bare deep/g3; ln -s g3 deep/.git"],
    "a bare one": ["bare deep; printf '\\tbare=false\\n\\tworktree = .\\n' >>deep/config"],
    "a common directory": ["mkdir -p deep; cd deep; git init -q; mkdir x; mv .git/config .git/objects .git/refs x; "
                           "evil >>x/config; echo ../x >.git/commondir"],
    "link to a configuration": ["evil >f; mkdir -p deep; git init -q deep; cp deep/.git/config f2; ln -sf ../../f2 deep/.git/config",
                                "evil >>f2"],
    "a submodule with a slash": ["evil >>.git/modules/libs/foo/config"],
    "its hooks": ["hook .git/modules/libs/foo/hooks post-index-change"],
    "the file of a submodule": ["bare g3; echo gitdir: ../../g3 >libs/foo/.git"],
    "a directory in its place": ["rm libs/foo/.git; cd libs/foo; git init -q; evil >>.git/config"],
    "a nested submodule": ["evil >>libs/foo/.git/x || evil >>.git/modules/libs/foo/modules/in/ner/config"],
    "a folder of hooks": ["hook scripts post-index-change"],
    "an included file": ["evil >>shared.inc"],
    "one that it includes": ["evil >>deeper.inc"],
    "a list of rebase": ['todo=$(git rev-parse --git-path rebase-merge)/git-rebase-todo; echo "exec touch $TOP/MARK" >>$todo'],
    "a worktree's configuration": ["git config extensions.worktreeConfig true; evil >.git/worktrees/tree/config.worktree"],
    "the repository of a worktree elsewhere": ["bare $TMPDIR/g3; echo $TMPDIR/g3 >.git/worktrees/elsewhere/commondir"],
    "the main one by a worktree": ["cd tree; evil >>$(git rev-parse --git-common-dir)/config"],
    "a new worktree": ["git worktree add -q wt2; evil >>.git/worktrees/wt2/config.worktree; "
                       "git config extensions.worktreeConfig true"],
    "an alias of a command": ['git config alias.st "!touch $TOP/MARK"; git config diff.external "touch $TOP/MARK; true"'],
    "a filter": ['git config filter.f.clean "touch $TOP/MARK; cat"; echo "a filter=f" >sub/.gitattributes; touch sub/a'],
    "another work tree": ["evil >>$TMPDIR/c; git config include.path $TMPDIR/c"],
    "a moved repository": ["git init -q one; mv one two; evil >>two/.git/config"],
    "a hook in a clone": ["git clone -q . deep/clone; hook deep/clone/.git/hooks post-index-change"],
    "a template": ["mkdir t; hook t/hooks post-index-change; git init -q --template=t deep"],
    "a directory in the temporary folder": ["mkdir -p deep; bare $TMPDIR/g3; echo gitdir: $TMPDIR/g3 >deep/.git"],
    "a common directory in the temporary folder": ["mkdir -p deep; cd deep; git init -q; evil >>.git/config; mv .git $TMPDIR/g; mkdir .git; cp $TMPDIR/g/HEAD .git; echo $TMPDIR/g >.git/commondir"],
    "an address that is a program": ['git config protocol.ext.allow always; git config remote.origin.url "ext::touch $TOP/MARK"; git config branch.main.remote "ext::touch $TOP/MARK"'],
    "a very large configuration": ["{ head -c 1100000 /dev/zero | tr '\\0' '#'; echo; evil; } >>.git/config"],
    "a folder that cannot be listed": ["mkdir -p deep; cd deep; git init -q; evil >>.git/config; cd ..; chmod 0311 deep"],
    "a program that it names": ["evil >>tools.sh; hook . tools.sh"],
    "a hook that is a link": ["hook ci hook.sh"],
    "a link that is a hook": ["rm scripts/post-index-change; hook scripts post-index-change"],
    "a folder of hooks that is a link": ["hook shared-hooks post-index-change"],
    "that link": ["hook h2 post-index-change; ln -sfn ../../../../h2 .git/modules/libs/foo/hooks"],
    "an included file that is a link": ["evil >>parts/one.inc"],
    "the link to an included file": ["rm linked.inc; evil >linked.inc"],
    "the folder of an included file": ["mv parts p2; mkdir parts; evil >parts/one.inc"],
    "a link to a program": ["rm tool-link; hook . tool-link"],
    "a program to come": ["hook build filter; touch a.c"],
    "a zero byte in a file": ['mkdir -p deep; bare $TMPDIR/g3; printf "gitdir: $TMPDIR/g3\\0x" >deep/.git'],
    "a line break in a file": ['mkdir -p deep; n=$(printf "$TMPDIR/g\\n3"); bare g3; mv g3 "$n"; printf "gitdir: $n\\n" >deep/.git'],
    "a zero byte in the path of a common directory": ["mkdir -p deep; cd deep; git init -q; mkdir x; mv .git/objects .git/refs x; evil >x/config; "
                                                       "rm .git/config; printf '../x\\0' >.git/commondir"],
    "a blank in the path of a common directory": ["mkdir -p deep/x; cd deep; git init -q --bare x; git init -q; mkdir 'x '; mv .git/objects .git/refs 'x '; "
                                                   "evil >'x /config'; rm .git/config; printf '../x ' >.git/commondir"],
    "a common directory without a head": [APART + "; rm r/HEAD; evil >r/config"],
    "a common directory that loses its head": [APART, "cd deep; rm r/HEAD; evil >r/config"],
    "its head first": [APART, "cd deep; rm r/HEAD", "cd deep; evil >r/config"],
    "the user's bare one loses its head": ["rm bare.git/HEAD; evil >>bare.git/config"],
    "among data that is none": ["mkdir -p two/objects two/refs; touch two/HEAD; new two/objects/deep; evil >>two/objects/deep/.git/config; gitlink two/objects/deep"],
    "a way to merge": ["d=$(git rev-parse --git-path rebase-merge); hook git-merge-a x; echo a/x >$d/strategy; "
                       'echo "pick $(git rev-parse HEAD) one" >>$d/git-rebase-todo'],
    "worktrees in the temporary folder": ["mv .git/worktrees $TMPDIR/w; ln -s $TMPDIR/w .git/worktrees; cp -r .git $TMPDIR/g; "
                                          "evil >>$TMPDIR/g/config; echo $TMPDIR/g >$TMPDIR/w/elsewhere/commondir"],
    "a copied worktree in the temporary folder": ["w=.git/worktrees/elsewhere; cp -r $w $TMPDIR/e; rm -rf $w; ln -s $TMPDIR/e $w; cp -r .git $TMPDIR/g; "
                                                   "evil >>$TMPDIR/g/config; echo $TMPDIR/g >$TMPDIR/e/commondir"],
    "below a folder that cannot be listed": ["new deep/sub; evil >>deep/sub/.git/config; gitlink deep/sub; chmod 0311 deep"],
    "a folder that is opened later": ["new deep; evil >>deep/.git/config; chmod 0 deep", "chmod 755 deep"],
    "a configuration elsewhere for each process": ["new deep; mv deep/.git/config conf; cp conf deep/conf; evil >>deep/conf; ln -s /proc/self/cwd/conf deep/.git/config"],
    "a common directory elsewhere for each process": ["mkdir -p deep; git init -q --bare x; cd deep; git init -q; mkdir x; mv .git/objects .git/refs x; evil >x/config; "
                                                      "rm .git/config; echo /proc/self/cwd/x >.git/commondir"],
    "a worktree that is called like data of git": ["w=$TMPDIR/g3; bare $w; echo $w >.git/worktrees/logs/commondir"],
    "a file first, its directory later in the temporary folder": ["mkdir -p deep; echo gitdir: $TMPDIR/g3 >deep/.git", "bare $TMPDIR/g3"],
    "a link first, its directory later in the temporary folder": ["mkdir -p deep; ln -s $TMPDIR/g3 deep/.git", "bare $TMPDIR/g3"],
    "a link for the text of a commit": ["new deep; ln -sf $TOP/.bashrc deep/.git/COMMIT_EDITMSG"],
    "a link for a log": ["new deep; ln -sf $TOP/.bashrc deep/.git/logs/HEAD"],
    "a link for the log of a branch": ["new deep; ln -sf $TOP/.bashrc deep/.git/logs/refs/heads/main"],
    "a link for a log in a bare one": ["git init -q --bare g; mkdir -p deep; printf 'gitdir: ../g' >deep/.git; sed -i s/true/false/ g/config; mkdir g/logs; "
                                       "ln -s $TOP/.bashrc g/logs/HEAD; git -C deep commit -q --allow-empty -m x 2>&1; rm -f $TOP/.bashrc"],
    "a link on the way that is another later": ["new deep/good; mv deep/good/.git deep/g; ln -s g deep/l; ln -s l deep/.git",
                                                "git init -q $TMPDIR/h; evil >>$TMPDIR/h/.git/config; ln -sfn $TMPDIR/h/.git deep/l"],
    "a program to come in a folder": ["hook build other; touch a.d"],
    "an argument to come": ["hook build run.sh; touch a.e"],
    "a git of its own": ["hook .venv/bin git"],
    "a git of its own behind a link": ["hook $TMPDIR/b git; mkdir .venv; ln -s $TMPDIR/b .venv/bin"],
    "a program by its name": ["hook .venv/bin by-name; touch a.f"],
    "a template for all": ["hook template/hooks post-index-change"],
    "a process that goes on": ["(sleep 0.2; evil >>.git/config; touch done) >&- 2>&- & :", "until [ -e done ]; do sleep 0.02; done"],
}  # fmt: skip


ORDINARY = {
    "commit": "echo c >>a; git add a; git commit -qm c; git log --oneline | wc -l",
    "branch that follows": "git clone -q . c; cd c; git checkout -qb x; git config branch.x.description y; git remote add o ../o",
    "init": "git init -q new; cd new; touch x; git add x; git commit -qm x",
    "clone": "git clone -q $TOP/other mine; cd mine; git submodule update -q --init; git status --short",
    "submodule": "git submodule add -q $TOP/inner libs/bar; git config --get submodule.libs/bar.url; test -f libs/bar/a",
    "submodule in a worktree": "cd tree; git submodule update -q --init libs/foo; test -f libs/foo/a",
    "worktree": "git worktree add -q more; cd more; git status --short; echo x >x; git add x; git commit -qm x; cd ..; "
    "git worktree remove more",
    "remove a repository": "git init -q new; rm -rf new; test ! -e new; git init -q new; rm -rf new/.git; test ! -e new/.git",
    "move": "git init -q new; mv new old; cd old; git status --short; cd ..; mv libs lib2",
    "rebase": "GIT_EDITOR=true git rebase --continue",
    "remote": "git remote add up $TOP/other; git fetch -q up; git push -q --dry-run up HEAD:refs/heads/x",
}


OUTSIDE = ("elsewhere", "logs", "of-bare")
"""Worktrees outside of the working directory."""


def git(*words: str, cwd: Path, check: bool = True) -> None:
    """Needs `variables` in the environment."""
    subprocess.run(["git", *words], cwd=cwd, check=check, capture_output=True, timeout=30, stdin=subprocess.DEVNULL)


def variables(home: Path) -> dict[str, str]:
    path = f"{home}/work/.venv/bin:{os.environ['PATH']}"
    return {**IDENTITY, "PATH": path, "HOME": str(home), "TOP": str(home), "SPINDLE_DIR": str(home / "agent")}


def make_repository(home: Path) -> Path:
    """Make a repository with a submodule, a worktree, hooks in a folder of the project, included files and a rebase."""
    work, other, inner = home / "work", home / "other", home / "inner"
    (home / ".gitconfig").write_text('[protocol "file"]\n\tallow = always\n[init]\n\tdefaultBranch = main\n')
    for folder in (inner, other, work):
        folder.mkdir()
        git("init", "-q", cwd=folder)
        (folder / "a").write_text("a\n")
        git("add", "a", cwd=folder)
        git("commit", "-qm", "one", cwd=folder)
    git("submodule", "add", "-q", str(inner), "in/ner", cwd=other)
    git("commit", "-qm", "inner", cwd=other)
    git("submodule", "add", "-q", str(other), "libs/foo", cwd=work)
    git("submodule", "update", "-q", "--init", "--recursive", cwd=work)
    git("commit", "-qm", "libs", cwd=work)
    git("worktree", "add", "-q", "tree", cwd=work)
    for name in ("elsewhere", "logs"):
        git("worktree", "add", "-q", f"../{name}", cwd=work)
    (work / "sub").mkdir()
    (work / "scripts").mkdir()
    (work / "scripts/helper").write_text("")
    (work / "shared.inc").write_text("[include]\n\tpath = deeper.inc\n")
    (work / "deeper.inc").write_text("[user]\n\tname = n\n")
    git("config", "core.hooksPath", "scripts", cwd=work)
    (home / "work/tools.sh").write_text("#!/bin/sh\ncat\n")
    (home / "work/tools.sh").chmod(0o755)
    (work / "tool-link").symlink_to("tools.sh")
    git("config", "filter.t.clean", "./tool-link", cwd=work)
    git("config", "filter.c.clean", "./build/filter", cwd=work)
    git("config", "filter.d.clean", "build/other", cwd=work)
    git("config", "filter.e.clean", "sh build/run.sh", cwd=work)
    git("config", "filter.f.clean", "by-name", cwd=work)
    attributes = "new filter=t\na.c filter=c\na.d filter=d\na.e filter=e\na.f filter=f\n"
    (work / ".git/info/attributes").write_text(attributes)
    (work / "parts").mkdir()
    (work / "parts/one.inc").write_text("[user]\n\tname = n\n")
    (work / "linked.inc").symlink_to("parts/one.inc")
    git("config", "--add", "include.path", "../linked.inc", cwd=work)
    for folder in ("ci", "shared-hooks"):
        (work / folder).mkdir()
    (work / "ci/hook.sh").write_text("#!/bin/sh\n")
    (work / "ci/hook.sh").chmod(0o755)
    (work / "scripts/post-index-change").symlink_to("../ci/hook.sh")
    shutil.rmtree(work / ".git/modules/libs/foo/hooks", ignore_errors=True)
    (work / ".git/modules/libs/foo/hooks").symlink_to("../../../../shared-hooks")
    git("init", "-q", "--bare", "bare.git", cwd=work)
    git("push", "-q", "bare.git", "HEAD:refs/heads/main", cwd=work)
    git("worktree", "add", "-q", "../../of-bare", cwd=work / "bare.git")
    git("config", "--add", "include.path", "../shared.inc", cwd=work)
    (work / "template/hooks").mkdir(parents=True)
    git("config", "--global", "init.templateDir", str(work / "template"), cwd=work)
    (work / "a").write_text("b\n")
    git("commit", "-qam", "two", cwd=work)
    subprocess.run(["git", "rebase", "-qi", "HEAD~1"], cwd=work, env={**os.environ, "GIT_SEQUENCE_EDITOR": "echo break >"},
                   check=True, capture_output=True)  # fmt: skip
    return work


def use_git(work: Path) -> None:
    """Do what a user does, wherever there is a repository."""
    places = [work, *(path for path in work.rglob("*") if path.is_dir() and not path.is_symlink())]
    for place in [*places, *(work.parent / name for name in OUTSIDE)]:
        inside = ".git" in place.parts
        if not inside and (
            place == work or place.name in (*OUTSIDE, "deep", "tree", "wt2", "foo", "ner", "sub", "clone", "two")
        ):
            git("status", cwd=place, check=False)
            git("diff", cwd=place, check=False)
            (place / "new").write_text("n")
            git("add", "new", cwd=place, check=False)
            git("add", "-A", ".", cwd=place, check=False)
            git("commit", "-qm", "new", cwd=place, check=False)
    git("rebase", "--continue", cwd=work, check=False)
    git("init", "-q", "fresh", cwd=work.parent, check=False)
    git("add", "-A", cwd=work.parent / "fresh", check=False)
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=work.parent / "fresh", check=False)
    if (work.parent / ".bashrc").exists():  # git has written where the next shell reads
        (work.parent / "MARK").touch()
