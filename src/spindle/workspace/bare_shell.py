"""A shell command on a far side that has only `sh`: each has a pipe of its own."""

import asyncio
import secrets
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress

from spindle.base import limits
from spindle.programs.process import Process
from spindle.workspace import Sink
from spindle.workspace.disk import ToolError
from spindle.workspace.pipe import CLEAN, FarError, Pipe

_RUN = """
cd {cwd} 2>/dev/null || {{
echo "{mark} 0"; echo "Working directory does not exist: "{cwd}; echo "Cannot execute bash commands."
printf '\\n{mark} 1\\n'; exit
}}
shell=sh; command -v bash >/dev/null 2>&1 && shell=bash
leader=; command -v setsid >/dev/null 2>&1 && leader=setsid
{env}
$leader $shell -c 'printf "{mark} %d\\n" $$; exec "$0" -c "$1"' $shell {command} </dev/null 2>&1
printf '\\n{mark} %d\\n' $?
exit
"""
_KILL = """
all={pid}; next={pid}
while [ -n "$next" ]; do
found=
for file in /proc/[0-9]*/stat; do
{{ read -r line <"$file"; }} 2>/dev/null || continue
number=${{line%% *}}; set -- ${{line##*) }}
case " $next " in *" $2 "*) found="$found $number";; esac
done
all="$all $found"; next=${{found# }}
done
kill -9 -{pid} 2>/dev/null
kill -9 $all 2>/dev/null
exit
"""
"""Kills a group, and all processes below it, which Linux shows in /proc."""


class BareCommand:
    def __init__(self, pipe: Pipe, command: str, cwd: str, env: Mapping[str, str], on_output: Sink) -> None:
        """Raises `ToolError`."""
        self.pid = 0
        self._pipe = pipe
        self._on_output = on_output
        self._mark = f"spindle-{secrets.token_hex(8)}".encode()
        """Stands before the number of the process, and at the end before the exit code."""
        self._has_begun = False
        self._code: int | None = None
        self._held = bytearray()
        """Output that may be part of our words."""
        run = _RUN.format(
            cwd=shlex.quote(cwd),
            command=shlex.quote(command),
            mark=self._mark.decode(),
            env="\n".join(f"export {name}={shlex.quote(value)}" for name, value in env.items()),
        )
        # A shell of its own, because Linux shows the variables that a process began with.
        script = f"{CLEAN}exec sh -c {shlex.quote(run)}\n"
        self._process: Process = pipe.start_words([*pipe.words, "sh"], self._take, None)
        self._process.write(script.encode("utf-8", "surrogateescape"))

    def _take(self, data: bytes) -> None:
        self._held += data
        if not self._has_begun:
            _, _, after = self._held.partition(self._mark + b" ")
            number, newline, rest = after.partition(b"\n")
            if not newline:
                return
            self._has_begun, self.pid, self._held = True, int(number), bytearray(rest)
        end = self._held.find(b"\n" + self._mark + b" ")
        if end < 0:
            end = max(0, len(self._held) - len(self._mark) - 2)
            self._pass_on(self._held[:end])
            del self._held[:end]
            return
        number, newline, _ = self._held[end + len(self._mark) + 2 :].partition(b"\n")
        if newline:
            self._code = int(number)
            self._pass_on(self._held[:end])
            self._held.clear()

    def _pass_on(self, data: bytearray) -> None:
        if data:
            self._on_output(bytes(data))

    @property
    def returncode(self) -> int:
        return self._process.returncode if self._code is None else self._code

    async def wait(self) -> int:
        try:
            await self._process.wait()
        except asyncio.CancelledError:
            await self._kill_there()
            raise
        if self._code is None:
            raise FarError(
                f"The pipe to the far side (`{self._pipe.command}`) broke while the command ran: "
                f"{bytes(self._held).decode('utf-8', 'replace').strip() or 'it has ended'}"
            )
        return self._code

    async def _kill_there(self) -> None:
        """Kill the processes at the far side: they need not end with our pipe."""
        if self.pid and self._code is None:
            with suppress(ToolError):
                killer = self._pipe.start_words([*self._pipe.words, "sh"], lambda data: None, None)
                killer.write(_KILL.format(pid=self.pid).encode())
                await killer.ended(limits.CHILD_KILLED)
                killer.kill()

    async def stop(self, grace: float) -> None:
        await self._kill_there()
        await self._process.stop(grace)

    def on_end(self, call: Callable[[], None]) -> None:
        self._process.on_end(call)

    def pause(self) -> None:
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def kill(self) -> None:
        self._process.kill()

    def kill_rest(self) -> None:
        self._process.kill_rest()
