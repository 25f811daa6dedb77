"""Shell lines that hide a command, and bash as the judge of what they really run.

A line hides one of three deeds: running `rm`, running `git push`, reading `.env`. `Judge` runs lines in bash, with
programs that only note their arguments; `fault` compares that with the decision that rules make.
"""

import os
import random
import shutil
import subprocess
from pathlib import Path
from unittest.mock import patch

from spindle.agent.fences.rules import Policy, Rule, decide, rules_of
from spindle.shapes.permission_modes import PermissionMode

DEEDS = {
    "rm": (["rm", "x"], "Bash(rm *)"),
    "push": (["git", "push", "origin"], "Bash(git push *)"),
    "read": (["cat", ".env"], "Read(./.env)"),
}
REAL = (
    "bash sh env timeout nice xargs find setsid stdbuf flock taskset chrt setpriv prlimit setarch nohup ionice "
    "head tail tr basename dirname seq printf sleep"
)
"""Programs that lines may really run; they do no harm with the arguments that lines have."""
NOTED = "rm cat git echo2 ls make grep sed less tool"

STUB = """#!/bin/sh
{ printf '%s' "${0##*/}"; printf ' %s' "$@"; echo; } >>"$FUZZ_LOG"
case "${0##*/}" in
cat) [ /dev/fd/0 -ef "$FUZZ_ENV" ] && echo READ >>"$FUZZ_LOG"
  [ $# -gt 0 ] || while IFS= read -r line; do printf '%s\\n' "$line"; done
  for f in "$@"; do [ "$f" -ef "$FUZZ_ENV" ] && echo READ >>"$FUZZ_LOG"; done;;
ls) printf '%s\\n' .env src rm push;;
esac
exit 0
"""
SPELLINGS = [
    lambda t, v: ("", t),
    lambda t, v: ("", f"'{t}'"),
    lambda t, v: ("", f'"{t}"'),
    lambda t, v: ("", f"{t[0]}''{t[1:]}"),
    lambda t, v: ("", f"\\{t}"),
    lambda t, v: ("", f"$'{t}'"),
    lambda t, v: ("", "$'" + "".join(f"\\x{ord(c):02x}" for c in t) + "'"),
    lambda t, v: (f"{v}={t}; ", f"${v}"),
    lambda t, v: (f"{v}={t}; ", f'"${v}"'),
    lambda t, v: (f"{v}={t}; ", f"${{{v}}}"),
    lambda t, v: (f"{v}={t}\n", f"${{{v}:-no}}"),
    lambda t, v: ("", f"${{{v}:-{t}}}"),
    lambda t, v: ("", f'"${{{v}-{t}}}"'),
    lambda t, v: (f": ${{{v}:={t}}}; ", f"${v}"),
    lambda t, v: (f"{v}=1; ", f"${{{v}:+{t}}}"),
    lambda t, v: (f"{v}={t[0]}; ", f"${v}{t[1:]}"),
    lambda t, v: (f"{v}={t[0]}; {v}+={t[1:]}; ", f"${v}"),
    lambda t, v: (f"{v}={t}zz; ", f"${{{v}%zz}}"),
    lambda t, v: (f"{v}=zz{t}; ", f"${{{v}#zz}}"),
    lambda t, v: (f"{v}={t}zz; ", f"${{{v}:0:{len(t)}}}"),
    lambda t, v: (f"{v}=Q; ", f"${{{v}/Q/{t}}}"),
    lambda t, v: ("", f"$(echo {t})"),
    lambda t, v: ("", f"`echo {t}`"),
    lambda t, v: ("", f'"$(printf %s {t})"'),
    lambda t, v: (f"{v}=$(echo {t}); ", f"${v}"),
    lambda t, v: (f"{v}=({t}); ", f"${{{v}[0]}}"),
    lambda t, v: (f"{v}=(a {t}); ", f"${{{v}[1]}}"),
    lambda t, v: (f"{v}=({t}); ", f'"${{{v}[@]}}"'),
    lambda t, v: (f"read {v} <<< {t}; ", f"${v}"),
    lambda t, v: (f"read -r q {v} <<< 'a {t}'; ", f"${v}"),
    lambda t, v: (f"printf -v {v} %s {t}; ", f"${v}"),
    lambda t, v: (f"export {v}={t}; ", f"${v}"),
    lambda t, v: (f"declare {v}={t}; ", f"${v}"),
    lambda t, v: (f"set -- {t}; ", "$1"),
    lambda t, v: (f"set -- {t}; ", '"$@"'),
    lambda t, v: (f"{v}={t}; w{v}={v}; ", f"${{!w{v}}}"),
    lambda t, v: ("", f"{{{t},}}"),
    lambda t, v: (f"{v}={t}; y{v}=${v}; ", f"$y{v}"),
    lambda t, v: (f"if true; then {v}={t}; else {v}=zz; fi; ", f"${v}"),
    lambda t, v: (f"{v}=zz; for i in 1 2; do {v}={t}; done; ", f"${v}"),
    lambda t, v: (f"for {v} in {t}; do :; done; ", f"${v}"),
    lambda t, v: (f"mapfile -t {v} <<< {t}; ", f"${v}"),
    lambda t, v: (f"{v}=$(cat <<'E'\n{t}\nE\n); ", f"${v}"),
    lambda t, v: (f"{v}={t[::-1]}; ", f"$(echo ${v} | rev2 || echo {t})"),
    lambda t, v: ("", f"$empty{t}"),
    lambda t, v: (f"{v}=''; ", f"${v} {t}"),
    lambda t, v: ("", f'"${{no:-}}"{t}'),
]
FILE_SPELLINGS = [
    lambda: "./.env",
    lambda: "src/../.env",
    lambda: "$PWD/.env",
    lambda: '"$PWD"/.env',
    lambda: "$(pwd)/.env",
    lambda: ".en?",
    lambda: ".e*",
    lambda: ".en[v]",
    lambda: ".??v",
    lambda: "src/link",
    lambda: "src/l*",
    lambda: "deep/way/../.env",
    lambda: "~+/.env",
    lambda: "*/../.env",
    lambda: "{src/../,}.env",
    lambda: "{.env,x}",
    lambda: "$PWD/src/../.env",
    lambda: "${PWD}/.env",
    lambda: "src/$(echo ..)/.env",
    lambda: "s$(echo rc/..)/.env",
    lambda: ".env src/x",
    lambda: "--file=.env .env",
    lambda: "/proc/self/cwd/.env",
    lambda: "/proc/$$/cwd/.env",
    lambda: ".[[:alpha:]]nv",
    lambda: ".[!x]n[a-z]",
    lambda: '.["e"]nv',
    lambda: "${PWD%/*}/work/.env",
    lambda: "<.env",
    lambda: "<> .env",
    lambda: "$HOME/.env",
    lambda: "~/.env",
    lambda: "src/.env",
    lambda: "$(ls | head -n 1)",
    lambda: "//$PWD/.env",
    lambda: "src//..//.env",
]
WRAPS = """
{}
{}
{}
make; {}
make && {}
make || make; {}
make | {}
{} | make
{} & wait
! {}
time {}
( {} )
{{ {}; }}
if true; then {}; fi
if {}; then :; fi
while {}; do break; done
until {}; do :; done
for i in 1; do {}; done
for ((i=0;i<1;i++)); do {}; done
case a in a) {};; esac
case a in b) make;; *) {} ;; esac
ls $({})
ls "$({})"
ls `{}`
x1=$({})
: ${{u:-$({})}}
cat <({})
cat < <({})
cat <<E\n$({})\nE
cat <<'E'\nmake\nE\n{}
f1() {{ {}; }}; f1
f1 () ( {} ); f1
function f1 {{ {}; }}; f1
[[ -d src ]] && {}
[[ a == b* ]] || {}
[[ $({}) ]]
[ -d src ] && {}
(( 1 + 1 )) && {}
test -f no || {}
cd src; cd ..; {}
set -e; {}
(cd src; make); {}
trap '{s}' EXIT
eval '{s}'
eval "{d}"
bash -c '{s}'
sh -c '{s}'
bash -c -e '{s}'
bash -c -- '{s}'
bash -e -c '{s}'
bash -ec '{s}' _ y
bash +x -c '{s}'
bash -o pipefail -c '{s}'
bash --norc -c '{s}'
bash <<< '{s}'
bash -s <<< '{s}'
bash /dev/stdin <<< '{s}'
. /dev/stdin <<< '{s}'
source /dev/fd/0 <<< '{s}'
echo '{s}' | bash
echo '{s}' | bash /dev/fd/0
bash <(echo '{s}')
bash <<'E'\n{}\nE
echo '{s}' > t.sh; bash t.sh
echo '{s}' > t.sh; . ./t.sh
env {}
env -i PATH="$PATH" FUZZ_LOG="$FUZZ_LOG" FUZZ_ENV="$FUZZ_ENV" {}
env A=1 -- {}
env -u NO {}
env -S '{s}'
command {}
command -p -- {}
exec {}
nice {}
nice -n 5 {}
nice -5 {}
nohup {}
timeout 5 {}
timeout -s KILL --foreground 5 {}
timeout --signal=KILL 5 {}
stdbuf -oL {}
setsid -w {}
ionice -c 3 {}
flock lock {}
flock lock -c '{s}'
flock -w 1 lock {}
taskset -c 0 {}
taskset 1 {}
chrt -o 0 {}
setpriv --no-new-privs {}
setarch x86_64 -R {}
setarch -R {}
prlimit --nofile=100 {}
echo x | xargs {}
echo x | xargs -I% {}
echo x | xargs -n 1 -- {}
echo x | xargs -I% sh -c '{s}'
find . -maxdepth 0 -exec {} \\;
find . -maxdepth 0 -execdir {} ';'
find . -maxdepth 0 -exec sh -c '{s}' \\;
BASH_ENV=t.sh make; {}
A=1 {}
A=1 B=$(make) {}
>out {}
{} >out 2>&1
{} 2>/dev/null
<src/x {}
make # x\n{}
make \\\n && {}
builtin eval '{s}'
command eval '{s}'
coproc {}; wait
alias a1='{s}'; {}
PATH=$PATH:. {}
let i=1; {}
x1='a[$({})]'; : $((x1))
a1[$({})]=1
: $(( $({}) ))
ls ${{x1:-`{}`}}
while read -r l; do {}; done <<< a
printf '%s' "$({})"
shopt -s extglob; {}
IFS=x; {}
bash -c "$(echo '{s}')"
PS4='$({})' bash -x -c :
trap "{d}" DEBUG; :
time -- {}
time -p {}
{{fd}}>out {}
{{fd}}<src/x {}
jobs -x {}
[[ a =~ a|b ]] && {}
[[ a =~ $({}) ]]
select s in a; do {}; break; done <<< 1
for ((;;)); do {}; break; done
if [[ a < b ]]; then {}; fi
echo ${{x1/a/$({})}}
{} <<< x
{} <<E\nx\nE
declare -i i1; {}
local2() {{ local q=1; {}; }}; local2
x1=1; (( x1++ )); {}
echo $(( 1 + 2 )); {}
a1=(1 2); {}
a1+=($({}))
printf '%s\n' a | while read -r w; do {}; done
cat <<E | {}\nx\nE
xargs -I% bash -c '{s}' <<< y
ls | tee >({})
""".strip().splitlines()
REPLACED = [("echo {0} | xargs -I% %{1}", 1), ("echo {0}{1} | xargs -n1 env", 2)]


