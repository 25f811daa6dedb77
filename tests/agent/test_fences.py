"""What rules on shell commands hold against: words that are not known, wrappers, programs in disguise."""

import json
import random
import re
from pathlib import Path

import pytest

from spindle.agent.fences.rules import Policy, decide, misspelt, rules_of
from spindle.shapes.builtin_tools import TOOLS
from tests.support.shell_fuzz import Judge, make_line

HERE = Path(__file__).parent
DOC = (HERE.parents[1] / "docs" / "permissions.md").read_text()
EXAMPLES = [json.loads(text)["permissions"] for text in re.findall(r"(?s)```json\n(\{\n  \"permissions\".*?)```", DOC)]
ORDINARY = [
    text.replace("\1", "\n")
    for text in re.sub(r"\n\t", "\1", (HERE / "ordinary_commands.txt").read_text()).strip().split("\n")
]


@pytest.fixture
def cwd(tmp_path, monkeypatch):
    work = tmp_path / "work"
    (work / "src" / "deep").mkdir(parents=True)
    (work / "other" / "inner").mkdir(parents=True)
    (work / ".env").write_text("SECRET=1")
    (work / "src" / "way").symlink_to("../other/inner")
    (work / "other" / "key").symlink_to("../.env")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return work


def decided(cwd, command, mode="bypass", **lists):
    rules = [rule for behavior, texts in lists.items() for rule in rules_of(behavior, texts, "test")]
    return decide(Policy(str(cwd), mode, rules), "bash", {"command": command})


READING = r"""
cat $PWD/.env
f=.env; cat $f
cat ${x:-.env}
cat "${x:=.env}"
cat $(echo .env)
cat `echo .env`
cat $(printf '.%s' env)
cat src/$(echo ..)/.env
cat s$(echo rc)/../.env
for f in .e* x; do cat "$f"; done
for f in a .env; do cat $f; done
while read -r f; do cat "$f"; done <<< .env
read f <<< .env; cat $f
f=(.env); cat ${f[0]}
cat .e""nv
cat .{e,x}nv
cat src/way/../key
cat src/way/../../.env
cd src/way; cat ../../.env
cd src; cat ../.env
cd $X; cat .env
cd src; cd -; cat .env
for i in 1 2; do cd ..; cat work/.env; done
cd ..; cat work/.env
(cd src && cat ../.env)
env -C src cat ../.env
tar -C src -cf - ../.env
head -c100 <.env
sort -o out .env
grep -f.env x
curl --data @.env x
docker run -v ./.env:/x a
echo .env | xargs cat
echo .env | xargs -I% cat %
find . -name .env -exec cat {} +
find . -exec cat {} \;
find . -name '.e*' | xargs -0 head
x=.env; y=$x; sh -c "cat $y"
f() { cat "$1"; }; f .env
cat ~+/.env
cat ~/../work/.env
python -c 'print(1)' "$f"
cat -- .env
exec 3<.env; cat <&3
cat other/k*
mv .env x; cat x
python -c 'print(open(".env").read())'
sed -n 'r .env' x
awk 'BEGIN { while ((getline l < ".env") > 0) print l }'
git -c alias.x='!cat .env' x
cat /proc/self/cwd/.env
cat .[[:alpha:]]nv
cat <>.env
{fd}<x cat .env
time -- cat .env
jobs -x cat .env
date -f .env
git config -f "$f" -l
sed r.env x
sudo -D src cat ../.env
sqlite3 x '.read .env'
some-tool 'a b .env'
some-tool a,.env
ln -s . x; cat x/.env
python3 <<< "print(open('.env').read())"
psql <<< '\i .env'
tar cf - -T <(echo .env)
echo .env | tar c -T -
echo .env | rsync --files-from=- . h:
""".strip().splitlines()


