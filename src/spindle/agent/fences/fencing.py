"""Decides which sandbox a session has: by its client, the command line or program, and the user's settings.

`workspace/sandbox.py` and all that it needs is loaded only if there is one.
"""

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import field

from spindle.agent import AgentError
from spindle.base.agent_dir import agent_dir
from spindle.base.settings import SandboxSettings as SandboxSettings
from spindle.resources.loader import ResourceOptions, Resources
from spindle.shapes.messages import Wire
from spindle.shapes.sandbox import (
    STRICTER,
    Network,
    SandboxChoice,
    SandboxLevel,
    SandboxOptions,
    check_network,
    read_sandbox,
)
from spindle.workspace.unfenced import NO_SANDBOX, NoSandbox

if TYPE_CHECKING:  # most sessions have no sandbox
    from spindle.agent.fences.rules import Policy
    from spindle.workspace.area import Wanted
    from spindle.workspace.sandbox import Sandbox

_OFF: Final = SandboxSettings()


class SandboxState(Wire, kw_only=True):
    """The sandbox, and what of it this machine can give."""

    level: SandboxLevel
    network: Network = "on"
    writable: list[str] = field(default_factory=list)
    """Where commands may write."""
    holds: list[str] = field(default_factory=list)
    does_not_hold: list[str] = field(default_factory=list)


class Fencing:
    def __init__(self, given: SandboxOptions) -> None:
        """`given`: what the command line or the program asks for. A client may make it stricter, but not looser."""
        self.given = given
        self._client = SandboxOptions()
        self.agreed: list[str] = []
        """Rules of commands that the user lets run outside, in this session."""
        self._sandbox: Sandbox | NoSandbox = NO_SANDBOX
        self._made_for: Any = None

    def configure(self, choice: SandboxChoice, cwd: str, check_place: Callable[[str], None]) -> None:
        """Take what a client asks for. Raises `AgentError` if that is looser than what the command line says."""
        try:
            wanted = read_sandbox(choice)
            check_network(wanted.network)
        except ValueError as error:
            raise AgentError(str(error)) from None
        given, level, network = self.given, wanted.level, wanted.network
        for path in wanted.writable or ():
            check_place(os.path.realpath(os.path.join(cwd, os.path.expanduser(path))))
        if given.level is not None and level is not None and STRICTER.index(level) < STRICTER.index(given.level):
            raise AgentError(f'The sandbox is "{given.level}" here: a client cannot make it "{level}"')
        if given.network is not None and network is not None and network not in ("off", given.network):
            raise AgentError(f"The network of the sandbox is {given.network} here: a client cannot open it")
        if given.level is not None and wanted.writable:
            raise AgentError("The sandbox is set here: a client cannot make more folders writable")
        changed = {name: value for name, value in msgspec.structs.asdict(wanted).items() if value is not None}
        self._client = msgspec.structs.replace(self._client, **changed)

    def restrict(self, level: SandboxLevel | None, resources: Resources) -> None:
        """Take over the level that a client has chosen before, if it is stricter."""
        if level is not None and STRICTER.index(level) > STRICTER.index(self.level(resources)):
            self._client = msgspec.structs.replace(self._client, level=level)

    @property
    def client(self) -> SandboxOptions:
        return self._client

    def forget(self, client: SandboxOptions) -> None:
        """Go back to what a client asked for before."""
        self._client = client

    def level(self, resources: Resources) -> SandboxLevel:
        """Return the level that is asked for. Raises `AgentError` if the settings make no sense."""
        return self._client.level or self.given.level or _settings(resources).level

    def check_far(self, command: str, resources: Resources) -> None:
        """Raise `AgentError` if tools must not work at a far side, because there is to be a sandbox."""
        if (level := self.level(resources)) != "off":
            raise AgentError(
                f'The sandbox ("{level}") fences programs of this machine, and tools work at the far side of '
                f"`{command}`: fence them there, and set the sandbox to off"
            )

    def sandbox(
        self, resources: Resources, cwd: str, policy: Callable[[], "Policy | None"] = lambda: None
    ) -> "Sandbox | NoSandbox":
        """Return the sandbox that is wanted now. Raises `AgentError` if this machine cannot provide it."""
        if self.level(resources) == "off":
            network = self._client.network or self.given.network
            if network is not None and network != "on":
                raise AgentError('A network that is not "on" needs a sandbox: choose a level besides "off"')
            self.close()
            return NO_SANDBOX
        from spindle.workspace.area import SandboxError
        from spindle.workspace.sandbox import Sandbox

        wanted = self.wanted(resources, cwd, policy())
        if self._made_for != wanted:
            try:
                made = Sandbox(wanted, after=self._sandbox)
            except SandboxError as error:
                raise AgentError(str(error)) from None
            except OSError as error:
                raise AgentError(f"The sandbox cannot be set up: {error}") from None
            self.close()
            self._sandbox, self._made_for = made, wanted
        return self._sandbox

    def wanted(
        self, resources: Resources, cwd: str, policy: "Policy | None", at_least: SandboxLevel = "off"
    ) -> "Wanted":
        """Return the sandbox as it is asked for, of at least this level."""
        from spindle.workspace.area import Wanted

        client, given, settings = self._client, self.given, _settings(resources)
        level = max(self.level(resources), at_least, key=STRICTER.index)
        writable = (*settings.writable, *(given.writable or ()), *(client.writable or ()))
        network = next(one for one in (client.network, given.network, settings.network) if one is not None)
        denied, others = tuple(_denied(policy, cwd)), tuple(_beside(resources.options))
        return Wanted(level, cwd, writable, network, denied, others)

    def close(self, owner: object = None, tell: Callable[[str], None] = lambda text: None) -> None:
        """Give the sandbox up. If processes of `owner` go on, end them and put back what they have changed."""
        self._sandbox.end(owner, tell)
        self._sandbox, self._made_for = NO_SANDBOX, None

    def outside(self, command: str, cwd: str, resources: Resources) -> tuple[bool, list[str]]:
        """Return whether rules let a command run outside of the sandbox, and the rules that are missing for it."""
        from spindle.agent.fences.rules import Policy, decide, rules_of

        rules = rules_of("allow", [*_settings(resources).outside, *self.agreed], "sandbox")
        decision = decide(Policy(cwd, "default", rules), "bash", {"command": command})
        return decision.behavior == "allow" and decision.rule is not None, list(decision.always)

    def has_outside_rules(self, resources: Resources) -> bool:
        return bool(self.agreed or _settings(resources).outside)

    @staticmethod
    def state(sandbox: "Sandbox | NoSandbox") -> SandboxState:
        return SandboxState(
            level=sandbox.level,
            network=sandbox.network,
            writable=list(sandbox.writable),
            holds=sandbox.holds(),
            does_not_hold=sandbox.does_not_hold(),
        )