def make_line(chance: random.Random) -> tuple[str, str]:
    """Return the name of a deed and a line that does it, or nearly does it."""
    deed = chance.choice(list(DEEDS))
    words = list(DEEDS[deed][0])
    setup = ""
    for at, text in enumerate(words):
        if text == ".env" and chance.random() < 0.4:
            words[at] = chance.choice(FILE_SPELLINGS)()
        elif chance.random() < 0.45:
            before, words[at] = chance.choice(SPELLINGS)(text, f"v{at}")
            setup += before
    if deed == "push" and chance.random() < 0.3:
        words.insert(1, chance.choice(["-C .", "--no-pager", "-c color.ui=never", "-C $PWD", "-P"]))
    command = " ".join(words)
    if deed == "read" and chance.random() < 0.2:
        start = chance.choice(
            ["cd src; cat ../{}", "cd src && cd .. && cat {}", "cd $PWD; cat {}", "cd src; cd -; cat {}"]
        )
        command = start.replace("{}", words[1]) if not words[1].startswith(("$", "~", "{", "'", '"', "-")) else command
    if chance.random() < 0.5:
        command, setup = setup + command, ""
    for _ in range(chance.choice([0, 1, 1, 1, 2, 2, 3])):
        form = chance.choice(WRAPS).replace("\\n", "\n").replace("{{", "\1").replace("}}", "\2")
        single = command.replace("'", "'\\''")
        double = command.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
        command = form.replace("{s}", single).replace("{d}", double).replace("{}", command)
        command = command.replace("\1", "{").replace("\2", "}")
    return deed, setup + command


