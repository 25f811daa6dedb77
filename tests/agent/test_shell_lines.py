"""Shell lines, checked against bash: no command may be missing unless the line is unclear."""

import random
import re
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.agent.fences.shell.lines import read_line

ORDINARY = r"""
git status
git commit -m "a && b; c | d"
git log --oneline -n 5 | head
npm run test -- --watch=false
npm ci && npm run build || echo failed
cd src && make -j4; cd ..
ls -la *.py | wc -l > count.txt
grep -rn 'foo(bar)' src --include=*.py 2>/dev/null
find . -name '*.pyc' -delete
find . -type f -exec chmod 644 {} \;
find . -type f -exec grep -l foo {} +
for f in a b c; do echo "$f"; done
for f in *.txt; do mv "$f" "${f%.txt}.md"; done
while read line; do echo $line; done < input.txt
until ping -c1 host; do sleep 1; done
if [ -f a ]; then cat a; elif test -d b; then ls b; else exit 1; fi
case "$1" in start) run start;; stop|halt) run stop;; *) echo usage;; esac
{ echo a; echo b; } > out.txt
( cd sub && make ) &
echo $(date +%s) "$(git rev-parse HEAD)" `hostname`
x=$(cat file); echo "$x"
diff <(sort a) <(sort b)
tee >(gzip > out.gz) < in
echo "nested $(echo "inner $(echo deep)")"
timeout 10 pytest -q
time make
! grep -q x file
sudo apt-get install -y jq
env FOO=1 node app.js
NODE_ENV=test npm test
xargs -n 1 -P 4 rm < list
cat list | xargs rm -f
bash -c 'git status && ls'
sh -lc "npm test"
eval 'git status'
set -euo pipefail; make
python3 -c 'import os; print(os.getcwd())'
sed -i 's/a/b/' f && awk '{print $1}' f
printf '%s\n' a b
command -v node
nohup server > log 2>&1 &
nice -n 10 make
true # a comment; rm -rf /
echo '#' not a comment
make 2>&1 | tee build.log
a=1 b=2
test -n "$X" && echo yes
docker run --rm -v "$PWD:/w" image sh -c 'make test'
tar czf - . | ssh host 'cat > x.tgz'
curl -s https://example.com | jq '.a[] | select(.b)'
echo {a,b,c} ~ ~/x $HOME ${HOME} ${x:-y} ${#x} $? $$ $!
echo "a'b" 'a"b' a\ b \; \| "\$(no)" '$(no)'
if true; then (echo a; (echo b)); fi
for i in 1 2; do for j in 3 4; do echo $i $j; done; done
case x in (x) echo y;; esac; echo z
echo one;echo two&echo three
echo a|cat|cat&&echo b
""".strip().splitlines()

HERE = [
    "cat <<EOF\nhello $(whoami) `id`\nEOF\nls",
    "cat <<'EOF'\n$(not run) `nor this`\nEOF\nls",
    "cat <<-EOF\n\tindented $(date)\n\tEOF\nls",
    "cat <<A <<B\n$(one)\nA\n$(two)\nB\nthree",
    "x=$(cat <<EOF\n$(inner)\nEOF\n)\nls",
    "if true\nthen\n  make\nfi\n\n# comment\nls",
    "case x in\n  # comment\n  a) one;;\n\n  b)\n two\n ;;\nesac\nthree",
    "cat <<EOF | grep x && rm y\nbody\nEOF",
    "cat <<'EOF' > script.sh\nrm -rf \"$1\"\nEOF\nchmod +x script.sh",
    "echo a \\\n  b c",
]

