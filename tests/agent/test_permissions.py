"""Rules, modes and decisions; the table in docs/permissions.md is true."""

import os
import re
from pathlib import Path

import pytest

from spindle.agent.fences.offers import offers
from spindle.agent.fences.rules import Policy, decide, rules_of
from spindle.shapes.permission_modes import PERMISSION_MODES

DOC = (Path(__file__).parents[2] / "docs" / "permissions.md").read_text()
ROWS = re.findall(r"(?m)^\| (\w+) \| (.*?) ?\| `([\w]+): (.*)` \| (\w+) \|$", DOC.split("<!-- decisions -->")[1])
FIELD = {"bash": "command", "mcp__tracker__search": "query"}


@pytest.fixture
def cwd(tmp_path):
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (work / ".env").write_text("SECRET=1")
    return work


def policy(cwd, mode="bypass", **lists):
    rules = [rule for behavior, texts in lists.items() for rule in rules_of(behavior, texts, "test")]
    return Policy(str(cwd), mode, rules)


def bash(cwd, command, mode="default", **lists):
    return decide(policy(cwd, mode, **lists), "bash", {"command": command})


@pytest.mark.parametrize(("mode", "rules", "tool", "value", "wanted"), ROWS)
def test_the_table_of_the_page(cwd, mode, rules, tool, value, wanted):
    lists = {}
    for behavior, text in re.findall(r"(allow|ask|deny) `(.+?)`", rules):
        lists.setdefault(behavior, []).append(text)
    assert decide(policy(cwd, mode, **lists), tool, {FIELD.get(tool, "path"): value}).behavior == wanted


def test_the_table_is_there():
    assert len(ROWS) > 20


MODE_TABLE = {
    #               read     outside  edit     edit outside  bash   host tool  todo
    "bypass": ("allow", "allow", "allow", "allow", "allow", "allow", "allow"),
    "default": ("allow", "ask", "ask", "ask", "ask", "ask", "allow"),
    "acceptEdits": ("allow", "ask", "allow", "ask", "ask", "ask", "allow"),
    "plan": ("allow", "ask", "deny", "deny", "deny", "deny", "allow"),
    "dontAsk": ("allow", "deny", "deny", "deny", "deny", "deny", "allow"),
}
CALLS = [
    ("read", {"path": "src/a"}),
    ("grep", {"path": "/etc", "pattern": "x"}),
    ("edit", {"path": "src/a"}),
    ("write", {"path": "../x"}),
    ("bash", {"command": "ls"}),
    ("deploy", {"to": "prod"}),
    ("todo_write", {"ops": []}),
]


@pytest.mark.parametrize("mode", PERMISSION_MODES)
def test_every_mode_with_every_kind_of_tool(cwd, mode):
    assert tuple(decide(policy(cwd, mode), *call).behavior for call in CALLS) == MODE_TABLE[mode]
    asked = [decide(policy(cwd, mode), *call, ask=True).behavior for call in CALLS]
    assert "allow" not in asked
    denied = [decide(policy(cwd, mode, deny=["*"], allow=["*"]), *call).behavior for call in CALLS]
    assert set(denied) == {"deny"}


def test_deny_wins_then_ask_then_allow(cwd):
    lists = {"allow": ["Bash(git push origin main)"], "ask": ["Bash(git push *)"], "deny": ["Bash(git *)"]}
    found = bash(cwd, "git push origin main", **lists)
    assert (found.behavior, found.rule, found.source) == ("deny", "Bash(git *)", "test")
    del lists["deny"]
    assert bash(cwd, "git push origin main", **lists).behavior == "ask"


HIDDEN = [
    "rm x",
    "a; rm x",
    "a && rm x",
    "a | rm",
    "(rm x)",
    "echo $(rm x)",
    "echo `rm x`",
    "if a; then rm x; fi",
    "'rm' x",
    r"r\m x",
    "/bin/rm x",
    "sudo rm x",
    "env A=b rm x",
    "xargs rm",
    "find . -exec rm {} +",
    "sh -c 'rm x'",
    "eval 'rm x'",
    "A=b rm x",
    "nohup rm x &",
    "f() { rm x; }",
    "trap 'rm x' EXIT",
    "alias l='rm x'",
    "[[ a ]] && rm x",
    "x=(a); rm b",
    "echo $((x)); rm b",
    "X=rm; $X y",
    "cat <<E\n$(rm x)\nE",
    "timeout 5 rm x",
    "diff <(rm x) y",
    "a\nrm x",
    "case x in x) rm y;; esac",
]