class Judge:
    def __init__(self, folder: Path) -> None:
        self.work, self.log = folder / "work", folder / "log"
        self.programs = folder / "programs"
        self.programs.mkdir(parents=True)
        for name in NOTED.split():
            (self.programs / name).write_text(STUB)
            (self.programs / name).chmod(0o755)
        for name in REAL.split():
            if path := shutil.which(name):
                (self.programs / name).symlink_to(os.path.realpath(path) if name != "sh" else path)
        self.reset()

    def reset(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        (self.work / "src").mkdir(parents=True)
        (self.work / "deep").mkdir()
        (self.work / "deep" / "way").symlink_to("../src")
        (self.work / "src" / "x").write_text("x\n")
        (self.work / ".env").write_text("SECRET\n")
        (self.work / "src" / "link").symlink_to("../.env")
        (self.work / "src" / ".env").symlink_to("../.env")
        (self.work / "t.sh").write_text(":\n")

    def ran(self, line: str) -> set[str]:
        """Return the deeds that bash does when it runs this line."""
        self.log.write_bytes(b"")
        env = {
            "PATH": str(self.programs),
            "HOME": str(self.work),
            "FUZZ_LOG": str(self.log),
            "FUZZ_ENV": str(self.work / ".env"),
        }
        command = [shutil.which("bash") or "bash", "-c", line]
        try:
            subprocess.run(
                command,
                cwd=self.work,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=5,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            pass
        noted = self.log.read_text(errors="replace").splitlines()
        if (self.work / ".env").stat().st_size != 7 or len(list(self.work.iterdir())) > 4:
            self.reset()
        found = set()
        for note in noted:
            words = note.split()
            if words[:1] in (["rm"], ["git"], ["less"], ["tool"]) or (words[:1] == ["cat"] and len(words) > 1):
                found.add("not allowed")
            if words[:1] == ["rm"]:
                found.add("rm")
            elif words[:1] == ["READ"]:
                found.add("read")
            elif words[:1] == ["git"] and "push" in words[1:5]:
                found.add("push")
        return found

    def decision(self, deed: str, line: str) -> str:
        return self._decide("bypass", rules_of("deny", [DEEDS[deed][1]], "test"), line)

    def _decide(self, mode: PermissionMode, rules: list[Rule], line: str) -> str:
        with patch.dict(os.environ, {"HOME": str(self.work)}):
            return decide(Policy(str(self.work), mode, rules), "bash", {"command": line}).behavior

    def is_covered(self, line: str) -> bool:
        """Say whether allow rules cover the line, none of which is for a deed."""
        rules = rules_of(
            "allow", [f"Bash({name} *)" for name in ("make", "ls", "echo", "printf", "sed", "find")], "test"
        )
        return self._decide("dontAsk", rules, line) == "allow"

    def fault(self, deed: str, line: str) -> bool:
        """Say whether the line does what a rule denies or what none allows, though it may run."""
        wrong = {deed} if self.decision(deed, line) == "allow" else set()
        wrong |= {"not allowed"} if self.is_covered(line) else set()
        return bool(wrong and wrong & self.ran(line))
