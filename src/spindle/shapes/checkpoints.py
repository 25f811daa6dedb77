"""Checkpoints and changes of files, as clients see them."""

from spindle.shapes.messages import Wire


class Checkpoint(Wire, kw_only=True):
    """The state of the files before a turn wrote to them, before the user's first command, or before a restore."""

    id: str
    entry_id: str
    """Its entry in the session."""
    timestamp: str
    kind: str
    """`turn`; `command`, one of the user before which nothing was kept yet; or `restore`: the state before one, which
    leads back to where the conversation was."""
    prompt: str | None = None
    """The message that the turn worked on, up to 200 characters."""
    prompt_id: str | None = None
    """The entry of that message."""
    on_branch: bool
    """Whether it is on the current branch of the conversation."""
    is_kept: bool
    """Whether it can be restored: its files are still kept, and it is of this folder."""
    covers: str
    """`all` files of the folder but those that are not covered, or only the tools' own `edits`."""
    files: int | None = None
    """How many files it covers."""
    not_covered: int | None = None
    """How many files and folders it does not cover, besides ignored ones; `get_changes` names them."""
    duration_ms: int | None = None
    """How long it took."""
    restored: str | None = None
    """The checkpoint that was restored, for `restore`."""


class CheckpointList(Wire):
    checkpoints: list[Checkpoint]
    """The oldest first."""
    enabled: bool
    """Whether checkpoints are taken."""
    folder: str
    """The repository, or the working directory."""
    bytes: int
    """Size of all that is kept of this folder, for all sessions."""
    max_bytes: int
    """When it is larger, the oldest checkpoints go."""
    max_age_days: int
    """Older checkpoints go."""


class ChangedFile(Wire):
    """How a file differs between two states."""

    path: str
    """Seen from the working directory; absolute if it is outside of the folder. An empty folder ends with `/`."""
    status: str
    """`added`, `deleted`, `modified` or `renamed`."""
    old_path: str | None = None
    added: int | None = None
    """Lines; none for a binary file."""
    removed: int | None = None
    diff: str | None = None
    """In git's form; none for a binary file, and if the diffs of all files are too long."""


class NotedFile(Wire):
    path: str
    why: str


class FileChanges(Wire):
    files: list[ChangedFile]
    added: int
    """Lines of all files."""
    removed: int
    not_covered: list[NotedFile]
    """Files and folders that are not compared, at most 100: large files, repositories inside of this one. Ignored files
    are not compared, either."""


class Restored(Wire):
    files: list[ChangedFile]
    """What the restore changes in files: the diffs lead from the state now to that of the checkpoint."""
    conflicts: list[NotedFile]
    """Files that were changed outside of the agent's runs. Only a restore with `force` overwrites them."""
    not_covered: list[NotedFile]
    """Files that stay as they are, because their former state is not known."""
    checkpoint: str | None = None
    """The checkpoint of the state before the restore: restoring that takes it back. None for a dry run."""
    editor_text: str | None = None
    """The prompt before which the conversation stands now, to be edited and sent again."""
    cancelled: bool = False
    """Whether an extension prevented it."""