@pytest.mark.parametrize("command", READING)
def test_a_file_that_may_not_be_read_is_not_named_in_another_way(cwd, command):
    assert decided(cwd, command, deny=["Read(./.env)"]).behavior != "allow"
    assert decided(cwd, command, "dontAsk", deny=["Read(./.env)"], allow=["Bash"]).behavior == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "echo $f .env",
        "test -f .env && echo yes",
        "[ -f $f ]",
        "f=.env",
        "export F=.env",
        "ls -la .env $f",
        "cat src/*.py",
        "cat *",
        "for f in src/*.py; do cat $f; done",
        'cat "$x.py"',
        "find . -name '*.py' -exec cat {} +",
        "cd src; cat deep/x",
        "git commit -m \"$(cat <<'E'\nabout .env\nE\n)\"",
        "git checkout $branch",
        "diff <(ls a) <(ls b)",
        'curl -H "Key: $KEY" https://x/y',
        "make -j$(nproc)",
        "rm -f $f",
        "python3 - <<'E'\nprint('the .environment')\nE",
        "cat > x.md <<'E'\nabout .env\nE",
    ],
)
def test_what_opens_no_such_file_is_allowed(cwd, command):
    assert decided(cwd, command, deny=["Read(./.env)"]).behavior == "allow"


CHANGING = r"""
patch < x
git apply x
git clean -fdx
find . -delete
find . -name '.e*' -delete
rm -rf .
rm -r ../work
cd src; rm -rf ..
""".strip().splitlines()


@pytest.mark.parametrize("command", CHANGING)
def test_a_file_that_may_not_be_changed_is_not_changed_unnamed(cwd, command):
    assert decided(cwd, command, deny=["Edit(./.env)"]).behavior != "allow"


@pytest.mark.parametrize("command", ["find . -name '*.pyc' -delete", "rm -rf build", "git clean -fd", "git apply x"])
def test_what_changes_no_such_file_is_allowed(cwd, command):
    assert (
        decided(cwd, command, deny=["Edit(./.env)" if "apply" not in command else "Read(./.env)"]).behavior == "allow"
    )


def test_rules_for_folders_and_the_home_directory(cwd):
    for command in [
        "cd && cat .ssh/id_rsa",
        "cat $HOME/.ssh/x",
        "cd ~; head .ssh/a",
        "d=$(pwd); cat $d/../home/.ssh/x",
    ]:
        assert decided(cwd, command, deny=["Read(~/.ssh/**)"]).behavior != "allow", command
    for command in ["cp x $d/package.json", "tee $f", "cp x $y", "sed -i s/a/b/ $(git ls-files)"]:
        assert decided(cwd, command, ask=["Edit(package.json)"]).behavior == "ask", command
    assert decided(cwd, "cat $f", ask=["Edit(package.json)"]).behavior == "allow"


