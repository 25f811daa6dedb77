"""docs/rpc.md says what the agent does: its dialogues are held, its rule is loaded, its settings exist."""

import json
import re
from pathlib import Path

import pytest

from spindle.base.settings import Settings
from spindle.resources.rule_files import load_rules
from tests.support.agent_process import AgentProcess
from tests.support.mock_model import call, reply

PAGE = (Path(__file__).parents[3] / "docs" / "rpc.md").read_text()
ANY = "…"


def matches(shown, frame) -> bool:
    """Say whether a frame is as shown, opaque ids aside."""
    if shown == ANY:
        return isinstance(frame, str)
    if isinstance(shown, dict) and isinstance(frame, dict):
        return set(shown) <= set(frame) and all(matches(value, frame[key]) for key, value in shown.items())
    return shown == frame


@pytest.mark.parametrize(
    "dialogue", re.findall(r"```\n(→.*?)```", PAGE, re.S), ids=["a conversation", "host tools", "todos"]
)
def test_the_dialogues_are_held_as_shown(dialogue):
    lines = [(line[0], json.loads(line[2:])) for line in dialogue.splitlines()]
    if "open_files" in dialogue:
        steps = [reply(call("open_files", {"modified": True}, id="call_1")), reply("main.py")]
    else:
        steps = [reply(call("bash", {"command": "git branch"}, id="call_1")), reply("main")]
    with AgentProcess(steps) as agent:
        asked = ""
        for direction, shown in lines:
            if direction == "→":
                agent.write(json.dumps(shown).replace(json.dumps(ANY), json.dumps(asked)).encode() + b"\n")
            else:
                frame = agent.wait(lambda frame, shown=shown: matches(shown, frame))
                asked = frame["id"] if frame["type"] in ("host_tool_call", "extension_ui_request") else asked


def test_the_rule_is_loaded(tmp_path):
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "log.md").write_text(re.findall(r"```markdown\n(.*?)```", PAGE, re.S)[0])
    rules, problems = load_rules(tmp_path, tmp_path, project_trusted=False)
    (rule,) = [rule for rule in rules if rule.name == "log"]
    assert not problems and [scope.tool for scope in rule.scopes()] == ["edit", "write"]
    assert rule.patterns()[0].search("x; console.log(x)") and not rule.patterns()[0].search("xconsole.log(x)")


def test_every_setting_of_these_features_is_named():
    for group in ("todo", "tasks", "ttsr", "host_tools"):
        kind = type(getattr(Settings(), group))
        for name in kind.__struct_encode_fields__:
            key = "reminders.max" if name == "remindersMax" else name
            group_name = "hostTools" if group == "host_tools" else group
            assert f"`{group_name}.{key}`" in PAGE, key
