"""Credentials that a machine has for a cloud as a whole."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BEDROCK, VERTEX = "amazon-bedrock", "google-vertex"


def ambient_source(provider: str, entry: Mapping[str, Any] | None) -> str | None:
    """Tell where credentials of a cloud would come from; None if there are none. Opens no file.

    `entry` is what `auth.json` has of the provider: a key, settings that come before the environment, or only the wish
    to use what the machine has.
    """
    if provider not in (BEDROCK, VERTEX):
        return None
    stored = entry.get("env") if entry else None
    texts = stored.items() if isinstance(stored, dict) else ()
    env = {**os.environ, **{name: value for name, value in texts if isinstance(value, str)}}
    if provider == VERTEX:
        return _google(env)
    return "auth.json" if entry and entry.get("type") == "api_key" else _amazon(env)


def _amazon(env: Mapping[str, str]) -> str | None:
    if env.get("AWS_ACCESS_KEY_ID") and env.get("AWS_SECRET_ACCESS_KEY"):
        return "AWS_ACCESS_KEY_ID"
    for name in (
        "AWS_PROFILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
    ):
        if env.get(name):
            return name
    file = Path(os.path.expanduser(env.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"))
    if not file.is_file():
        return None
    from importlib.util import find_spec

    return str(file) if find_spec("botocore") else None


def _google(env: Mapping[str, str]) -> str | None:
    if not (env.get("GOOGLE_CLOUD_PROJECT") or env.get("GCLOUD_PROJECT")) or not env.get("GOOGLE_CLOUD_LOCATION"):
        return None
    default = "~/.config/gcloud/application_default_credentials.json"
    file = Path(os.path.expanduser(env.get("GOOGLE_APPLICATION_CREDENTIALS") or default))
    return str(file) if file.is_file() else None