RUNNING = r"""
p=push; git $p
git $(echo push)
git -C . push
git -C "$dir" push
git --no-pager -c color.ui=no push origin
x=; git $x push
"git" 'push'
git {push,origin}
g=git; $g push
for v in pull push; do git $v; done
bash -c -e 'git push'
bash -c -- 'git push'
bash -ec 'git push' x
bash --norc -O extglob -c 'git push'
. /dev/stdin <<< 'git push'
bash /dev/stdin <<< 'git push'
echo git push | bash /dev/fd/0
source <(echo git push)
echo 'git push' > a.sh; bash a.sh
find . {-exec,git,push,+}
xargs -I% git % < x
echo push | xargs git
xargs -I{} {} push < x
flock l -c 'git push'
flock -c 'git push' l
flock l git push
rbash -c 'git push'
setpriv --reuid 0 git push
setpriv --reuid=0 --clear-groups git push
taskset -c 0 git push
taskset 0x1 git push
chrt -f 50 git push
setarch x86_64 git push
setarch -R git push
linux64 git push
prlimit --nofile=9 git push
runuser -u me git push
runuser me -c 'git push'
su me -c 'git push'
/lib64/ld-linux-x86-64.so.2 /usr/bin/git push
ld.so --library-path x git push
busybox sh -c 'git push'
script -c 'git push' out
script -qc 'git push'
watch -n1 git push
unshare -r git push
nsenter -t 1 -a git push
chroot / git push
strace -f -o x git push
ssh host git push
ssh -p 22 host 'cd x && git push'
ssh host -p 22 git push
env - git push
env -S 'git push'
env -u A B=c git push
sudo -u me -- git push
doas git push
nice -5 git push
time -p git push
timeout --foreground -k 1 5 git push
stdbuf -oL git push
parallel git ::: push
coproc git push
trap 'git push' EXIT
trap -- "git push" 0
BASH_ENV=/dev/stdin bash -c : <<< 'git push'
PS4='$(git push)' bash -xc :
env 'BASH_FUNC_ls%%=() { git push; }' bash -c ls
GIT_EDITOR='git push' git commit
PAGER='git push' man x
git -c alias.x='!git push' x
git config alias.x push
git rebase -x 'git push' main
git bisect run git push
git submodule foreach git push
tar -cf x --checkpoint-action=exec='git push' .
rsync -e 'git push' a b:
awk 'BEGIN { system("git push") }'
awk 'BEGIN { "git push" | getline }'
sed '1e git push' x
sed 's/x/git push/e' x
vim -c '!git push'
man -P 'git push' ls
rg --pre 'git push' x
sort --compress-prog=x y
ssh -o ProxyCommand='git push' h
npx git push
uv run git push
uv run bash -c 'git push'
f() { git push; }; f
[[ -f x ]] && git push
x='a[$(git push)]'; echo $((x))
[[ $(git push) ]]
(( $(git push) ))
: ${x:-$(git push)}
eval "$x"
$x push
$'\x67it' push
some-tool --quiet git push
some-tool 'cd x; git push'
some-tool -x=y git $p
/opt/x/some-tool /usr/bin/git push
fakeroot sudo -u me git push
npm exec -c 'git push'
tmux send-keys 'git push' Enter
socat - EXEC:'git push'
CC='git push' make
MAKEFLAGS='--eval=$(shell git push)' make
python3 -c 'import os; os.system("git push")'
python3 -c 'subprocess.run(["git", "push"])'
tclsh <<< 'exec git push'
ssh host <<< 'git push'
make -f - <<< 'a:;git push'
git difftool -x 'git push'
alias g='git push'
PROMPT_COMMAND='git push'
echo 'import os; os.system("git push")' | python3
printf 'a:\n\tgit push' | make -f -
echo 'system("git push")' | awk -f -
echo '* * * * * git push' | crontab -
python3 <(echo 'import os; os.system("git push")')
python3 -c $'import os\nos.system("git push")'
make -f- <<< $'a:\n\tgit push'
make -f- <<< $'a:\n\t\x67it push'
cargo --config 'target.x.runner="git push"' run
git instaweb --httpd='git push'
git send-email --sendmail-cmd='git push' x
cp /usr/bin/git q; ./q push
ln -s /usr/bin/git q && ./q push
cp /usr/bin/git /tmp/q; /tmp/q push
cp /usr/bin/git src/q; cd src; ./q push
ln -s /usr/bin/git ls; PATH=.:$PATH ls push
echo 'git push' | tee a.sh; sh ./a.sh
echo $'#!/bin/sh\ngit push' | install -m755 /dev/stdin q && ./q
""".strip().splitlines()


@pytest.mark.parametrize("command", [*RUNNING, "cat <<E\n$(git push)\nE", "cat <<E | perl\nsystem('git push')\nE"])
def test_a_command_that_is_asked_about_does_not_hide(cwd, command):
    assert decided(cwd, command, ask=["Bash(git push *)"]).behavior == "ask"
    assert decided(cwd, command, deny=["Bash(git push *)"]).behavior != "allow"


