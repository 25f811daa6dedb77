"""Slips in keys of files that people edit are told, and keys of other programs are left alone."""

import json
import re
from pathlib import Path

import pytest

from spindle.base.settings import decode_settings
from spindle.base.spelling import nearest
from spindle.models.models_file import read_models_file

KEYS_OF_PI = (
    "hideThinkingBlock showCacheMissNotices cacheWarming doubleEscapeAction treeFilterMode transport theme themes "
    "websocketConnectTimeoutMs npmCommand enableSkillCommands terminal quietStartup collapseChangelog editorPaddingX "
    "outputPad autocompleteMaxVisible showHardwareCursor externalEditor tuiMode markdown fullscreen warnings "
    "enableInstallTelemetry enableAnalytics trackingId lastChangelogVersion"
)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("baseURL", "baseUrl"), ("base_url", "baseUrl"), ("basUrl", "baseUrl"), ("theme", None), ("", None)],
)
def test_nearest(wanted, found):
    assert nearest(wanted, ["baseUrl", "apiKey"]) == found


def test_settings():
    _, problems = decode_settings({"defualtModel": "x", "retry": {"maxRetrys": 1}, "todo.enabled": True})
    assert problems == [
        'defualtModel is not known: did you mean "defaultModel"?',
        'retry.maxRetrys is not known: did you mean "retry.maxRetries"?',
    ]
    assert decode_settings(dict.fromkeys(KEYS_OF_PI.split(), None))[1] == []


def test_models_file(tmp_path: Path):
    path = tmp_path / "models.json"
    model = {"id": "m", "contextwindow": 5, "api": "openai-completions", "something": 1}
    mine = {"baseURL": "http://x", "baseUrl": "http://x", "apiKey": "k", "models": [model]}
    path.write_text(json.dumps({"provider": {}, "providers": {"mine": mine}}))
    read = read_models_file(path, set())
    assert read.error is not None and "m" in [model.id for model in read.providers["mine"].models]
    assert re.findall(r'(\S+): unknown key "(\w+)": did you mean "(\w+)"', read.error) == [
        ("file", "provider", "providers"),
        ("providers.mine", "baseURL", "baseUrl"),
        ("providers.mine.models[0]", "contextwindow", "contextWindow"),
    ]
