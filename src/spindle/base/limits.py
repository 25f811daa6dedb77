"""Every time limit that is not a setting, in seconds. Each wait for something outside ends at one of these.

Shutdown goes down this list: commands may still answer, the run is aborted, tools and shell commands are killed,
extensions are told, their tasks are cancelled, the file is flushed, the output is drained.
"""

from typing import Final

# -- shutdown, in this order ---------------------------------------------------------------------
LAST_ANSWERS: Final = 0.25
"""Commands under way may still answer after the end of input."""
RUN_END: Final = 2.0
"""A run may wind up after an abort at shutdown; as long again after it is cancelled."""
TOOL_END: Final = 5.0
"""A cancelled tool may clean up; then the run goes on without it."""
USER_BASH_END: Final = 10.0
"""Killed shell commands of the user may report their output."""
EXTENSIONS_CATCH_UP: Final = 5.0
"""Handlers may finish with the events so far."""
SESSION_SHUTDOWN: Final = 5.0
"""For all `session_shutdown` handlers together."""
HANDLER_END: Final = 1.0
"""For one cancelled handler."""
TASKS_END: Final = 5.0
"""For cancelled tasks of extensions."""
DISK_SYNC: Final = 5.0
"""The session file may reach the disk."""
CHECKPOINT_END: Final = 60.0
"""For the state of the files after a run: then the run ends without it."""
SYNC_LATER: Final = 0.2
"""Until the end of a run is forced to disk, unless the next message does it before."""
PROMPT_KEPT: Final = 0.005
"""Until a prompt that cannot enter the session file yet is kept beside it; then its sender is told."""
COMMANDS_END: Final = 2.0
"""For cancelled commands."""
OUTPUT_DRAIN: Final = 5.0
"""The client may read the remaining output after the end of input."""
OUTPUT_DRAIN_AFTER_SIGNAL: Final = 1.0
"""The same after SIGTERM or SIGINT."""

PROCESS_END: Final = 12.0
"""From a signal to the end of the process; then it is killed, whatever it is doing."""

# -- children ------------------------------------------------------------------------------------
CHILD_GRACE: Final = 5.0
"""Between SIGTERM and SIGKILL."""
CHILD_KILLED: Final = 5.0
"""For the end of a killed child; a child stuck in the kernel may take for ever."""
CHILD_START: Final = 10.0
"""For a supervisor to say that a child runs; a busy machine takes long to start the first supervisor."""
OUTSIDE_ANSWER: Final = 120.0
"""For an answer to "run it outside of the sandbox?"; afterwards the model is told that the sandbox has stopped it."""
LEFT_LOOK: Final = 1.0
"""Between two looks at what processes change that fenced commands have left."""
FENCE_TRIAL: Final = 5.0
"""For the one command that shows whether bubblewrap works."""
CHILDREN_END: Final = 2.0
"""For all children to be gone, at shutdown."""
CHILD_QUIET: Final = 0.1
"""Silence, after a child has ended, before pipes held by its own children are given up."""
CHILD_LINGER: Final = 1.0
"""How long those pipes are read at most."""
CREDENTIAL_COMMAND: Final = 10.0
"""For a `!command` in a configuration file."""
ARGUMENTS_CHECK: Final = 5.0
"""For a check of a tool's arguments that would hold the event loop."""

# -- configuration files -------------------------------------------------------------------------
FILE_LOCK_WAIT: Final = 5.0
"""For another program to release the lock of a configuration file."""
FILE_LOCK_STALE: Final = 10.0
"""Age at which such a lock counts as abandoned."""
CATALOG_WAIT: Final = 1.0
"""For another process that writes to the catalog of sessions; a list is as true without it."""
LOGIN_LOCK_WAIT: Final = 40.0
"""For another program to renew a login."""
LOGIN_LOCK_STALE: Final = 30.0
"""Age at which its lock counts as abandoned: pi shows signs of life every 15 s."""
LOGIN_LOCK_TOUCH: Final = 3.0
"""Between two signs of life of a lock that is held while a server is asked."""

# -- extensions ----------------------------------------------------------------------------------
EXTENSION_FACTORY: Final = 30.0
"""For `extension(agent)` to return."""
EVENT_HANDLERS: Final = 5.0
"""For the handlers of one event whose results are not needed; then they go on by themselves."""
HANDLER_AFTER_ABORT: Final = 2.0
"""A handler that was asked something may still answer after an abort."""

# -- model servers -------------------------------------------------------------------------------
MODEL_RESTS: Final = 300.0
"""A model that has failed is not asked for so long, if another one of its chain can answer."""
CONNECT_OR_ELSE: Final = 1.5
"""For a connection to a model's server, if another model can answer."""
CONNECT: Final = 30.0
KEEP_ALIVE: Final = 60.0
"""For an unused connection."""
SMALL_REQUEST: Final = 20.0
"""For a question to a login server, answer included."""
LOGIN: Final = 900.0
"""For a person to sign in with a browser."""
IMAGE_DOWNLOAD: Final = 10.0
"""For an image that a prompt names by its address."""
RESPONSE_DRAIN: Final = 0.1
"""For the rest of a response after its answer is complete, so that the connection can be used again."""
LOOPBACK_SERVER: Final = 1.0
"""For each step of a question to a model server on this machine."""
CATALOGUE_DOWNLOAD: Final = 30.0
"""For each step of getting newer prices."""
LOCAL_SERVER_EXIT: Final = 2.0
EDIT_CHECK: Final = 2.0
"""For a program that checks a file after an edit."""
MODEL_DOWNLOAD: Final = 30.0
"""For each step of getting a model from an address."""
PULL_LOOK: Final = 0.2
"""Between two looks at the progress of a local model's download."""