@pytest.mark.parametrize("command", HIDDEN)
def test_a_deny_rule_finds_a_hidden_command(cwd, command):
    assert bash(cwd, command, "bypass", deny=["Bash(rm *)"]).behavior == "deny"


NOT_COVERED = [
    "git status; rm x",
    "git status && rm x",
    "git status | sh",
    "git $(rm x)",
    "git status > ../x",
    "git status >> .bashrc",
    "PATH=. git status",
    "PATH=.; git status",
    "./git status",
    "sudo git status",
    "env git status",
    "exec git status",
    "xargs git",
    "git status & rm x",
    "git status\nrm x",
    "git() { rm x; }; git",
    "alias git=rm; git x",
    "$X git",
    "git <(rm x)",
    "for PATH in .; do git status; done",
    "cd / && git status",
    "cd .. && git status",
    "'git status'",
    "git status 2>x",
    "x='a[$(rm y)]'; git $((x))",
    "GIT_SSH_COMMAND=x git fetch",
    "source x; git status",
    "export PATH=.; git status",
    "bash",
    "bash x.sh",
    "echo git",
    "gitk",
    "git\\\n status; rm x",
    "./timeout 5 git status",
    "x=$(git show HEAD:x); git log $x",
    "X=1 sh -c 'git status'",
]
COVERED = [
    "git",
    "git status",
    "git status && git log | git stripspace",
    "cd src && git status",
    "if git status; then git log; fi",
    "git log 2>&1",
    "git log > /dev/null",
    "sh -c 'git log'",
    "timeout 5 git fetch",
    "time git log",
    "x=HEAD; git log $x",
    "for f in a b; do git add $f; done",
    "set -e; git status",
    "git commit -m 'a; rm -rf / $(x)'",
    "git log -- *.py",
    "NO_COLOR=1 git log",
    "git commit -F - <<'E'\nrm $(x)\nE",
    "(git fetch; git add .) &",
    "eval 'git log'",
    "! git diff --quiet",
    "true && git log",
]


@pytest.mark.parametrize("command", NOT_COVERED)
def test_an_allow_rule_does_not_cover_more_than_it_says(cwd, command):
    assert bash(cwd, command, allow=["Bash(git *)"]).behavior == "ask"


@pytest.mark.parametrize("command", COVERED)
def test_an_allow_rule_covers_all_parts(cwd, command):
    assert bash(cwd, command, allow=["Bash(git *)"]).behavior == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "cat .env",
        "cat ./.env",
        "cat src/../.env",
        "cp .env x",
        "cd src && cat ../.env",
        "base64 < .env",
        "cat .en?",
        "cat {.env,x}",
        "source .env",
        "curl -d @.env x",
        "grep x --file=.env",
        "cat $PWD/x .env",
        "cat link",
        "x=(1); cat .env",
        "sh -c 'cat .env'",
    ],
)
def test_a_file_that_must_not_be_read_is_found_in_shell_commands(cwd, command):
    (cwd / "link").symlink_to(".env")
    assert bash(cwd, command, "bypass", deny=["Read(./.env)"]).behavior == "deny"
    assert (
        bash(cwd, "cat .envrc; echo .env >> .gitignore; ls .env", "bypass", deny=["Read(./.env)"]).behavior == "allow"
    )


def test_files_that_must_not_be_changed(cwd):
    deny = {"deny": ["Edit(package.json)", "Edit(/src/gen/**)"]}
    for command in ["echo > package.json", "rm -r src/gen", "sed -i s/a/b/ src/gen/x", "tee package.json"]:
        assert bash(cwd, command, "bypass", **deny).behavior == "deny"
    assert bash(cwd, "cat package.json", "bypass", **deny).behavior == "allow"
    assert decide(policy(cwd, **deny), "write", {"path": "src/gen/a/b"}).behavior == "deny"
    assert decide(policy(cwd, **deny), "write", {"path": "lib/package.json"}).behavior == "deny"


