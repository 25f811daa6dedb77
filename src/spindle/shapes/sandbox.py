"""The sandbox as people ask for it: levels, network, writable folders; and the files that no fenced command may read.

`base/fence.py` says what the kernel can do about it, `tools/sandbox.py` applies it.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal

from msgspec import Struct, ValidationError, convert

SandboxLevel = Literal["off", "read-only", "workspace-write"]
Network = Literal["on", "off"] | list[int]
"""`on`, `off`, or the TCP ports that may be connected to and listened on."""


class LevelWords(Struct, frozen=True):
    """Texts about a level, for people."""

    title: str
    help: str


SANDBOX_LEVELS: Final[dict[SandboxLevel, LevelWords]] = {
    "off": LevelWords("No sandbox", "Commands may do what the user may do"),
    "read-only": LevelWords("Read only", "Commands write nothing but a temporary folder of their own"),
    "workspace-write": LevelWords(
        "Write in the workspace", "Commands write in the working directory, in a temporary folder and where you say"
    ),
}
"""From the widest on; the second differs from the third in what may be written. A test compares names and type."""

SECRETS: Final = (
    "~/.ssh",
    "~/.aws",
    "~/.azure",
    "~/.config/gcloud",
    "~/.kube",
    "~/.gnupg",
    "~/.netrc",
    "~/.pypirc",
    "~/.git-credentials",
    "~/.config/git/credentials",
    "~/.config/gh/hosts.yml",
    "~/.docker/config.json",
    "~/.password-store",
    "~/.local/share/keyrings",
    # browsers
    "~/.mozilla",
    "~/.config/google-chrome",
    "~/.config/chromium",
    "~/.config/BraveSoftware",
    "~/.config/microsoft-edge",
    "~/.config/vivaldi",
    "~/snap/firefox",
    "~/Library/Application Support/Google/Chrome",
    "~/Library/Application Support/Firefox",
    "~/Library/Cookies",
    "~/Library/Keychains",
    # logins of other agents
    "~/.claude/.credentials.json",
    "~/.codex/auth.json",
    "~/.gemini/oauth_creds.json",
    "~/.local/share/opencode/auth.json",
    # of the machine
    "/etc/shadow",
    "/etc/gshadow",
)
"""Files and folders that fenced commands cannot read, besides the logins of the agent itself."""
SOCKETS: Final = (
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/dbus/system_bus_socket",
    "$XDG_RUNTIME_DIR/bus",
    "$XDG_RUNTIME_DIR/docker.sock",
    "$XDG_RUNTIME_DIR/podman/podman.sock",
    "$XDG_RUNTIME_DIR/gnupg/S.gpg-agent",
    "$SSH_AUTH_SOCK",
)
"""Sockets of programs that act for the user without a fence."""


STRICTER: Final[tuple[SandboxLevel, ...]] = ("off", "workspace-write", "read-only")
"""Each lets commands do less than the one before it."""


class SandboxOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The sandbox as a command line, a program, a task or a client asks for it. None: as the settings say."""

    level: SandboxLevel | None = None
    writable: Sequence[str] | None = None
    """Folders and files that commands may write too, besides those of the settings."""
    network: Network | None = None


SandboxChoice = SandboxLevel | SandboxOptions
"""A sandbox on a wire: a level, or more about it."""


def read_sandbox(given: Any) -> SandboxOptions:
    """Read a level, or an object with `level`, `writable` and `network`. Raises `ValueError`."""
    if isinstance(given, SandboxOptions):
        return given
    if given is None:
        return SandboxOptions()
    if isinstance(given, str):
        if given not in SANDBOX_LEVELS:
            raise ValueError(f'Unknown sandbox level "{given}". There are: {", ".join(SANDBOX_LEVELS)}')
        given = {"level": given}
    try:
        options = convert(given, SandboxOptions)
    except ValidationError as error:
        raise ValueError(f"Not a sandbox: {str(error).replace('`', '')}") from None
    check_network(options.network)
    return options


def check_network(network: Network | None) -> None:
    """Raises `ValueError` for ports that there cannot be."""
    if isinstance(network, list) and not all(0 < port < 65536 for port in network):
        raise ValueError("Ports of the sandbox's network must be numbers from 1 to 65535")


def read_network(text: str) -> Network:
    """Read `on`, `off`, or ports with commas between them. Raises `ValueError`."""
    if text in ("on", "off"):
        return "on" if text == "on" else "off"
    try:
        ports = [int(part) for part in text.split(",")]
        check_network(ports)
        return ports
    except ValueError:
        raise ValueError(f'The network of a sandbox is on, off, or ports as 443,8080, not "{text}"') from None