def _settings(resources: Resources) -> SandboxSettings:
    """Return the user's settings. Raises `AgentError`: a sandbox with a slip in it must not be no sandbox."""
    raw = resources.store.user.get("sandbox")
    if not raw:
        return _OFF
    try:
        if isinstance(raw, dict) and (unknown := raw.keys() - set(SandboxSettings.__struct_encode_fields__)):
            raise ValueError(f"there is no {', '.join(sorted(unknown))}")
        settings = msgspec.convert(raw, SandboxSettings)
        check_network(settings.network)
        return settings
    except (msgspec.ValidationError, ValueError) as error:
        raise AgentError(f"sandbox in the user settings: {str(error).replace('`', '')}") from None


_OPERATORS: Final = (
    *("checkpoints", "links", "mcp.json", "models.json", "sessions", "signed-in", "tokens.json", "usage"),
)
"""What no user of a server may read of the agent directory: keys of the operator, files and sessions of others."""


def _beside(options: ResourceOptions) -> list[str]:
    """Return what is kept for the operator and for other users of the server."""
    if options.user_folder is None:
        return []
    folder, own = os.path.split(options.user_folder)
    try:
        others = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name != own]
    except OSError:  # there is none yet
        others = []
    return [*others, *options.others(), *(str(agent_dir() / name) for name in _OPERATORS)]


def _denied(policy: "Policy | None", cwd: str) -> Iterator[str]:
    """Yield files that a rule forbids to read: those in the working directory, and those that a rule names in full."""
    rules = [] if policy is None else [rule for rule in policy.rules if rule.behavior == "deny" and rule.tool == "read"]
    if policy is None or not rules:
        return
    from spindle.agent.fences.rule_paths import anchored
    from spindle.agent.fences.rules import decide

    for rule in rules:
        base, rest = anchored(rule.pattern or "", cwd)
        if rule.pattern and rest in ("", "**", "*") and base != "/":
            yield base
    try:
        names = sorted(os.listdir(cwd))
    except OSError:
        return
    for name in names:
        if decide(policy, "read", {"path": os.path.join(cwd, name)}).behavior == "deny":
            yield os.path.join(cwd, name)
