"""A real PostgreSQL for the tests: started once, by whoever needs it first, on a socket and a port of its own.

PostgreSQL refuses to run as root: then it runs as the user `postgres`, who comes with its package. Each test gets a
database of its own. `SPINDLE_TEST_POSTGRES` is the address of a server that is there already.
"""

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
from functools import cache
from glob import glob
from pathlib import Path
from uuid import uuid4

import pytest

PASSWORD = "secret-word"


class Server:
    def __init__(self, folder: Path, bin: Path, fsync: str = "off") -> None:
        self.folder, self._bin, self._fsync = folder, bin, fsync
        self._as = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
        if self._as:
            shutil.chown(folder, "postgres", "postgres")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        (folder / "pw").write_text(PASSWORD)
        if self._as:
            shutil.chown(folder / "pw", "postgres")
        auth = ["--auth=scram-sha-256", f"--pwfile={folder}/pw", "--username=spindle"]
        self.call("initdb", "-D", str(folder / "data"), "--no-sync", "--encoding=UTF8", "--locale=C", *auth)
        self.start()

    def call(self, program: str, *args: str) -> str:
        env = {**os.environ, "PGPASSWORD": PASSWORD, "LC_ALL": "C"}
        command = [*self._as, str(self._bin / program), *args]
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=self.folder, timeout=60)
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr or done.stdout}")
        return done.stdout

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} -c max_connections=300"
        options += f" -c fsync={self._fsync}"
        log = str(self.folder / "log")
        self.call("pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", log, "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        self.call("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", mode, "stop")

    @classmethod
    def of_its_own(cls, fsync: str = "off") -> "Server":
        """Start one that a test may stop; `remove` it in the end."""
        return _begun(fsync)

    def remove(self) -> None:
        try:
            self.stop()
        except RuntimeError:
            pass  # it was stopped
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def address(self, database: str, password: str = PASSWORD) -> str:
        return f"postgresql://spindle:{password}@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """Make an empty database; return its address."""
        name = f"t{uuid4().hex[:12]}"
        self.call("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "spindle", name)
        return self.address(name)

    def sql(self, address: str, text: str) -> str:
        return self.call("psql", "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-c", text, address)


def _begun(fsync: str = "off") -> Server:
    pytest.importorskip("psycopg", reason="no psycopg")
    found = sorted(glob("/usr/lib/postgresql/*/bin/postgres")) or [one for one in [shutil.which("postgres")] if one]
    if not found:
        pytest.skip("no PostgreSQL (apt install postgresql)")
    return Server(Path(tempfile.mkdtemp(prefix="spindle-pg-")), Path(found[-1]).parent, fsync)


@cache
def server() -> Server:
    """Return the server of this process; without PostgreSQL the test is skipped."""
    made = _begun()
    atexit.register(made.remove)
    return made


def database() -> str:
    return server().database()