DISGUISED = r"""
git -c alias.x='!rm y' x
git -c core.fsmonitor=x status
git -ccore.pager=x log
git --config-env=a=b status
git --exec-path=. x
git --git-dir=x status
git log --output=x
git diff --outpu x
git diff --ext-diff
git show --textconv
git fetch --upload-pack=x o
git clone -u x o
git clone -c core.sshCommand=x o
git clone 'ext::sh -c x'
git push --receive-pack x
git grep -O x
git grep --open-files-in-pager=x y
git bisect run x
git rebase -x y main
git rebase --exec=y main
git submodule foreach x
git submodule update
git difftool -x y
git filter-branch x
git config alias.x '!y'
git config core.pager x
git archive -o x HEAD
git format-patch -o x HEAD
git log $x
git $x
git diff "$(cat x)"
git log *
git {log,--output=x}
GIT_PAGER=x git log
find . -delete
find . -fprintf x y
find . {-exec,rm,x,+}
find . $x
tar xf a --to-command=x
tar xf a -I x
tar -cf a --checkpoint-action=exec=x b
sed -i s/a/b/ x
sed '1w y' x
sed 's/a/b/w y' x
sed -n '1e x' y
sed -f s x
sed "$x" y
awk 'BEGIN{system("x")}'
awk '{print > "x"}' y
awk '{print | "x"}' y
awk -f x y
rg --pre x y
sort -o x y
sort -uo x y
sort --outp=x y
shuf -n1 -o x y
iconv -o x y
file -C -m x
sort --compress-program=x y
man -P x y
less +!x y
vim -c x y
vim +x y
ssh -o ProxyCommand=x h
rsync -e x a b
rsync -ave x a b
zip -TT x a b
curl -o x y
curl -sSLO y
curl --output x y
curl -K x
wget -e x y
fd -x rm
go run x
go test -exec x
cargo --config x build
make -f x
npm --script-shell=x test
gh alias set x y
tree -o x
yq -i x y
xargs -I% find % -delete
""".strip().splitlines()


@pytest.mark.parametrize("command", DISGUISED)
def test_an_allow_rule_for_a_program_does_not_cover_its_dangerous_forms(cwd, command):
    name = command.split()[0] if "=" not in command.split()[0] else "git"
    allow = [f"Bash({name} *)", "Bash(find *)", "Bash(rm *)"]
    assert decided(cwd, command, "dontAsk", allow=allow).behavior == ("allow" if "rm,x,+" in command else "deny")
    asked = decided(cwd, command, "default", allow=allow[:1])
    assert asked.behavior == "ask" and asked.reason
    assert all("*" not in rule.replace(r"\*", "") for rule in asked.always if rule.startswith(f"Bash({name}"))
    assert decided(cwd, command, "default", allow=[*asked.always, *allow]).behavior == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git log --oneline -n 5 --stat",
        "git -C src -c user.name=x commit -am 'a --output=b'",
        "git push -u origin main",
        "git commit -m \"$(cat <<'E'\n-c x\nE\n)\"",
        "git log -- *.py",
        "git show HEAD:$x",
        "git config --get user.name",
        "git config user.email a@b",
        "git diff --stat $PWD/src",
    ],
)
def test_an_allow_rule_covers_the_ordinary_forms(cwd, command):
    assert decided(cwd, command, "dontAsk", allow=["Bash(git *)"]).behavior == "allow"


def test_words_are_not_taken_for_commands_where_they_cannot_be_one(cwd):
    for command in [
        "echo 'then git push'",
        "grep -rn 'git push' docs",
        "git commit -m 'git push: say why'",
        "cat > x.md <<'E'\ngit push\nE",
        "curl -d 'git push' https://x",
        "docker run $image git status",
    ]:
        assert decided(cwd, command, ask=["Bash(git push *)"]).behavior == "allow", command


def test_suggestions_are_not_wider_than_what_was_asked(cwd):
    for command, always in {
        "git -c x=y log": ("Bash(git -c x=y log)",),
        "git -C src log": ("Bash(git -C src log)",),
        "python -c 'x'": ("Bash(python -c 'x')",),
        "sed -n 1p x": ("Bash(sed -n 1p x)",),
        "sudo make x": ("Bash(sudo make x)", "Bash(make x *)"),
        "bash x.sh": ("Bash(bash x.sh)",),
        "npx x": ("Bash(npx x *)",),
        "git log -3": ("Bash(git log *)",),
        "": (),
        "  ": (),
    }.items():
        asked = decide(Policy(str(cwd), "default"), "bash", {"command": command}, ask=True)
        assert (asked.behavior, asked.always) == ("ask", always)