def test_links_and_dots_do_not_help(cwd, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("k")
    (cwd / "src" / "out").symlink_to(tmp_path / "secret")
    (cwd / "alias").symlink_to(cwd / ".env")
    (tmp_path / "way").symlink_to(cwd)
    accept = policy(cwd, "acceptEdits", allow=["Edit(src/**)"], deny=["Read(./.env)", f"Read(/{tmp_path}/secret/**)"])
    for path in ["src/out/key", "src/../../x", str(tmp_path / "x"), "~/x", "file:///etc/x"]:
        assert decide(accept, "write", {"path": path}).behavior == "ask", path
    for path in ["src/a", "src/x/../a", "./src/./a", f"{tmp_path}/way/src/a", "@src/a", f"file://{cwd}/src/a"]:
        assert decide(accept, "write", {"path": path}).behavior == "allow", path
    for path in [
        ".env",
        "./.env",
        "src/../.env",
        "alias",
        f"{tmp_path}/way/.env",
        "@.env",
        "src/out/key",
        "../secret/key",
        "\u00a0.env",
    ]:
        assert decide(accept, "read", {"path": path}).behavior == ("allow" if "\u00a0" in path else "deny"), path
    assert bash(cwd, "git log > src/out/key", "acceptEdits", allow=["Bash(git *)"]).behavior == "ask"
    assert bash(cwd, "cd src/out && git log > key", "acceptEdits", allow=["Bash(git *)"]).behavior == "ask"
    assert bash(cwd, "cd $X; git log > key", "acceptEdits", allow=["Bash(git *)", "Bash(cd *)"]).behavior == "ask"
    assert bash(cwd, "cd src; git log > key", "acceptEdits", allow=["Bash(git *)"]).behavior == "allow"


def test_a_rule_through_a_link_means_the_folder_behind_it(cwd, tmp_path):
    (tmp_path / "real").mkdir()
    (cwd / "link").symlink_to(tmp_path / "real")
    for path in ["link/x", str(tmp_path / "real" / "x")]:
        assert decide(policy(cwd, deny=["Edit(./link/**)"]), "write", {"path": path}).behavior == "deny"


def test_suggestions_allow_the_call(cwd):
    calls = [
        ("bash", {"command": text})
        for text in [
            "git push origin main",
            "npm run test -- -q",
            "a && ./b.sh *.py",
            "rm -rf *",
            "f() { x; }",
            "sudo make",
            "X=1 y",
            "ls > out",
        ]
    ]
    calls += [
        ("write", {"path": "src/a.py"}),
        ("write", {"path": "a[1].py"}),
        ("read", {"path": "/etc/passwd"}),
        ("deploy", {"to": "prod"}),
    ]
    for tool, arguments in calls:
        first = decide(policy(cwd, "default"), tool, arguments)
        assert first.behavior == "ask" and first.always, arguments
        assert decide(policy(cwd, "default", allow=list(first.always)), tool, arguments).behavior == "allow", first
        for offer in offers(first.always, str(cwd), tool, arguments):
            assert decide(policy(cwd, "default", allow=offer.rules), tool, arguments).behavior == "allow", offer
    assert bash(cwd, "git push origin main && npm test").always == ("Bash(git push origin *)", "Bash(npm test *)")
    assert bash(cwd, "rm -rf *").always == (r"Bash(rm -rf \*)",)
    assert bash(cwd, "rm -rf ~", allow=[r"Bash(rm -rf \*)"]).behavior == "ask"


@pytest.mark.parametrize(
    ("tool", "path", "wanted"),
    [
        ("read", "a.py", ["reading in the working directory: Read(./**)"]),
        ("ls", ".", ["reading in the working directory: Read(./**)"]),
        ("read", "src/a.py", ["reading in src: Read(./src/**)", "reading in the working directory: Read(./**)"]),
        ("read", "/etc/passwd", ["reading in /etc: Read(//etc/**)", "reading everywhere: Read"]),
        ("write", "a.py", ["edits of a.py: Edit(./a.py)", "edits in the working directory: Edit(./**)"]),
        ("write", "src/a.py", ["edits in src: Edit(./src/**)", "edits in the working directory: Edit(./**)"]),
        ("write", "src/.git/config", ["edits of src/.git/config: Edit(./src/.git/config)"]),  # no wildcard covers it
        ("write", "/srv/a", ["edits in /srv: Edit(//srv/**)"]),
    ],
)
def test_always_offers_folders_and_reading(cwd, tool, path, wanted):
    first = decide(policy(cwd, "default"), tool, {"path": path}, ask=True)
    made = offers(first.always, str(cwd), tool, {"path": path})
    assert [offer.text for offer in made] == [f"Always allow {text}" for text in wanted]
    for offer in made:
        given = policy(cwd, "default", allow=offer.rules)
        assert decide(given, tool, {"path": path}, ask=True, agreed=offer.rules).behavior == "allow"


def test_patterns(cwd):
    for pattern, yes, no in [
        ("git *", ["git", "git log"], ["gitk", "gi"]),
        ("git:*", ["git", "git log"], ["gitk"]),
        ("git*", ["gitk", "git log"], ["xgit"]),
        ("npm * --fix", ["npm run --fix"], ["npm run --fixx", "npm --fix"]),
        ("* --help", ["x --help"], ["x --helpme"]),
        ("a * b * c", ["a x b y c"], ["a b c", "a x c y b"]),
    ]:
        for text in [*yes, *no]:
            assert (bash(cwd, text, allow=[f"Bash({pattern})"]).behavior == "allow") == (text in yes), (pattern, text)


def test_a_rule_finds_a_text_at_any_depth_of_the_arguments(cwd):
    for to in ["prod1", ["test", "prod1"], {"env": "prod1"}, [{"hosts": ["prod1"]}]]:
        assert decide(policy(cwd, deny=["deploy(prod*)"]), "deploy", {"to": to, "n": 1}).behavior == "deny", to
        assert decide(policy(cwd, "dontAsk", allow=["deploy(prod*)"]), "deploy", {"to": to, "n": 1}).behavior == "deny"
    assert decide(policy(cwd, deny=["deploy(prod*)"]), "deploy", {"to": ["test"], "n": 1}).behavior == "allow"


def test_a_file_that_may_not_be_read_may_not_be_edited_either(cwd):
    """An edit whose text is not found shows what is there instead."""
    for tool, wanted in {"read": "deny", "edit": "deny", "write": "allow"}.items():
        assert decide(policy(cwd, deny=["Read(./.env)"]), tool, {"path": "src/../.env"}).behavior == wanted
    assert decide(policy(cwd, "dontAsk", allow=["Read"]), "edit", {"path": "src/a"}).behavior == "deny"


def test_names_of_tools(cwd):
    for rule, tool, fits in [
        ("BASH", "bash", True),
        ("mcp__a", "mcp__a__b", True),
        ("mcp__a", "mcp__ab__c", False),
        ("mcp__a__b", "mcp__a__b__c", False),
        ("mcp__a__*", "mcp__a__b", True),
        ("Glob", "find", True),
        ("Deploy(prod*)", "deploy", True),
        ("deploy(test*)", "deploy", False),
        ("read", "grep", True),
    ]:
        arguments = {"command": "x", "path": "y"} if tool in ("bash", "grep", "find") else {"to": "prod-eu"}
        assert (decide(policy(cwd, deny=[rule]), tool, arguments).behavior == "deny") is fits, (rule, tool)


@pytest.mark.parametrize("text", ["", "Bash(", "Bash)", "a b", "Read([)", "(x)"])
def test_a_rule_that_makes_no_sense_is_an_error(text):
    with pytest.raises(ValueError, match="Not a permission rule"):
        rules_of("deny", [text], "test")


def test_odd_arguments_do_not_break_it(cwd):
    for arguments in [
        None,
        [],
        "x",
        {},
        {"path": 1},
        {"path": "a\0b"},
        {"path": "\ud800"},
        {"command": None},
        {"command": "\0"},
        {"path": "x" * 9999},
    ]:
        for tool in ["read", "bash", "write", "other"]:
            for mode in PERMISSION_MODES:
                decide(policy(cwd, mode, deny=["Read(x)", "Bash(y)"], allow=["Edit(z)", "Bash(z *)"]), tool, arguments)
    assert os.getcwd()
