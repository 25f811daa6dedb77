"""Tries to get out of a sandbox in every way we know, and prints the names of those that worked, as JSON.

Run as: python escapes.py OUTSIDE SECRET AGENT_PID PORT [WAY …]. It works in the current folder, which it may write.
OUTSIDE is a folder with a file `victim`, SECRET a file with the word "secret" in it; the agent runs outside of the
sandbox, and PORT is a TCP and a UDP port with a listener; so is the abstract unix socket `escape-PORT`. If OUTSIDE
has them, `socket`, `renamed` and `datagram` are unix sockets with a listener, `fifo` is a pipe with a reader,
`terminal` has the name of a terminal in which somebody has typed "secret", `memory` the number of a SysV
segment with that word.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable

OUTSIDE, SECRET, AGENT, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
VICTIM = f"{OUTSIDE}/victim"
libc = ctypes.CDLL(None, use_errno=True)
WAYS: dict[str, Callable[[], object]] = {}


def way(function: Callable[[], object]) -> Callable[[], object]:
    """An attempt works if it neither raises nor returns a false value."""
    WAYS[function.__name__] = function
    return function


def write(path: str, mode: str = "w") -> bool:
    with open(path, mode) as file:
        file.write("evil")
    return True


def read(path: str) -> bool:
    with open(path) as file:
        return "secret" in file.read()


def shell(command: str) -> bool:
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, timeout=20).returncode == 0


WAYS["write a new file"] = lambda: write(f"{OUTSIDE}/new")
WAYS["append"] = lambda: write(VICTIM, "a")
WAYS["truncate"] = lambda: os.truncate(VICTIM, 0) or True
WAYS["remove"] = lambda: os.unlink(VICTIM) or True
WAYS["make a folder"] = lambda: os.mkdir(f"{OUTSIDE}/folder") or True
WAYS["/proc/self/root"] = lambda: write(f"/proc/self/root{OUTSIDE}/new")
WAYS["/proc/self/cwd"] = lambda: write(f"/proc/self/cwd/../{os.path.basename(OUTSIDE)}/new")
WAYS["/proc of the agent"] = lambda: write(f"/proc/{AGENT}/root{OUTSIDE}/new")
WAYS["environment of the agent"] = lambda: os.open(f"/proc/{AGENT}/environ", os.O_RDONLY)
WAYS["memory of the agent"] = lambda: os.open(f"/proc/{AGENT}/mem", os.O_RDONLY)
WAYS["read the secret"] = lambda: read(SECRET)
WAYS["read the secret by /proc"] = lambda: read(f"/proc/self/root{SECRET}")
WAYS["double fork"] = lambda: shell(
    f"(setsid sh -c 'echo evil > {OUTSIDE}/new' &) & wait; sleep 0.1; test -s {OUTSIDE}/new"
)
WAYS["/dev/shm"] = lambda: write(f"/dev/shm/escape-{AGENT}") and os.unlink(f"/dev/shm/escape-{AGENT}") is None
WAYS["chmod"] = lambda: os.chmod(VICTIM, 0o600) or True
WAYS["attribute"] = lambda: os.setxattr(VICTIM, "user.evil", b"1") or True
WAYS["signal to the agent"] = lambda: os.kill(AGENT, signal.SIGCONT) or True
WAYS["limits of the agent"] = lambda: resource.prlimit(AGENT, resource.RLIMIT_CORE, (0, 0)) and True
WAYS["chroot"] = lambda: os.chroot("/") or write(f"{OUTSIDE}/new")


@way
def link_to_folder() -> bool:
    os.symlink(OUTSIDE, "there")
    return write("there/new")


@way
def link_to_file() -> bool:
    os.symlink(VICTIM, "victim-link")
    return write("victim-link")


@way
def link_to_secret() -> bool:
    os.symlink(SECRET, "secret-link")
    return read("secret-link")


@way
def hard_link() -> bool:
    os.link(VICTIM, "victim-hard")
    return write("victim-hard", "a")


@way
def hard_link_to_secret() -> bool:
    os.link(SECRET, "secret-hard")
    return read("secret-hard")


@way
def rename_in() -> bool:
    os.rename(VICTIM, "victim-moved")
    return True


@way
def rename_out() -> bool:
    write("mine")
    os.rename("mine", f"{OUTSIDE}/new")
    return True


@way
def device() -> bool:
    """Root could make a device, and write to it."""
    os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(7, 0))
    return True


@way
def handle() -> bool:
    """Root could open a file by its number, without a path."""
    handle = ctypes.create_string_buffer((128).to_bytes(4, "little") + bytes(4 + 128))
    mount = ctypes.c_int()
    if libc.name_to_handle_at(-100, VICTIM.encode(), handle, ctypes.byref(mount), 0):
        return False
    file = libc.open_by_handle_at(os.open("/", os.O_RDONLY), handle, os.O_WRONLY | os.O_TRUNC)
    return file >= 0


@way
def memory_file() -> bool:
    """A program without a path."""
    file = os.memfd_create("evil", 0)
    os.write(file, f"#!/bin/sh\necho evil > {OUTSIDE}/new\n".encode())
    return subprocess.run([f"/proc/self/fd/{file}"], pass_fds=[file], capture_output=True).returncode == 0


@way
def trace_the_agent() -> bool:
    return libc.ptrace(0x4206, AGENT, 0, 0) == 0  # it does not stop


@way
def memory_of_the_agent_by_call() -> bool:
    """Without /proc. The call fails with EPERM or ESRCH, not with EFAULT, if it may not look."""
    there = (ctypes.c_size_t * 2)(4096, 8)
    return libc.process_vm_readv(AGENT, there, 1, there, 1, 0) >= 0 or ctypes.get_errno() == 14


@way
def file_of_the_agent() -> bool:
    """Take an open file of the agent."""
    agent = os.pidfd_open(AGENT)
    return libc.syscall(438, agent, 0, 0) >= 0


@way
def left_open() -> bool:
    """Find a folder that the agent has left open for us."""
    for name in os.listdir("/proc/self/fd"):
        path = os.readlink(f"/proc/self/fd/{name}") if os.path.lexists(f"/proc/self/fd/{name}") else ""
        if int(name) > 2 and os.path.isdir(path) and not path.startswith("/proc"):
            os.close(os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=int(name)))
            return True
    return False


@way
def abstract_socket() -> bool:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(f"\0escape-{PORT}")
    return True


@way
def copy_of_a_mount() -> bool:
    return libc.syscall(428, -100, OUTSIDE.encode(), 1) >= 0  # open_tree, OPEN_TREE_CLONE


@way
def mount() -> bool:
    return libc.mount(b"none", b".", b"tmpfs", 0, None) == 0


@way
def remount() -> bool:
    return libc.mount(b"none", b"/", None, 4096 | 32, None) == 0 and write(f"{OUTSIDE}/new")


@way
def namespaces() -> bool:
    """Become root of a namespace, and mount there."""
    code = (
        "import ctypes, os, sys; libc = ctypes.CDLL(None); uid = os.getuid()\n"
        "assert libc.unshare(0x10000000 | 0x00020000) == 0\n"
        "open('/proc/self/setgroups', 'w').write('deny'); open('/proc/self/uid_map', 'w').write(f'0 {uid} 1')\n"
        "libc.mount(b'none', b'/', None, 4096 | 32, None)\n"
        f"open({OUTSIDE + '/new'!r}, 'w').write('evil')\n"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=20).returncode == 0


@way
def connect() -> bool:
    socket.create_connection(("127.0.0.1", PORT), 2).close()
    return True


@way
def listen() -> bool:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
    return True


@way
def datagram() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        return bool(one.sendto(b"evil", ("127.0.0.1", PORT)))


@way
def ring() -> bool:
    """io_uring makes sockets without the call that a filter would see."""
    return libc.syscall(425, 1, ctypes.create_string_buffer(120)) >= 0


@way
def unix_socket() -> bool:
    """As that of tmux: `tmux send-keys` runs anything outside."""
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(f"{OUTSIDE}/socket")
    return True


@way
def renamed_socket() -> bool:
    """The kernel tells another name of it, or one that is relative to where its program was."""
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(f"{OUTSIDE}/renamed")
    return True


@way
def pair_led_elsewhere() -> bool:
    """A pair is made without the call that a filter refuses, and datagrams take any address."""
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return bool(one.sendto(b"evil", f"{OUTSIDE}/datagram"))


@way
def fifo() -> bool:
    return bool(os.write(os.open(f"{OUTSIDE}/fifo", os.O_WRONLY | os.O_NONBLOCK), b"evil"))


def terminal() -> str:
    with open(f"{OUTSIDE}/terminal") as file:
        return file.read()


@way
def read_a_terminal() -> bool:
    return b"secret" in os.read(os.open(terminal(), os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK), 100)


@way
def write_to_a_terminal() -> bool:
    return bool(os.write(os.open(terminal(), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK), b"password: "))


@way
def multipath_tcp() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as one:
        one.connect(("127.0.0.1", PORT))
    return True


@way
def fast_open() -> bool:
    """Connect with the first bytes, without the call that rules for ports look at."""
    with socket.socket() as one:
        return bool(one.sendto(b"evil", 0x20000000, ("127.0.0.1", PORT)))


@way
def listen_on_any_port() -> bool:
    """The kernel chooses a port for a socket that listens without one."""
    with socket.socket() as server:
        server.listen()
    return True


WAYS["SCTP"] = lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)
WAYS["SMC"] = lambda: socket.socket(43, socket.SOCK_STREAM, 0)
WAYS["VSOCK"] = lambda: socket.socket(40, socket.SOCK_STREAM)
WAYS["RDS, TIPC, Bluetooth"] = lambda: [socket.socket(family, socket.SOCK_SEQPACKET) for family in (21, 30, 31)]


@way
def keyring() -> bool:
    """The keys of the user: `keyctl show @u`."""
    return libc.syscall({"x86_64": 250, "aarch64": 219}[os.uname().machine], 0, -4, 1) >= 0


@way
def shared_memory() -> bool:
    with open(f"{OUTSIDE}/memory") as file:
        number = int(file.read())
    libc.shmat.restype = ctypes.c_void_p
    place = libc.shmat(number, None, 0o10000)
    return place not in (None, ctypes.c_void_p(-1).value) and ctypes.string_at(place, 6) == b"secret"


@way
def renice_the_agent() -> bool:
    os.setpriority(os.PRIO_PROCESS, AGENT, os.getpriority(os.PRIO_PROCESS, AGENT) + 1)
    return True


@way
def renice_all_of_the_user() -> bool:
    os.setpriority(os.PRIO_USER, 0, os.getpriority(os.PRIO_PROCESS, 0) + 1)
    return True


@way
def affinity_of_the_agent() -> bool:
    os.sched_setaffinity(AGENT, os.sched_getaffinity(AGENT))
    return True


@way
def lock_a_file() -> bool:
    """As a session file, which its agent could not open any more."""
    import fcntl

    with open(SECRET) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True


def works(attempt: Callable[[], object]) -> bool:
    try:
        return bool(attempt())
    except Exception:
        return False


chosen = sys.argv[5:] or list(WAYS)
print(json.dumps(sorted(name for name in chosen if works(WAYS[name]))))