# -- MCP servers ---------------------------------------------------------------------------------
MCP_REQUEST: Final = 60.0
"""For an answer, unless the configuration says otherwise; a report of progress starts the time again."""
MCP_LONGEST: Final = 3600.0
"""For an answer in any case, however often progress is reported."""
MCP_START: Final = 120.0
"""For a server to start and list what it offers. Only its own calls wait for it."""
MCP_PROBE: Final = 5.0
"""For a server to answer a request of the newer protocol; then it is asked in the older one."""
MCP_HEAR: Final = 2.0
"""For a server to open the stream of its questions; then tools are called without it."""
MCP_LEARN: Final = 1.0
"""After the beginning of a session, before servers are started only to learn what they offer."""
MCP_SEARCH: Final = 10.0
"""For servers that still start while the model looks for tools."""
MCP_STDIN_CLOSED: Final = 1.0
"""For a server to end after its stdin was closed; then it gets SIGTERM."""
MCP_TERMINATED: Final = 2.0
"""Between SIGTERM and SIGKILL."""
MCP_RECONNECT: Final = 1.0
"""Before a broken stream is resumed, unless the server says when."""
MCP_RETRY: Final = 60.0
"""Before a server that failed twice is tried again."""
MCP_REFRESH: Final = 600.0
"""Until a server in use is asked again what it offers; not all servers announce changes."""
MCP_LIST: Final = 20.0
"""For servers to start and list what they offer, in `spindle mcp list` and `spindle doctor`."""
MCP_LOGIN: Final = 300.0
"""For the user to log in with a browser."""

# -- remote clients ------------------------------------------------------------------------------
FIRST_REQUEST: Final = 10.0
"""For the first request on a connection."""
NEXT_REQUEST: Final = 60.0
"""For another request on a connection that stays open."""
REQUEST_BODY: Final = 60.0
"""For the rest of a request."""
LAST_FRAMES: Final = 1.0
"""A client that is being disconnected may take its last frames."""
CLOSE_FRAME: Final = 5.0
"""A client may answer a close frame."""
SESSIONS_INTERRUPT: Final = 2.0
"""Runs may wind up before the server closes."""
GOODBYE: Final = 5.0
"""Clients may leave when the server closes."""
SESSIONS_CLOSE: Final = 5.0
"""Sessions may close when the server closes."""
CLIENT_RETURN: Final = 30.0
"""For a client to come back and answer a question about permissions; then the answer is no."""
EDITOR_ANSWER: Final = 10.0
"""For an editor to give a file as it has it open, or to open or end a terminal; then the call fails."""
CHAT_STOP: Final = 10.0
"""A chat request may wind up after its client has left."""

# -- the Python clients --------------------------------------------------------------------------
RECONNECT_DELAY: Final = 0.1
"""Before a lost server is looked for again; doubled after each failure."""
RECONNECT_LONGEST_DELAY: Final = 2.0

# -- the terminal --------------------------------------------------------------------------------
PROGRESS_TICK: Final = 0.5
"""Between two looks at what a one-shot run does."""
STDIN_PATIENCE: Final = 2.0
"""Before the user is told that the program waits for piped input."""

# -- the far side of a pipe ------------------------------------------------------------------------
FAR_START: Final = 30.0
"""For the command that gives a pipe, until the helper at its other end answers."""
FAR_BEAT: Final = 10.0
"""Between two looks whether the far side still says something, while calls wait for it."""
FAR_SILENCE: Final = 40.0
"""Without a byte from the far side, though it was asked: the pipe counts as broken."""

FAR_CALL: Final = 300.0
"""For one operation on files at the far side, and for a program there to begin."""

# -- the chat on a terminal ------------------------------------------------------------------------
CLIPBOARD: Final = 5.0
"""For a program to hand over the picture in the clipboard."""

# -- batches -------------------------------------------------------------------------------------
GIT: Final = 600.0
"""For one git command: a clone may be large."""
GATE_LONGEST: Final = 60.0
"""Between two tries of a provider that refuses requests without saying for how long."""
GATE_LONGEST_ASKED: Final = 8.0
"""The same for a provider that names a time, but a shorter one each time."""
BATCH_RETRY: Final = 1.0
"""Before a task is tried again; doubled each time."""
BATCH_STOP: Final = 30.0
"""Running tasks may wind up after they were cancelled."""
CLUSTER_CONNECT: Final = 10.0
"""For the address of a cluster to answer."""
NODE_RETURN: Final = 60.0
"""For a node of a cluster to appear, after all were lost."""
NODE_LOOK: Final = 1.0
"""Between two looks for such a node."""