HOSTILE = r"""
echo hi; rm -rf /
echo hi && rm -rf /
echo hi || rm x
echo hi | rm x
echo hi & rm x
echo $(rm x)
echo "$(rm x)"
echo `rm x`
echo "`rm x`"
echo ${x:-$(rm x)}
echo "${x:-`rm x`}"
echo <(rm x)
cat < <(rm x)
echo x >(rm x)
{ rm x; }
(rm x)
((rm x))
( (rm x) )
! rm x
time rm x
time -p rm x
time { rm x; }
if rm x; then :; fi
while rm x; do break; done
until rm x; do :; done
for a in $(rm x); do :; done
for a in b; do rm x; done
case $(rm x) in *) :;; esac
case a in a) rm x;; esac
case a in $(rm x)) :;; esac
case a in b) :;; esac; rm x
case a in a) case b in b) rm x;; esac;; esac
f() { rm x; }; f
f () ( rm x ); f
function f { rm x; }; f
X=rm; $X x
X=$(rm x)
X=`rm x` echo
X=1 rm x
X=1 Y=2 rm x
PATH=. git status
LD_PRELOAD=./x.so git status
"rm" x
'r'm x
r\m x
r"m" x
$'rm' x
$'\x72m' x
$"rm" x
/bin/rm x
/bin/r? x
{rm,x}
r{m,} x
rm$IFS-rf
env rm x
env -i A=b rm x
env -S 'rm x'
sudo rm x
sudo -u root rm x
sudo -i rm x
doas rm x
command rm x
builtin eval 'rm x'
exec rm x
nohup rm x
timeout 5 rm x
timeout -s KILL 5 rm x
nice rm x
stdbuf -oL rm x
setsid rm x
xargs rm
xargs -I{} rm {}
find . -exec rm {} \;
find . -execdir rm {} +
find . -ok rm {} \; -exec chmod 7 {} \;
sh -c 'rm x'
bash -c "rm x"
bash -lc 'echo hi; rm x'
bash -c $X
echo rm x | sh
bash < script
bash <<< 'rm x'
bash <(echo rm x)
bash -s
eval rm x
eval "rm x"
eval "$X"
eval 'eval "rm x"'
sh -c "sh -c 'rm x'"
trap 'rm x' EXIT
alias ls='rm x'; ls
declare -x PATH=.
let 'a[$(rm x)]=1'
echo $((a[$(rm x)]))
x='a[$(rm x)]'; echo $((x))
[ -v 'a[$(rm x)]' ]
[[ -v 'a[$(rm x)]' ]]
printf -v 'a[$(rm x)]' b
unset 'a[$(rm x)]'
read 'a[$(rm x)]' <<< y
a=(x $(rm y))
a[$(rm x)]=1
echo "${a[$(rm x)]}"
echo ${x@P}
echo $[ $(rm x) ]
coproc rm x
select x in a; do rm x; done
watch rm x
watch 'rm x'
flock /tmp/l rm x
busybox rm x
parallel rm ::: x
source x.sh
. x.sh
echo hi > /etc/passwd
echo hi >> ~/.bashrc
echo hi >| f
echo hi &> f
echo hi &>> f
echo hi >& f
echo hi 2> f
> f
>f echo hi
exec 3> f
cat <> f
echo a;#b
echo a #b; rm x
echo 'a
echo "a
echo `a
echo $(a
echo a)
echo ;; rm x
for PATH in .; do git status; done
for ((i=0;i<3;i++)); do rm x; done
echo a &&
&& rm x
rm x |
git status $(
find . $X
su -c 'rm x'
echo @(a|b)
echo !(a)
rm x;;
>&-rm x
> <()git rm x
git<()rm x
cat <(a)<(b)rm x
<&-rm x
2>&-rm x
esac; rm x
""".strip().splitlines()

HOSTILE_LINES = [
    "git status\nrm x",
    "git status\r\nrm x",
    "r\\\nm x",
    "t\\\nhen rm x",
    'echo "$\\\n(rm x)"',
    "echo \\\n; rm x",
    "cat <<EOF\n$(rm x)\nEOF",
    "cat <<EOF\n`rm x`\nEOF",
    'cat <<EOF\n"$(rm x)"\nEOF',
    "cat <<EOF\nfoo\\\nEOF\nrm x\nEOF",
    "cat <<'EOF'\nEOF\nrm x",
    "cat <<EOF\nEOF \nEOF\nrm x",
    "cat <<-EOF\n\tEOF\nrm x",
    "cat <<EOF $(echo\nEOF\nrm x)\nEOF",
    "cat <<$(rm x)\n$(rm x)",
    "echo 'a\nb' <<EOF\nEOF\nrm x",
    "cat <<EOF 'a\nEOF\n'\nrm x\nEOF",
    "# comment\\\nrm x",
    "echo a # comment \\\nrm x",
    "if true; then\nrm x\nfi",
    "for x\nin a\ndo\nrm y\ndone",
    "case x in\nx)\nrm y\nesac",
    "{\nrm x\n}",
    "$(\nrm x\n)",
    "echo `\nrm x\n`",
    "((\nrm x))",
]
SMALL = ["git status", "ls -la", "make", "rm x", "cat f", "X=1 env", "echo 'a b'", 'echo "$(id)"', "true"]
JOINS = [" && ", " || ", "; ", " | ", " & ", "\n", " |& "]
WRAPS = [
    "( {} )",
    "{{ {}; }}",
    "if {}; then {}; fi",
    "while {}; do {}; break; done",
    "for a in b; do {}; done",
    "echo $( {} )",
    "case a in a) {};; esac",
    "! {}",
    "time {}",
    "cat <( {} )",
    "x=$( {} )",
    "sh -c 'ls' && {}",
]


