"""The permission rules and the mode of a session, from settings, command line or program, client, and agreed rules."""

import logging
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec
from msgspec import field

from spindle.agent import AgentError, OptionError
from spindle.agent.conversation import Conversation
from spindle.agent.fences.options import PermissionOptions
from spindle.agent.hub import Hub
from spindle.agent.toolbox import Toolbox
from spindle.base.settings import Permissions
from spindle.resources.loader import Resources
from spindle.sessions.facts import Fact
from spindle.shapes.approvals import Behavior
from spindle.shapes.events import Notice
from spindle.shapes.sandbox import SandboxLevel

if TYPE_CHECKING:
    from spindle.agent.fences.rules import Policy, Rule

BEHAVIORS: tuple[Behavior, ...] = ("deny", "ask", "allow")
"""In the order in which rules are tried."""
UNCALLED = (
    "can_use_tool is not asked about calls: the settings set the permission mode bypass. "
    'permission_mode="default" takes their place'
)
MODES_BY_STRICTNESS = ("bypass", "acceptEdits", "default", "dontAsk", "plan")
_NO_PERMISSIONS = Permissions()

log = logging.getLogger("spindle.approval")


class Chosen(Fact):
    """What a client has chosen in a session. Where it is stricter, it holds when the session is opened again."""

    entry_type: ClassVar[str] = "spindle.strictness"
    mode: str | None = None
    ask: list[str] = field(default_factory=list)
    deny: list[str] = field(default_factory=list)
    sandbox: SandboxLevel | None = None
    tools: bool = False
    max_turns: int | None = None


class RulebookPort(Protocol):
    """What the rulebook needs of the engine."""

    conversation: Conversation
    hub: Hub
    resources: Resources
    toolbox: Toolbox


class Rulebook:
    def __init__(self, port: RulebookPort, given: PermissionOptions) -> None:
        self._port = port
        self._given = given
        self.client = PermissionOptions(directories=given.directories)
        """Permissions as a client has set them."""
        self.kept: list[str] = []
        """Rules that the user has agreed to in this session."""
        self._told: set[str] = set()
        """What the user was told: rules that name no tool."""

    @property
    def never_asks(self) -> bool:
        """Whether everything is allowed, though nobody said so with rules."""
        policy = self.policy(even_if_all_allowed=True)
        return policy is not None and policy.mode == "bypass" and not policy.rules

    def policy(self, *, even_if_all_allowed: bool = False) -> "Policy | None":
        """Return the current policy; None: everything is allowed. Raises `AgentError` for invalid rules."""
        store, given, client = self._port.resources.store, self._given, self.client
        user = project = _NO_PERMISSIONS
        if "permissions" in store.user:
            user = _settings(store.user["permissions"], "user settings")
        if "permissions" in store.project:
            project = _settings(store.project["permissions"], "project settings")
        sources: list[tuple[str, Permissions | PermissionOptions]] = [
            ("user settings", user),
            ("project settings", project),
            ("command line" if given.can_use_tool is None else "program", given),
            ("client", client),
        ]
        mode = client.mode or given.mode or project.default_mode or user.default_mode
        mode = mode or ("bypass" if given.can_use_tool is None else "default")
        lists = [one for _, source in sources for one in (source.allow, source.ask, source.deny)]
        if mode == "bypass" and not (self.kept or any(lists) or even_if_all_allowed):
            return None
        from spindle.agent.fences.rules import Policy, mode_named, rules_of  # most sessions need no rules

        try:
            rules = [
                rule
                for behavior in BEHAVIORS
                for name, source in sources
                for rule in rules_of(behavior, getattr(source, behavior), name)
            ]
            rules += rules_of("allow", self.kept, "this session")
            self.check_names(rules)
            return Policy(
                self._port.resources.workdir(self._port.conversation.session.cwd),
                mode_named(mode),
                rules,
                [*user.additional_directories, *project.additional_directories, *client.directories],
                [str(skill.path.parent) for skill in self._port.resources.skills],
            )
        except ValueError as error:
            raise AgentError(str(error)) from None

    def restrict(self, mode: str | None, ask: list[str], deny: list[str]) -> None:
        """Take over what a client has chosen before: the mode if it is stricter, and rules that refuse or ask."""
        order, now = MODES_BY_STRICTNESS, self.mode
        if mode not in order or order.index(mode) <= order.index(now):
            mode = self.client.mode
        self.client = msgspec.structs.replace(
            self.client, mode=mode, ask=self.client.ask or ask, deny=self.client.deny or deny
        )

    def check_names(self, rules: "list[Rule]") -> None:
        """Raise `AgentError` for a rule whose tool is a slip of a built-in one: it would hold for nothing."""
        from spindle.agent.fences.rules import misspelt

        for rule in rules:
            if (meant := misspelt(rule.tool)) and all(
                tool.name.lower() != rule.tool for tool in self._port.toolbox.all()
            ):
                raise (OptionError if rule.source == "command line" else AgentError)(
                    f'Not a permission rule ({rule.source}): "{rule.text}": there is no such tool. Did you mean '
                    f"{meant.capitalize()}?"
                )

    def tell_unknown(self) -> None:
        """Tell the user about rules that name no tool. Tools of hosts, extensions and servers are known by now."""
        policy = self.policy()
        all_run = policy is None or (policy.mode == "bypass" and all(rule.behavior != "ask" for rule in policy.rules))
        if self._given.can_use_tool is not None and all_run and UNCALLED not in self._told:
            self._told.add(UNCALLED)
            log.warning(UNCALLED)
            self._port.hub.publish(Notice(UNCALLED))
        if policy is None or not policy.rules:
            return
        from spindle.agent.fences.rules import unknown_tools

        unknown = unknown_tools(policy.rules, (tool.name for tool in self._port.toolbox.all()))
        new = [text for text in dict.fromkeys(unknown) if text not in self._told]
        if new:
            self._told.update(new)
            self._port.hub.publish(Notice(f"These permission rules hold for no tool that there is: {', '.join(new)}"))

    @property
    def mode(self) -> str:
        policy = self.policy()
        return "bypass" if policy is None else policy.mode


def _settings(given: Any, source: str) -> Permissions:
    try:
        return msgspec.convert(given or {}, Permissions)
    except msgspec.ValidationError as error:
        raise AgentError(f"permissions in the {source}: {error}") from None
