# mypy: disable-error-code="empty-body"
"""Every command of the protocol as a method.

Made from the registry in the code by `python scripts/python_client.py`; do not edit.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import UNSET

from spindle.client.methods import Images, Sender, Timeout, command
from spindle.client.transport import Json
from spindle.shapes.permission_modes import PermissionMode


class Commands(Sender):
    """The methods of `RpcClient` that are commands of the protocol."""

    # -- contents -------------------------------------------------------------------------------------

    @command("messages")
    async def get_messages(self, *, timeout: Timeout = UNSET) -> list[Json]:
        """Return the current context."""

    @command()
    async def get_messages_page(self, cursor: str | None = None, limit: int = 100, *, timeout: Timeout = UNSET) -> Json:
        """Return a part of the current context: at most `limit` messages, and 768 KiB unless one message is longer.

        Refused with the code `session_busy` during a run, `stale_cursor` if the session has changed since the
        last page.
        """

    @command("text")
    async def get_last_assistant_text(self, *, timeout: Timeout = UNSET) -> str | None:
        """Return the text of the last answer, or null."""

    @command("result")
    async def get_run_result(self, *, timeout: Timeout = UNSET) -> Json | None:
        """Return the result of the last run; null if there was none."""

    @command()
    async def get_session_stats(self, *, timeout: Timeout = UNSET) -> Json:
        """Return counts, tokens and cost of the whole session, and how full the context is."""

    @command()
    async def get_entries(
        self, since: str | None = None, before: str | None = None, limit: int | None = None, *, timeout: Timeout = UNSET
    ) -> Json:
        """Return the session's entries in the order they were appended, without those up to `since` and from
        `before` on.

        With `limit`, only the last of them, about 1 MiB at most: so a long session can be read from its end.
        """

    @command()
    async def get_stored_entries(
        self,
        session: str,
        since: str | None = None,
        before: str | None = None,
        limit: int | None = None,
        *,
        timeout: Timeout = UNSET,
    ) -> Json:
        """Return the entries of a stored session as `get_entries` does; another process may hold it."""

    @command("messages")
    async def get_fork_messages(self, *, timeout: Timeout = UNSET) -> list[Json]:
        """Return every user message of the session, to choose where to fork."""

    @command("messages")
    async def get_branch_messages(self, *, timeout: Timeout = UNSET) -> list[Json]:
        """Return every user message of the session, to choose where to fork."""

    @command()
    async def set_session_name(self, name: str, *, timeout: Timeout = UNSET) -> None:
        """Name the session."""

    @command()
    async def set_label(self, entry_id: str, label: str | None = None, *, timeout: Timeout = UNSET) -> None:
        """Label an entry of the session, to find it in the tree; without `label`, remove its label."""

    @command("found")
    async def find_text(self, text: str, *, timeout: Timeout = UNSET) -> list[Json]:
        """Return the entries of the current branch that contain a text, the oldest first.

        Messages, thoughts, summaries, arguments and results of tools are searched; upper and lower case are the
        same.
        """

    @command("name")
    async def make_session_name(self, *, timeout: Timeout = None) -> str:
        """Let the model name the session after its conversation, and return the name; refused while something runs."""

    @command("path")
    async def export_html(self, output_path: str | Path | None = None, *, timeout: Timeout = None) -> str:
        """Write the session as one HTML page."""

    @command("html")
    async def export_page(self, *, timeout: Timeout = None) -> str:
        """Return the session as one HTML page."""

    @command("path")
    async def upload_file(self, name: str, data: str, *, timeout: Timeout = None) -> str:
        """Store a file (base64) beside the sessions, for tools to read, and return its path."""

    @command("paths")
    async def complete_path(self, prefix: str = "", *, timeout: Timeout = UNSET) -> list[str]:
        """Return files of the working directory that match the text typed after an `@`, the likeliest first.

        Text that begins with `/`, `~/`, `./` or `../` is completed as a path, wherever it leads; folders end with
        a slash.
        """

    @command()
    async def list_checkpoints(self, *, timeout: Timeout = UNSET) -> Json:
        """Return the checkpoints of this session: the states of the files before turns that wrote to them."""

    @command()
    async def get_changes(self, from_: str | None = None, to: str | None = None, *, timeout: Timeout = None) -> Json:
        """Return how files differ between two checkpoints, no matter who changed them; by default since the first
        one.

        `from` and `to` are ids of checkpoints; without `to`, the files as they are now.
        """

    @command()
    async def restore(
        self,
        checkpoint: str,
        files: Sequence[str] | None = None,
        *,
        hunks: Sequence[str] | None = None,
        conversation: bool = False,
        dry_run: bool = False,
        force: bool = False,
        timeout: Timeout = None,
    ) -> Json:
        """Give files the state that they had at a checkpoint; refused while something runs.

        `files` names files and folders; the others stay. `hunks` are parts of the diff that `get_changes` has of
        one file since that checkpoint: only these are taken back. With `conversation`, the conversation goes
        back, too. With `dryRun` nothing changes, and the answer says what would. Files that were changed outside
        of the agent's runs are only overwritten with `force`.
        """

    # -- folder ---------------------------------------------------------------------------------------

    @command()
    async def list_files(self, path: str = ".", *, timeout: Timeout = UNSET) -> Json:
        """Return what is in a folder, as tools see it. What the agent may not read is marked; a folder that it may
        not read is refused.
        """

    @command()
    async def read_file(self, path: str, line: int = 1, byte: int | None = None, *, timeout: Timeout = UNSET) -> Json:
        """Return a text from a line on, at most 1 MiB, or an image. With `byte`, the `nextByte` of an earlier
        answer, the next part. Refused if the agent may not read it.
        """

    @command("paths")
    async def find_files(self, paths: Sequence[str], *, timeout: Timeout = UNSET) -> list[str]:
        """Return those of some paths, at most 200, that are files which the agent may read."""

    # -- owner ----------------------------------------------------------------------------------------

    @command("permit")
    async def unlock(self, code: str | None = None, permit: str | None = None, *, timeout: Timeout = UNSET) -> str:
        """Show the code that the server printed, or the permit that an earlier answer gave for a code: then this
        client may change keys, settings, rules and servers. A code counts once. On stdin and stdout nothing is
        locked.
        """

    @command()
    async def get_account(self, *, timeout: Timeout = UNSET) -> Json:
        """Return who the client is on this server, what its user may do, and what is used up today."""

    @command("ways")
    async def get_model_ways(self, *, timeout: Timeout = UNSET) -> list[Json]:
        """Return the ways to a model, the least work first. Asks the servers on this machine, for a second at most."""

    @command("keys")
    async def get_keys(self, *, timeout: Timeout = UNSET) -> list[Json]:
        """Return the providers with a key or a login, and where it comes from; never the key."""

    @command()
    async def set_key(self, key: str, provider: str | None = None, *, timeout: Timeout = UNSET) -> Json:
        """Keep a key of a provider (or of a product: `claude`) in `auth.json`. Without `provider` it is told by the
        key's first letters; if several have such keys, nothing is kept and the answer names them.
        """

    @command()
    async def remove_key(self, provider: str, *, timeout: Timeout = UNSET) -> None:
        """Forget the key or the login of a provider in `auth.json`."""

    @command("providers")
    async def take_keys(self, *, timeout: Timeout = UNSET) -> list[str]:
        """Take over the keys that pi has in its own folder, where there are none yet."""

    @command("model")
    async def pull_model(self, name: str, *, timeout: Timeout = UNSET) -> str:
        """Get a model that runs on this machine, as `spindle models pull NAME`; `pull_progress` tells how far it is.

        Returns its id: its provider is `local`.
        """

    @command("settings")
    async def get_settings(self, *, timeout: Timeout = UNSET) -> list[Json]:
        """Return all settings: what each means, what holds in this working directory, and where that comes from."""

    @command()
    async def set_setting(self, key: str, value: Any = None, *, timeout: Timeout = UNSET) -> None:
        """Write a setting into the user's file; without a value it is taken out. It holds for this session at once,
        for others when they are opened or reloaded.
        """

    @command()
    async def set_rule(
        self,
        behavior: Literal["allow", "ask", "deny"],
        rule: str,
        *,
        project: bool = False,
        remove: bool = False,
        timeout: Timeout = UNSET,
    ) -> None:
        """Add a permission rule to the settings of the user, or of the project; with `remove` take it out."""

    @command()
    async def reload(self, *, timeout: Timeout = UNSET) -> None:
        """Read settings, skills, prompts, extensions and MCP servers again."""

    @command("servers")
    async def add_mcp_server(self, name: str, config: Mapping[str, Any], *, timeout: Timeout = UNSET) -> list[Json]:
        """Write an MCP server into the user's `mcp.json`, in the form of `mcpServers`, and use it from now on."""

    @command("servers")
    async def remove_mcp_server(self, name: str, *, timeout: Timeout = UNSET) -> list[Json]:
        """Take an MCP server out of the user's `mcp.json`."""

    @command("servers")
    async def switch_mcp_server(self, name: str, on: bool, *, timeout: Timeout = UNSET) -> list[Json]:
        """Switch an MCP server of the user's `mcp.json` on or off."""

    @command("servers")
    async def restart_mcp_server(self, name: str, *, timeout: Timeout = UNSET) -> list[Json]:
        """End an MCP server and start it again; the answer comes when it is ready, or has failed."""

    @command("servers")
    async def log_in_mcp_server(self, name: str, *, timeout: Timeout = UNSET) -> list[Json]:
        """Log in at an MCP server: the client gets the address as `extension_ui_request` `open_url`. The login comes
        back to this machine, so the browser has to be here. The response comes when it is over.
        """

    @command()
    async def get_loaded(self, *, timeout: Timeout = UNSET) -> Json:
        """Return the skills, prompt templates and extensions that are loaded, and what was not."""

    @command()
    async def list_folders(self, path: str | None = None, *, timeout: Timeout = UNSET) -> Json:
        """Return the folders in a folder that sessions may work in, for a client that lets a person choose one."""

    # -- places ---------------------------------------------------------------------------------------

    @command()
    async def get_login_providers(self, *, timeout: Timeout = UNSET) -> Json:
        """Return the providers that offer a sign-in, and whether there is a login."""

    @command()
    async def login(self, provider_id: str, *, timeout: Timeout = None) -> Json:
        """Sign in to a provider: the client gets the address as `extension_ui_request` `open_url`, and may be asked
        for what has to be pasted. The response comes when the login is kept.
        """

    @command()
    async def new_session(self, parent_session: str | None = None, *, timeout: Timeout = UNSET) -> Json:
        """Begin an empty session."""

    @command()
    async def switch_session(self, session_path: str | Path, *, timeout: Timeout = UNSET) -> Json:
        """Go on with another session file. If it worked at a far side that was never used here, you are asked about
        it.
        """

    @command()
    async def fork(self, entry_id: str, *, timeout: Timeout = UNSET) -> Json:
        """Begin a session with everything before a user message, and return that message's text."""

    @command()
    async def branch(self, entry_id: str, *, timeout: Timeout = UNSET) -> Json:
        """Do the same as `fork`, under the name that other clients use."""

    @command()
    async def clone(self, *, timeout: Timeout = UNSET) -> Json:
        """Copy the current branch into a session of its own and go on there."""

    @command()
    async def close_session(self, *, timeout: Timeout = UNSET) -> None:
        """End the session that `sessionId` names. Its file stays, and its id opens it again."""

    @command("sessions")
    async def list_live_sessions(self, *, timeout: Timeout = UNSET) -> list[Json]:
        """Return the live sessions of this process, in the order in which they were opened; on a server with a store
        also those of the other servers, each with its `node`.
        """

    @command("sessions")
    async def list_sessions(
        self,
        *,
        everywhere: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
        changed_since: int | None = None,
        timeout: Timeout = UNSET,
    ) -> list[Json]:
        """Return the stored sessions of this working directory, the latest first; with `limit`, page by page.

        With `everywhere`, of all directories that sessions may work in, in pages of 500 without `limit`;
        `open_session` takes their ids. `changedSince`, the `asOf` of an earlier answer: only what has changed
        since, the latest change included.
        """

    @command("sessions")
    async def search_sessions(
        self,
        query: str,
        *,
        everywhere: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
        timeout: Timeout = UNSET,
    ) -> list[Json]:
        """Return those of the sessions of `list_sessions` whose name, or one message, contains all words of the
        query.

        They come in pages of `limit`, 50 unless told.
        """

    @command("cancelled")
    async def delete_session(self, *, timeout: Timeout = UNSET) -> bool:
        """Delete the current session and begin an empty one; refused while something runs."""

    @command()
    async def navigate_tree(
        self,
        entry_id: str,
        *,
        summarize: bool = False,
        custom_instructions: str | None = None,
        label: str | None = None,
        timeout: Timeout = None,
    ) -> Json:
        """Go on from another entry of the session; with `summarize`, the old branch is summarised."""

    # -- setup ----------------------------------------------------------------------------------------

    @command()
    async def get_state(self, *, timeout: Timeout = UNSET) -> Json:
        """Return the state of the agent."""

    @command("commands")
    async def get_commands(self, *, timeout: Timeout = UNSET) -> list[Json]:
        """Return the slash commands: commands of extensions, prompt templates, skills."""

    @command("commands")
    async def get_available_commands(self, *, timeout: Timeout = UNSET) -> list[Json]:
        """Return the slash commands as oh-my-pi lists them; `get_commands` tells more."""

    @command("completions")
    async def complete_command(self, name: str, prefix: str = "", *, timeout: Timeout = UNSET) -> list[str]:
        """Return completions for the arguments of an extension's command; none if the command offers none."""

    @command("models")
    async def get_available_models(self, *, timeout: Timeout = UNSET) -> list[Json]:
        """Return the models for which there are credentials."""

    @command()
    async def set_model(self, provider: str, model_id: str, *, timeout: Timeout = UNSET) -> Json:
        """Switch models; the new one answers from the next turn on."""

    @command()
    async def cycle_model(self, *, timeout: Timeout = UNSET) -> Json | None:
        """Switch to the next model of the scope; null if there is no other."""

    @command()
    async def set_thinking_level(self, level: str, *, timeout: Timeout = UNSET) -> None:
        """Set how hard the model thinks, clamped to the levels it supports."""

    @command("level")
    async def cycle_thinking_level(self, *, timeout: Timeout = UNSET) -> str | None:
        """Go to the next level; null if the model has only one."""

    @command("levels")
    async def get_available_thinking_levels(self, *, timeout: Timeout = UNSET) -> list[str]:
        """Return the levels of the current model."""

    @command()
    async def set_steering_mode(self, mode: Literal["all", "one-at-a-time"], *, timeout: Timeout = UNSET) -> None:
        """Deliver steering messages one per turn or all together."""

    @command()
    async def set_follow_up_mode(self, mode: Literal["all", "one-at-a-time"], *, timeout: Timeout = UNSET) -> None:
        """Deliver follow-ups one per turn or all together."""

    @command()
    async def set_interrupt_mode(self, mode: Literal["immediate", "wait"], *, timeout: Timeout = UNSET) -> None:
        """Let steering cut a batch of tools short (`immediate`) or wait for its end (`wait`)."""

    @command()
    async def set_update_mode(self, mode: Literal["full", "delta"], *, timeout: Timeout = UNSET) -> None:
        """Send the whole answer so far with every update (`full`) or only the new piece (`delta`)."""

    @command()
    async def set_auto_compaction(self, enabled: bool, *, timeout: Timeout = UNSET) -> None:
        """Switch automatic compaction and overflow recovery on or off."""

    @command()
    async def set_auto_retry(self, enabled: bool, *, timeout: Timeout = UNSET) -> None:
        """Switch retries of transient errors on or off."""

    @command()
    async def set_approval(
        self, *, tools: bool = False, max_turns: int | None = None, timeout: Timeout = UNSET
    ) -> None:
        """Ask with a confirm dialog before every tool call (`tools`), and after every `maxTurns` model calls."""

    @command()
    async def set_permissions(
        self,
        *,
        mode: PermissionMode | None = None,
        allow: Sequence[str] | None = None,
        ask: Sequence[str] | None = None,
        deny: Sequence[str] | None = None,
        sandbox: str | Mapping[str, Any] | None = None,
        timeout: Timeout = UNSET,
    ) -> None:
        """Set the permission mode, and replace rules that this command set before; fields left out change nothing.

        `sandbox` is a level, or an object with `level`, `writable` and `network`. It cannot be wider than the
        command line says. If this machine cannot provide it, the command fails and changes nothing.
        """

    @command()
    async def get_permissions(
        self, tool: str | None = None, arguments: Any = None, *, timeout: Timeout = UNSET
    ) -> Json:
        """Return the permission mode and all rules; with a tool and its arguments, also the decision on that call."""

    @command()
    async def answer_permission(
        self,
        question: str,
        behavior: Literal["allow", "deny"],
        *,
        input: Any = None,
        keep: Literal["session", "project", "user"] | None = None,
        rules: Sequence[str] | None = None,
        reason: str | None = None,
        stop: bool = False,
        timeout: Timeout = UNSET,
    ) -> None:
        """Answer the `permission_request` with the id `question`. The first answer counts.

        With `allow`: `input` takes the place of the call's arguments, and is checked by schema and rules; `keep`
        (`session`, `project` or `user`) keeps `rules` there, those of the first suggestion if there are none; on
        a server all but `session` wants its code (`unlock`), and so does a yes to a question of the kind `trust`
        or `place`. With `deny`: `reason` is told to the model, `stop` ends the run. With the kind `trust`, `keep`
        `user` remembers the answer, else it holds for the session. An answer that makes no sense is an error, and
        the question stays open.
        """

    @command("toolNames")
    async def set_host_tools(self, tools: Sequence[Mapping[str, Any]], *, timeout: Timeout = UNSET) -> list[str]:
        """Declare the tools that run in the client, replacing those declared before."""

    @command("servers")
    async def set_mcp_servers(
        self, servers: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, timeout: Timeout = UNSET
    ) -> list[Json]:
        """Set MCP servers, replacing those set before: an object as `mcpServers` of `.mcp.json`, or a list as in
        ACP.
        """

    @command("todoPhases")
    async def set_todos(self, phases: Sequence[Mapping[str, Any]], *, timeout: Timeout = UNSET) -> list[Json]:
        """Replace the todo list."""

    # -- sharing --------------------------------------------------------------------------------------

    @command()
    async def share_session(self, *, timeout: Timeout = UNSET) -> Json:
        """Return a link with which other users of this server may look at the conversation; nobody can do anything
        by it. A conversation has one link. For users of a server (`spindle tokens`).
        """

    @command("links")
    async def get_links(self, *, timeout: Timeout = UNSET) -> list[Json]:
        """Return the links to your conversations."""

    @command()
    async def remove_link(self, link: str, *, timeout: Timeout = UNSET) -> None:
        """Remove a link to one of your conversations. Who looks on by it is disconnected."""

    # -- subagents ------------------------------------------------------------------------------------

    @command()
    async def get_subagents(self, *, timeout: Timeout = UNSET) -> Json:
        """Return the subagents that are at work."""

    @command()
    async def get_subagent_messages(
        self,
        *,
        subagent_id: str | None = None,
        session_file: str | None = None,
        from_byte: int = 0,
        timeout: Timeout = UNSET,
    ) -> Json:
        """Return what is in the session file of a subagent, at work or not, from a byte on; 8 MiB at most.

        The subagent is named by its id or by its session file.
        """

    @command()
    async def stop_subagent(self, subagent_id: str, *, timeout: Timeout = UNSET) -> None:
        """Stop a subagent. The call that it works for ends with what it has said so far."""

    @command()
    async def get_background_output(self, background_id: str, from_byte: int = 0, *, timeout: Timeout = UNSET) -> Json:
        """Return the output of a command in the background from a byte on. The model still gets all of it."""

    @command()
    async def kill_background(self, background_id: str, *, timeout: Timeout = UNSET) -> None:
        """End a command in the background. The model is told, as of every end."""

    # -- work -----------------------------------------------------------------------------------------

    @command()
    async def steer(self, message: str, *, images: Images = None, timeout: Timeout = UNSET) -> Json:
        """Queue a message that the model gets before its next call in this run, or with the next run."""

    @command()
    async def follow_up(self, message: str, *, images: Images = None, timeout: Timeout = UNSET) -> Json:
        """Queue a message that the model gets when the run would otherwise end."""

    @command()
    async def abort(self, *, timeout: Timeout = UNSET) -> None:
        """Stop the run, a retry or a compaction. The response comes when the agent is idle; queues are kept.

        A client need not wait for it before it sends a prompt: the prompt is answered after the abort, and runs
        then.
        """

    @command()
    async def abort_and_prompt(self, message: str, *, images: Images = None, timeout: Timeout = None) -> Json:
        """Stop as `abort` does, then send a message."""

    @command("disposition")
    async def resume_run(self, *, timeout: Timeout = UNSET) -> str:
        """Go on with a run that the end of its process cut off (`interruptedRun` in `get_state`); its events follow.

        Limits hold on. Open calls of tools that only read are made again; the model is told of the others.
        """

    @command("disposition")
    async def answer_question(
        self,
        question: str,
        behavior: Literal["allow", "deny"],
        *,
        input: Any = None,
        keep: Literal["session", "project", "user"] | None = None,
        rules: Sequence[str] | None = None,
        reason: str | None = None,
        stop: bool = False,
        timeout: Timeout = UNSET,
    ) -> str:
        """Answer a question as `answer_permission` does, also one whose run waits in the session (`interruptedRun`).

        `started`: no other question waits, and the run goes on with the answer; its events follow. `answered`:
        the run goes on anyway, or waits for the answer to another question.
        """

    @command()
    async def abandon_run(self, *, timeout: Timeout = UNSET) -> None:
        """Give up a run that the end of its process cut off; another prompt does the same. The conversation stays."""

    @command("commands")
    async def abort_commands(self, *, timeout: Timeout = UNSET) -> list[str]:
        """Stop running slash commands of extensions, and return their names."""

    @command()
    async def clear_queue(self, *, timeout: Timeout = UNSET) -> Json:
        """Empty both queues and return the messages that were in them."""

    @command()
    async def remove_queued(self, queued_id: str, *, timeout: Timeout = UNSET) -> Json:
        """Take one message out of its queue and return it. The ids are in `queue_update`."""

    @command()
    async def edit_queued(self, queued_id: str, message: str, *, timeout: Timeout = UNSET) -> None:
        """Replace the text of a queued message; its place and its images stay."""

    @command()
    async def send_queued(self, queued_id: str, *, timeout: Timeout = UNSET) -> None:
        """Deliver a queued message before all others: before the next model call, or at once if nothing runs."""

    @command()
    async def abort_retry(self, *, timeout: Timeout = UNSET) -> None:
        """End the wait for a retry; the run is over then."""

    @command()
    async def handoff(self, custom_instructions: str | None = None, *, timeout: Timeout = None) -> Json:
        """Go on from a summary of the conversation, as `compact`; refused while a run goes on. A command of oh-my-
        pi.
        """

    @command()
    async def compact(self, custom_instructions: str | None = None, *, timeout: Timeout = None) -> Json:
        """Replace the older part of the context by a summary."""

    @command()
    async def bash(self, command: str, *, exclude_from_context: bool = False, timeout: Timeout = None) -> Json:
        """Run a shell command as the user; the model sees it with the next prompt."""

    @command()
    async def abort_bash(self, *, timeout: Timeout = UNSET) -> None:
        """Kill every running `bash` command."""

    @command()
    async def shutdown(self, *, timeout: Timeout = UNSET) -> None:
        """Answer, then end the process with code 0."""
