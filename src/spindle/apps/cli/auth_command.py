"""`spindle auth check`: say whether a provider can be used, for scripts and CI. It asks no model, and shows no key."""

import asyncio
import json
from typing import Any

from spindle.apps.cli.args import UsageError
from spindle.apps.cli.usage import CommandParser
from spindle.base.agent_dir import agent_dir
from spindle.models.credentials import MissingCredentials
from spindle.models.model_registry import ModelRegistry
from spindle.models.select import ModelNotFound, resolve_model

EXIT_CODES = {"ready": 0, "not_ready": 1, "invalid": 2}


def parser() -> CommandParser:
    parser = CommandParser("spindle auth", description="Whether there is a key or a login.")
    check = parser.add_actions({"check": "Say ready (exit code 0), not_ready (1) or invalid (2)."})["check"]
    check.add_argument("--provider", metavar="NAME", help="whose key")
    check.add_argument("--model", metavar="MODEL", help="the provider of this model")
    check.add_argument("--json", action="store_true", help="print status, provider, reason and authType as JSON")
    check.add_argument("--no-refresh", action="store_true", help="do not renew a login or run commands that give a key")
    return parser


def run(argv: list[str]) -> int:
    """Carry out `spindle auth <argv>`. Raises `UsageError`."""
    given = parser().parse_args(argv or ["check"])
    if given.provider is None and given.model is None:
        raise UsageError("Say what to check: spindle auth check --provider NAME, or --model MODEL")
    registry = ModelRegistry(agent_dir())
    found = asyncio.run(check(registry, _provider(registry, given.provider, given.model), renew=not given.no_refresh))
    print(json.dumps(found) if given.json else found["status"])
    return EXIT_CODES[found["status"]]


def _provider(registry: ModelRegistry, provider: str | None, model: str | None) -> str:
    if model is None:
        return str(provider)
    try:
        return resolve_model(registry, model, provider).model.provider
    except ModelNotFound as error:
        raise UsageError(str(error)) from None


async def check(registry: ModelRegistry, provider: str, *, renew: bool) -> dict[str, Any]:
    """Return the status of a provider, in the form of pi."""
    if registry.error or registry.auth.problem:
        return {"status": "invalid", "provider": provider, "reason": "invalid_state"}
    if provider not in registry.providers():
        return {"status": "not_ready", "provider": provider, "reason": "provider_not_found"}
    if not registry.has_credentials(provider):
        unusable = registry.auth.stored(provider) is not None
        reason = "credentials_not_usable" if unusable else "credentials_not_configured"
        return {"status": "not_ready", "provider": provider, "reason": reason}
    models = registry.all(provider)
    if renew and models:
        try:
            await registry.auth_for(models[0])
        except MissingCredentials:
            return {"status": "not_ready", "provider": provider, "reason": "credentials_not_usable"}
    is_login = (registry.auth.stored(provider) or {}).get("type") == "oauth"
    return {"status": "ready", "provider": provider, "authType": "oauth" if is_login else "api_key"}
