"""What the hands of a session obey, and where they work."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from spindle.workspace.unfenced import NO_SANDBOX, NoSandbox

if TYPE_CHECKING:  # loaded on use
    from spindle.workspace import Workspace
    from spindle.workspace.pipe import Pipe
    from spindle.workspace.sandbox import Sandbox

SESSION_VARIABLES = ("PI_SESSION_ID", "PI_SESSION_FILE", "PI_PROVIDER", "PI_MODEL", "PI_REASONING_LEVEL")


class ToolSettings(Struct, frozen=True):
    """User settings that built-in tools obey."""

    shell_path: str | None = None
    shell_command_prefix: str | None = None
    auto_resize_images: bool = True
    bin_dir: str | None = None
    """`<agent dir>/bin`: searched for rg, and put in front of PATH of shell commands."""
    withheld_variables: frozenset[str] = frozenset()
    """Variables with our secrets: child processes of tools do not get them."""
    keep_background_processes: bool = False
    """Processes that a shell command starts in the background may outlive the agent."""
    owner: Any = None
    """The owner of child processes: they end with it."""
    sandbox: "Sandbox | NoSandbox" = NO_SANDBOX
    """What commands and tools may touch."""

    variables: Mapping[str, str] = {}
    """Variables that commands get besides ours."""
    far: "Pipe | None" = None
    """Leads to the far side where tools work; None: they work here."""

    @property
    def workspace(self) -> "Workspace":
        """Where tools work."""
        if self.far is not None:
            from spindle.workspace.far import Far

            return Far(self.far, self)
        from spindle.workspace.local import Local

        return Local(self)