def made_lines(count: int) -> list[str]:
    """Ordinary lines put together at random, the same at every run."""
    chance = random.Random(7)

    def line(depth: int) -> str:
        pick = chance.random()
        if depth == 0 or pick < 0.3:
            return chance.choice(SMALL)
        if pick < 0.65:
            return line(depth - 1) + chance.choice(JOINS) + line(depth - 1)
        form = chance.choice(WRAPS)
        return re.sub(r"\{\}", lambda _: line(depth - 1), form).replace("{{", "{").replace("}}", "}")

    return [line(3) for _ in range(count)]


def ran(text: str, folder: str) -> list[str]:
    """Let bash run a line in which no command exists, and return the commands it looked for."""
    log = "command_not_found_handle() { printf '%s\\0' \"$1\" >&9; }\n"
    script = ["/bin/bash", "--norc", "-c", f'exec 9>{folder}/log\n{log}eval "$LINE"']
    env = {"PATH": "/nowhere", "LINE": text}
    try:
        subprocess.run(script, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=5)
    except subprocess.TimeoutExpired:
        return []
    return Path(folder, "log").read_bytes().decode("utf-8", "replace").split("\0")[:-1]


def test_lines_put_together_are_clear_and_no_command_is_missing(tmp_path):
    for text in made_lines(60):
        line = read_line(text)
        assert line.unclear is None, text
        assert set(ran(text, str(tmp_path))) <= {command.words[0].value for command in line.commands if command.words}


def test_ordinary_lines_are_clear():
    unclear = [(text, why) for text in [*ORDINARY, *HERE] if (why := read_line(text).unclear)]
    assert [text for text, _ in unclear] == []


@pytest.mark.parametrize("text", [text for text in [*HOSTILE, *HOSTILE_LINES] if "rm" in text and "no" not in text])
def test_rm_is_found_or_the_line_is_unclear(text):
    line = read_line(text)
    if "#" in text and "\n" not in text:
        return  # a comment
    assert line.unclear or any(command.name == "rm" for command in line.commands)


PIECES = [
    *"rmx;&|()<>{}$`'\"\\\n#=!*[]1:-@",
    *[" "] * 6,
    "<<E",
    "<<-'E'",
    "\nE\n",
    "\n\tE\n",
    "$(",
    "$((",
    "${x",
    "do ",
    "done ",
    "for x ",
    "if ",
    "fi ",
    "case x ",
    " in ",
    "esac ",
    "then ",
    ";;",
    "&&",
    "||",
    "eval ",
    "sh -c ",
    "[[ ",
    "cm1",
    "cm2",
    "cm3 ",
    "x=",
    "time ",
    "command ",
    "}",
    "{ ",
    ">&",
    "<(",
    "$x",
    "f()",
    "function ",
    "&>",
    "\\\n",
    "x=cm1;",
    "{cm2,a}",
    "{a,",
    "[a]",
    "]] ",
    "(( ",
    "))",
    "x=(",
    "${x:-cm3}",
    "$((1+1))",
    "<<<",
    "{fd}>",
    "time -- ",
    "~",
    "export x=",
    "read x",
    "trap 'cm2' EXIT;",
]
lines = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@settings(max_examples=400)
@given(lines)
def test_what_bash_runs_was_found(text):
    line = read_line(text)
    if line.unclear or not line.commands:
        return
    found = {word.value for command in line.commands for word in command.words[:1]}
    with tempfile.TemporaryDirectory() as folder:
        assert set(ran(text, folder)) - {"", "time"} <= found, (text, found)  # `| time` is a program, and free


@settings(max_examples=300)
@given(st.text(max_size=60))
def test_any_characters_are_read(text):
    read_line(text)


@pytest.mark.parametrize(
    "text",
    [
        "$(" * 5000,
        "(" * 50_000,
        "`" * 5001,
        "echo " + "a" * 300_000,
        "cat <<E\n" + "x\n" * 50_000 + "E",
        "'" * 99_999,
        '"$x' * 30_000,
        "sh -c '" * 50,
        "case a in " * 20_000,
        "echo " + "*" * 190_000,
        "echo " + "{a,b}" * 30_000,
        "x=a;" * 40_000,
        "cat <<E\n" + '"$x" ' * 30_000 + "\nE",
        "sudo " * 30_000 + "rm x",
        "rm x; " * 200_000,
    ],
)
def test_long_lines_take_no_time(text):
    began = time.process_time()
    read_line(text)
    assert time.process_time() - began < 3
