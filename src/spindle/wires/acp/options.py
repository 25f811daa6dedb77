"""The options of a session that an editor shows and changes: permissions, model, thinking, sandbox."""

from typing import Any

from spindle.agent.session import AgentSession
from spindle.protocol.seat import NoAccount
from spindle.server.account import Account
from spindle.shapes.permission_modes import PERMISSION_MODES
from spindle.shapes.sandbox import SANDBOX_LEVELS
from spindle.wires.acp.json_rpc import INVALID_PARAMS, JsonRpcError

_LEVELS = [{"value": id, "name": words.title, "description": words.help} for id, words in SANDBOX_LEVELS.items()]
_MODES = {id: {"name": words.title, "description": words.help} for id, words in PERMISSION_MODES.items()}


def modes(agent: AgentSession) -> dict[str, Any]:
    """Return the permission modes, in the form that older editors know."""
    known = [{"id": id, **told} for id, told in _MODES.items()]
    return {"currentModeId": agent.approval.state().mode, "availableModes": known}


def options(agent: AgentSession) -> list[dict[str, Any]]:
    model, wanted = agent.model, agent.approval.sandbox_for()
    modes = [{"value": id, **told} for id, told in _MODES.items()]
    options = [_select("mode", "Permissions", "mode", agent.approval.state().mode, modes)]
    models = {one.full_name: one for one in [*agent.models.available(), *([model] if model else [])]}
    if model is not None:
        choices = [{"value": id, "name": one.name or one.id, "description": one.provider} for id, one in models.items()]
        options.append(_select("model", "Model", "model", model.full_name, choices))
        levels = [{"value": level, "name": level.capitalize()} for level in agent.models.levels()]
        options.append(_select("thinking", "Thinking", "thought_level", agent.thinking_level, levels))
    level = "off" if wanted is None else wanted.level
    return [*options, _select("sandbox", "Sandbox", "_sandbox", level, _LEVELS)]


def _select(id: str, name: str, category: str, value: str, options: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": id, "name": name, "category": category, "type": "select", "currentValue": value, "options": options
    }  # fmt: skip


async def choose(agent: AgentSession, option: str, value: Any, account: Account | NoAccount) -> None:
    """Set an option, as far as the user may. Raises `JsonRpcError`, `AgentError`."""
    known = {entry["id"]: [choice["value"] for choice in entry["options"]] for entry in options(agent)}
    if option not in known:
        raise JsonRpcError(INVALID_PARAMS, f"There is no option {option}; there are {', '.join(known)}")
    if option == "model" and value not in known[option]:
        value = _model_named(agent, str(value)) or value
    if value not in known[option]:
        raise JsonRpcError(INVALID_PARAMS, f"{value} is none of {', '.join(known[option])}")
    if option in ("mode", "sandbox"):
        account.check("set_permissions", {"mode": None, "allow": None, option: value}, agent)
        agent.set_permissions(**{option: value})
    elif option == "model":
        account.check_model(str(value))
        provider, _, id = str(value).partition("/")
        await agent.models.set(provider, id)
    else:
        await agent.models.set_level(value)


def _model_named(agent: AgentSession, name: str) -> str | None:
    """Return the value of the model that a short name or a pattern stands for."""
    from spindle.models.select import match_model

    models, current = agent.models.available(), agent.model
    same = [model for model in models if model.id == name]
    if current is not None and len(same) > 1:  # of several providers: the present one, if it has the model
        same.sort(key=lambda model: model.provider != current.provider)
    found = same[0] if same else match_model(name, models)
    return found.full_name if found is not None else None
