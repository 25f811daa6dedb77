"""Settings: defaults, merging, old keys, wrong values, and writing without harm."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.base.settings import Settings, SettingsStore, decode_settings, migrate
from spindle.base.user_files import BadFile, parse_json

DEFAULTS = {
    "steering_mode": "one-at-a-time",
    "follow_up_mode": "one-at-a-time",
    "interrupt_mode": None,
    "default_thinking_level": "medium",
    "enabled_models": None,
    "default_tools": None,
    "http_idle_timeout_ms": 300000,
    "default_project_trust": "ask",
    "fsync": "run",
}


@pytest.mark.parametrize(("name", "value"), DEFAULTS.items())
def test_default(name: str, value: Any) -> None:
    assert getattr(Settings(), name) == value


def test_nested_defaults() -> None:
    settings = Settings()
    assert (settings.compaction.enabled, settings.compaction.reserve_tokens) == (True, 16384)
    assert settings.compaction.keep_recent_tokens == 20000
    assert (settings.retry.max_retries, settings.retry.base_delay_ms, settings.retry.max_agent_delay_ms) == (
        3,
        2000,
        60000,
    )
    assert settings.thinking_budgets == {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384}
    assert (settings.todo.reminders_max, settings.tasks.todo_clear_delay) == (3, 60)
    assert (settings.ttsr.context_mode, settings.ttsr.repeat_gap) == ("discard", 10)


def store(agent: Path, project: Path, trusted: bool = True) -> SettingsStore:
    result = SettingsStore(agent, project)
    result.load(project_trusted=trusted)
    return result


def test_project_wins_key_by_key(agent: Path, project: Path, write: Any) -> None:
    write("agent/settings.json", {"compaction": {"reserveTokens": 1, "enabled": False}, "enabledModels": ["a", "b"]})
    write("project/.pi/settings.json", {"compaction": {"reserveTokens": 2}, "enabledModels": ["c"]})
    settings = store(agent, project).settings
    assert (settings.compaction.reserve_tokens, settings.compaction.enabled) == (2, False)
    assert settings.enabled_models == ["c"]


def test_an_untrusted_project_says_nothing(agent: Path, project: Path, write: Any) -> None:
    write("project/.pi/settings.json", {"shellPath": "/evil", "sessionDir": "here"})
    settings = store(agent, project, trusted=False).settings
    assert (settings.shell_path, settings.session_dir) == (None, None)
    write("project/.pi/settings.json", "{broken")
    assert store(agent, project, trusted=False).diagnostics == []


def test_a_project_cannot_trust_itself(agent: Path, project: Path, write: Any) -> None:
    write("project/.pi/settings.json", {"defaultProjectTrust": "always"})
    assert store(agent, project).settings.default_project_trust == "ask"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"queueMode": "all"}, {"steeringMode": "all"}),
        ({"queueMode": "all", "steeringMode": "one-at-a-time"}, {"steeringMode": "one-at-a-time"}),
        ({"skills": {"enableSkillCommands": False, "customDirectories": ["~/s"]}}, {"skills": ["~/s"]}),
        ({"retry": {"maxDelayMs": 5, "maxRetries": 7}}, {"retry": {"maxRetries": 7}}),
    ],
)
def test_old_keys_are_understood(raw: dict[str, Any], expected: dict[str, Any]) -> None:
    migrated = migrate(raw)
    migrated.pop("queueMode", None)
    assert migrated == expected


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"steeringMode": "sometimes"}, "steeringMode"),
        ({"compaction": {"reserveTokens": "many"}}, "compaction.reserveTokens"),
        ({"compaction": {"reserveTokens": -1}}, "compaction.reserveTokens"),
        ({"compaction": "off"}, "compaction"),
        ({"retry": {"maxRetries": 1.5}}, "retry.maxRetries"),
        ({"defaultThinkingLevel": "enormous"}, "defaultThinkingLevel"),
        ({"enabledModels": "gpt"}, "enabledModels"),
    ],
)
def test_a_wrong_value_costs_one_line_and_its_default(raw: dict[str, Any], problem: str) -> None:
    settings, problems = decode_settings({**raw, "followUpMode": "all"})
    assert [line.split(":")[0] for line in problems] == [problem]
    assert settings.follow_up_mode == "all"
    assert settings.compaction == Settings().compaction
    assert settings.steering_mode == "one-at-a-time"


def test_null_means_not_set() -> None:
    assert decode_settings({"steeringMode": None, "retry": None}) == (Settings(), [])


@pytest.mark.parametrize(
    "raw",
    [
        {"todo": {"reminders": {"max": 7}}},
        {"todo.reminders.max": 7},
        {"todo": {"reminders.max": 7}},
        {"todo": {"reminders": True, "reminders.max": 7}},
    ],
)
def test_forms_of_the_reminder_limit(raw: dict[str, Any]) -> None:
    settings, problems = decode_settings(raw)
    assert (settings.todo.reminders, settings.todo.reminders_max, problems) == (True, 7, [])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["compaction", "retry", "todo", "steeringMode", "packages", "skills", "todo.reminders", "ttsr"])


@given(st.dictionaries(keys, json_values))
def test_no_value_whatever_is_a_crash(raw: dict[str, Any]) -> None:
    settings, _ = decode_settings(migrate(raw))
    assert isinstance(settings.compaction.reserve_tokens, int)


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['{"a": 1,', "[]", "nonsense", '{"steeringMode": "all"', "\x00", '{"a":' * 100000])
def test_a_broken_file_is_reported_and_never_overwritten(agent: Path, project: Path, text: str) -> None:
    path = agent / "settings.json"
    path.write_text(text)
    loaded = store(agent, project)
    assert [d.type for d in loaded.diagnostics] == ["error"]
    assert str(path) in loaded.diagnostics[0].message
    assert loaded.settings == Settings()
    with pytest.raises(BadFile):
        loaded.save("steeringMode", "all")
    assert path.read_text() == text


def test_a_byte_order_mark_is_no_mistake(agent: Path, project: Path) -> None:
    (agent / "settings.json").write_bytes(b'\xef\xbb\xbf{"steeringMode": "all"}')
    assert store(agent, project).settings.steering_mode == "all"


def test_writing_keeps_unknown_keys_and_their_order(agent: Path, project: Path, write: Any) -> None:
    path = write("agent/settings.json", '{"theme": "x",\n "retry": {"future": [1], "maxRetries": 9},\n "zzz": null}')
    path.chmod(0o640)
    store(agent, project).save("retry.maxRetries", 1)
    store(agent, project).save("defaultModel", "m")
    content = json.loads(path.read_text())
    assert list(content) == ["theme", "retry", "zzz", "defaultModel"]
    assert content["retry"] == {"future": [1], "maxRetries": 1}
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.read_text().startswith('{\n  "theme"')
    assert [entry.name for entry in agent.iterdir()] == ["settings.json"]


def test_a_link_to_the_file_stays_a_link(agent: Path, project: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    (agent / "settings.json").symlink_to(real)
    store(agent, project).save("defaultModel", "m")
    assert (agent / "settings.json").is_symlink()
    assert json.loads(real.read_text()) == {"defaultModel": "m"}


def test_many_writers_lose_nothing(agent: Path, project: Path) -> None:
    def save(number: int) -> None:
        for step in range(5):
            SettingsStore(agent, project).save(f"k{number}.s{step}", number)

    threads = [threading.Thread(target=save, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    content = json.loads((agent / "settings.json").read_text())
    assert content == {f"k{n}": {f"s{s}": n for s in range(5)} for n in range(4)}


def test_a_lock_left_behind_is_taken_over(agent: Path, project: Path) -> None:
    import os

    lock = agent / "settings.json.lock"
    lock.mkdir()
    os.utime(lock, (1, 1))
    store(agent, project).save("defaultModel", "m")
    assert not lock.exists()


# -- JSON with comments --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1, // one\n "b": 2,}', {"a": 1, "b": 2}),
        ('{"url": "http://x//y", /* c */ "l": [1, 2, ],}', {"url": "http://x//y", "l": [1, 2]}),
        ('// only\n{"a": "/* no */ , ]"}', {"a": "/* no */ , ]"}),
        ('{"a": "\\"//"}', {"a": '"//'}),
    ],
)
def test_comments_and_trailing_commas(text: str, value: Any) -> None:
    assert parse_json(text, comments=True) == value


@given(json_values)
def test_plain_json_is_left_alone(value: Any) -> None:
    assert parse_json(json.dumps(value), comments=True) == json.loads(json.dumps(value))


def test_a_mistake_is_told_with_line_and_column() -> None:
    with pytest.raises(BadFile, match="line 3 column"):
        parse_json('{\n // fine\n "a": oops }', comments=True)
