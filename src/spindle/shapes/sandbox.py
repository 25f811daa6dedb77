"""The sandbox as people ask for it: levels, network, writable folders; and the files that no fenced command may read.

`programs/fence.py` says what the kernel can do about it, `workspace/sandbox.py` applies it.
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

_HOME_SECRETS: Final = """
.ssh .aws .azure .kube .gnupg .netrc .pypirc .git-credentials .password-store .pki .putty .oci .aliyun .bluemix .fly
.npmrc .pgpass .my.cnf .mylogin.cnf .vault-token .vault_pass .terraformrc .terraform.d .s3cfg .boto .databrickscfg
.snowflake .kaggle .modal.toml .ngrok2 .cloudflared .wrangler .netlify .snyk .msmtprc .mbsyncrc .fetchmailrc .muttrc
.electrum .bitcoin .ethereum .1password .claude.json .anthropic .huggingface .thunderbird .irssi .weechat .vnc/passwd
.cargo/credentials .cargo/credentials.toml .cache/huggingface/token .cache/huggingface/stored_tokens .docker/config.json
.gem/credentials .bundle/config .composer/auth.json .nuget/NuGet/NuGet.Config .m2/settings.xml
.m2/settings-security.xml .gradle/gradle.properties .pulumi/credentials.json .subversion/auth .ansible/vault_pass
.config/gcloud .config/git/credentials .config/gh/hosts.yml .config/hub .config/glab-cli .config/tea .config/rclone
.config/sops .config/age .config/github-copilot .config/composer/auth.json .config/doctl .config/hcloud .config/netlify
.config/stripe .config/op .config/1Password .config/Bitwarden .config/scw .config/linode-cli .config/ngrok
.config/.wrangler .config/containers/auth.json .config/helm/registry .config/pypoetry/auth.toml .config/anthropic
.config/openai .config/io.datasette.llm/keys.json .config/goose/secrets.yaml .config/filezilla .config/remmina
.config/solana .config/Signal .config/Slack .config/discord .config/keybase .config/evolution .config/weechat
.local/share/keyrings .local/share/uv/credentials .local/share/com.vercel.cli .local/share/remmina
.local/share/TelegramDesktop .local/share/kwalletd
.yarnrc.yml .bunfig.toml .config/pnpm/rc .config/configstore .expo/state.json .railway .supabase .config/planetscale
.config/neonctl .config/turso .doppler .config/doppler .infisical .config/hcp .argocd .config/argocd .talos .minikube
.chef .saml2aws .aws-sso .granted .okta .google_authenticator .step .acme.sh .openvpn .config/wireguard .cert .mc
.config/restic .config/borg .passwd-s3fs .smbcredentials .b2_account_info .dropbox .authinfo .authinfo.gpg
.offlineimaprc .config/msmtp .config/aerc .config/himalaya .config/neomutt .purple .config/Element .config/Mattermost
.codeium .continue .config/Code/User/globalStorage .config/Cursor/User/globalStorage .vscode-server/data
.cursor/mcp.json .aider.conf.yml .config/aichat .config/shell_gpt .config/fabric .ollama/id_ed25519 .lightning .runpod
.config/vastai .vast_api_key .config/kaggle .comet.config .mlflow/credentials .dbt/profiles.yml .snowsql
.config/snowflake .influxdbv2 .gitcookies .p4tickets .config/cachix .config/attic .local/share/gopass
.local/share/lpass .config/keepassxc .minisign .sigstore .config/Exodus .foundry/keystores .near-credentials .aptos
.sui .android/adbkey .appstoreconnect .hex/hex.config .sbt/.credentials .ivy2/.credentials .pub-cache/credentials.json
.config/dart/pub-credentials.json .config/helm/repositories.yaml .local/share/jupyter/runtime
.mozilla .config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge .config/vivaldi
.config/opera snap/firefox snap/chromium .var/app/org.mozilla.firefox .var/app/com.google.Chrome
.claude/.credentials.json .codex/auth.json .gemini/oauth_creds.json .qwen/oauth_creds.json .factory/auth.json
.local/share/opencode/auth.json .local/share/amp/secrets.json .config/amp .omp/agent .xcsh
.bash_history .zsh_history .sh_history .ash_history .ksh_history .history .python_history .node_repl_history
.psql_history .mysql_history .sqlite_history .rediscli_history .irb_history .R_history .lesshst .viminfo
.local/share/fish/fish_history .local/share/xonsh .local/share/atuin .local/share/nushell .config/nushell/history.txt
.histfile .tcsh_history .php_history .gdb_history .mycli-history .config/pgcli/history .duckdb_history .dbshell .mongodb
.ipython/profile_default/history.sqlite .julia/logs .local/state/nvim/shada .local/share/nvim/shada .bash_sessions
.zsh_sessions .local/share/zsh .local/share/powershell/PSReadLine .local/state/psql_history .local/state/python_history
.local/state/bash/history .local/state/zsh/history .cache/zsh/history .zhistory
"""
"""Logins and keys, profiles of browsers, chats, logins of other agents, histories of shells."""
SECRETS: Final = (
    *(f"~/{name}" for name in _HOME_SECRETS.split()),
    "~/Library/Application Support/Google/Chrome",
    "~/Library/Application Support/Firefox",
    "~/Library/Cookies",
    "~/Library/Keychains",
    "~/.config/Bitwarden CLI",
    # of the machine
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/ssl/private",
    "/etc/sudoers",
    "/etc/shadow-",
    "/etc/sudoers.d",
    "/etc/krb5.keytab",
    "/etc/wireguard",
    "/etc/NetworkManager/system-connections",
    "/etc/letsencrypt",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
    "/run/secrets",
    "/run/user/$UID/containers/auth.json",
)
"""Files and folders that fenced commands cannot read, besides the folder of the agent itself."""
OPEN_OF_AGENT: Final = (
    "AGENTS.md",
    "CLAUDE.md",
    "SYSTEM.md",
    "agents",
    "bin",
    "extensions",
    "prompts",
    "rules",
    "skills",
    "themes",
)
"""What commands and tools may read of the agent directory. The rest is keys, settings with keys, and sessions."""
PRIVATE: Final = ("/tmp", "/run/user", "/run/screen", "$XDG_RUNTIME_DIR", "$TMUX_TMPDIR")
"""Folders of sockets, which commands see empty where mounts can do that."""
SOCKETS: Final = (
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/dbus/system_bus_socket",
    "$SSH_AUTH_SOCK",
)
"""Sockets of programs that act for the user without a fence, besides those that the kernel lists."""
HARMLESS_SOCKETS: Final = ("/run/systemd/resolve/", "/run/systemd/userdb/", "/run/systemd/journal/", "/run/nscd/")
"""Names of hosts and users, and the log."""


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