def test_the_user_may_settle_a_doubt_for_the_very_same_line(cwd):
    asked = decided(cwd, "cat $f", deny=["Read(./.env)"])
    assert (asked.behavior, asked.always) == ("ask", ("Bash(cat $f)",))
    assert decided(cwd, "cat $f", deny=["Read(./.env)"], allow=["Bash(cat $f)"]).behavior == "allow"
    assert decided(cwd, "cat $f", deny=["Read(./.env)"], allow=["Bash(cat *)", "Bash"]).behavior == "ask"


def test_few_ordinary_commands_are_asked_about(cwd):
    """Under the rules that the page shows, of 500 commands as agents write them at most 5 % are asked about."""
    assert len(ORDINARY) >= 500 and len(EXAMPLES) == 2
    given = {behavior: EXAMPLES[0].get(behavior, []) for behavior in ("ask", "deny")}
    assert given["ask"] and given["deny"]
    for have_file in (True, False):
        asked = [text for text in ORDINARY if decided(cwd, text, **given).behavior == "ask"]
        assert len(asked) <= 0.05 * len(ORDINARY), asked
        if have_file:
            (cwd / ".env").unlink()


def test_the_fence_of_the_page_holds(cwd):
    fence = EXAMPLES[1]
    assert fence["defaultMode"] == "dontAsk"
    for command in [*RUNNING, *DISGUISED]:
        if not re.match(r"git push|\[|:|f\(\)", command):
            assert decided(cwd, command, "dontAsk", allow=fence["allow"]).behavior == "deny", command


def test_git_does_not_obey_another_repository(cwd):
    (cwd / "src" / "deep" / "x").mkdir()
    (cwd / "src" / "deep" / "HEAD").write_text("ref: refs/heads/main")
    (cwd / "other" / ".git").mkdir()
    (cwd / "src" / "out").symlink_to("/")
    lines = [
        "cd src/deep; git status",
        "cd src; cd deep/x; git status",
        "cd other && git log",
        "cd src; cd out; git log",
    ]
    for line in [*lines, "git -C other log", "git -C src/deep status", "(cd other/inner; git diff)"]:
        for allow in (EXAMPLES[1]["allow"], ["Bash(git *)"], ["Bash(git status)", "Bash(git log)", "Bash(git diff)"]):
            assert decided(cwd, line, "dontAsk", allow=allow).behavior == "deny", line
        asked = decided(cwd, line, "default", allow=["Bash(git *)"])
        assert decided(cwd, line, "default", allow=asked.always).behavior == "allow", line
    assert decided(cwd, "cd src && git status", "dontAsk", allow=EXAMPLES[1]["allow"]).behavior == "allow"
    assert decided(cwd, "git -C src log", "dontAsk", allow=["Bash(git *)"]).behavior == "allow"


def test_what_bash_really_runs_was_seen(tmp_path):
    judge = Judge(tmp_path / "judge")
    chance = random.Random(11)
    lines = [make_line(chance) for _ in range(1500)]
    assert [line for line in lines if judge.fault(*line)] == []
    # The judge sees what the lines hide; a line that does nothing proves nothing.
    assert sum(deed in judge.ran(line) for deed, line in lines[:40]) > 20


def test_a_misspelt_tool_is_known_and_other_names_are_not_taken_for_one():
    for name, meant in {"bsh": "bash", "baash": "bash", "raed": "read", "edti": "edit", "wirte": "write"}.items():
        assert misspelt(name) == meant
    for name in [*TOOLS, "glob", "task", "webfetch", "deploy", "mcp__bsh", "b*sh", "notebookedit", "exitplanmode"]:
        assert misspelt(name) is None, name
