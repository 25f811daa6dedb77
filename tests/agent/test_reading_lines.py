"""Lines for bash before which no checkpoint is taken: they change nothing, whatever they are made of."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from spindle.agent.features.undo.reading_lines import plainly_reads

ORDINARY = Path(__file__).with_name("ordinary_commands.txt")
WORDS = (
    "ls cat find sort sed rg git grep uniq diff echo test [ ] -n -o -i -w -e -delete -exec rm a b -type f . * [-]o "
    "?delete --output=b --output b -fprint 1p 1,2p 1wb '1wb' \"-o\" -d'elete' '' \"\" log show \\; {} | && ; || > b "
    "2>b >/dev/null 2>&1 2>&1b &>b $x `rm\ta` $(rm\ta) \n ~ = : -- -uo --pre touch -u -c --no-pager status true"
)


@pytest.mark.parametrize(
    "line",
    [
        "ls",
        "cd src && ls -la | head -5",
        "cat a 2>/dev/null || echo none",
        "ls -la src/ >/dev/null 2>&1; pwd;",
        "grep -rn 'class \\|def ' --include=*.py . | wc -l",
        'rg -n "a\\"b\\$c" src',
        "find . -name '*.py' -newer a | sort -u | uniq -c",
        "sed -n '1,200p' src/a.py\ncat b",
        "git --no-pager log --oneline -5",
        "git diff HEAD~1 -- a",
        "printf '> %s\\n' x",
        "test -f a && [ -n b ] || [ a = b ]",
        'cd "$HOME/a" && cat $x ${y} "b$1"; echo "exit: $?"',
        "find . -name '$x' | sed -n '3,$p'",
    ],
)
def test_lines_that_read(line):
    assert plainly_reads(line)


@pytest.mark.parametrize(
    "line",
    [
        *(
            "",
            ";",
            "ls;;ls",
            "ls &",
            "ls |& cat",
            "ls &&",
            "make",
            "./ls",
            "A=1 ls",
            "ls # x",
            "env ls",
            "command rm a",
        ),
        *(
            "ls > a",
            "ls >>a",
            "ls 2>a",
            "ls &>a",
            "ls >|a",
            "ls 2>&1a",
            "ls >/dev/nullx",
            "ls >/dev/null/../a",
            "ls >&a",
        ),
        *(
            "test -v 'a[$(rm a)]'",
            "[ ! -v 'a[$(rm a)]' ]",
            "printf -v 'a[$(rm a)]' x",
            "printf '-va[$(rm a)]'",
            "[ * ]",
        ),
        *(
            '"$x" a',
            "$x a",
            "find $x",
            'find "$x"',
            'find "\\\\$x"',
            'sort "$x"',
            "test $x",
            'printf "$x"',
            "git log ${x}",
        ),
        *(
            "echo $x>a",
            "echo ${x@P}",
            "echo ${!x}",
            "echo ${x[1]}",
            "echo $[1]",
            'echo "$[1]"',
            "echo $((1))",
            'ls "$"',
        ),
        *("cat <a", "cat <(rm a)", "cat <<E\nE", "echo $(rm a)", "echo `rm a`", 'echo "$(rm a)"', 'echo "`rm a`"'),
        *("echo $'\\n'", "echo ${x:=1}", "ls 'a", 'ls "a', "ls a\\", "{ ls; }", "(ls)", "! ls", "if true", "ls\nrm a"),
        *(
            "find . -delete",
            "find . '-delete'",
            'find . -del"ete"',
            "find . -exec rm",
            "find . -okdir x",
            "find . -fls a",
        ),
        *("find . -fprint0 a", "find *", "find [-]delete", "find ?delete", "fd -x rm", "xargs rm", "tee a", "uniq a b"),
        *("sort -o a b", "sort -uo a", "sort --output=a", "sort --out a", "sort -T . a", "sort --compress-program=x a"),
        *("sed -i s/a/b/ a", "sed -n -i 1p a", "sed -n 1p -i a", "sed -n '1,5w b' a", "sed -n 1p '-i' a", "sed 1p *"),
        *("rg --pre x a", "rg '--pre=x' a", "rg --hostname-bin=x", "rg *", "git diff --output=a", "git log --outpu=a"),
        *("git -c core.pager=x log", "git commit -m a", "git show --ext-diff", "git branch a", "git diff *", "git"),
        *('ls "' + "$aaaaaaaaa" * 90, "ls " + "$aaaaaaaaa" * 90 + "(", "ls 'a" + "$a" * 400),
        *("date -s 1", "hostname a", "tree -o a", "awk 1", "python -c 1", "ls " + "a" * 1000),
    ],
)
def test_lines_that_may_write(line):
    assert not plainly_reads(line)


def test_most_of_what_agents_read_with_is_known():
    lines = ORDINARY.read_text().split("\n")
    assert sum(map(plainly_reads, lines)) >= 100


def test_a_line_of_any_words_that_counts_as_reading_changes_nothing(tmp_path):
    chosen, words, folder = random.Random(61), WORDS.split(" "), tmp_path / "work"
    folder.mkdir()
    for name in ("a", "-delete", "-o", "--output=b"):
        (folder / name).write_text("1\n2\n")
    before, ran = seen(folder), 0
    while ran < 60:
        line = " ".join(chosen.choices(words, k=chosen.randint(1, 6)))
        if plainly_reads(line):
            ran += 1
            subprocess.run(["bash", "-c", line], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
            assert seen(folder) == before, line


def seen(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder))}
