"""Write src/spindle/client/sync.pyi: the methods of `SyncRpcClient` with the types that `RpcClient` gives them.

`SyncRpcClient` hands every call on to an `RpcClient`, which a type checker cannot see. A test runs this and compares.
"""

import ast
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parent.parent / "src/spindle/client"
TARGET = CLIENT / "sync.pyi"
OWN = {"run", "events", "on_ui_request", "start", "close", "open_session"}
"""Those that the sync classes have themselves."""
HEAD = """# Made by scripts/sync_stub.py of the methods of RpcClient.
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from spindle.client.callbacks import Event, UiHandler
from spindle.client.commands import Behavior, Images, QueueMode, Timeout, Wishes
from spindle.client.handle import Function, Run, RunEvents
from spindle.client.rpc import RpcSession
from spindle.client.transport import Json, Transport

"""
HANDLE = """class _SyncHandle:
    @property
    def on_ui_request(self) -> UiHandler | None: ...
    @on_ui_request.setter
    def on_ui_request(self, handler: UiHandler | None) -> None: ...
    def events(self) -> Iterator[Event]: ...
"""
REST = """
class SyncRpcSession(_SyncHandle):
    id: str
    info: Json
    def __init__(self, session: RpcSession, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> SyncRpcSession: ...
    def __exit__(self, *_: object) -> None: ...

class SyncRunEvents(Iterator[Event]):
    def __init__(self, events: RunEvents, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None: ...
    def __next__(self) -> Event: ...
    def close(self) -> None: ...
    def result(self) -> Json | None: ...

class SyncRpcClient(_SyncHandle):
    def start(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> SyncRpcClient: ...
    def __exit__(self, *_: object) -> None: ...
    @property
    def stderr(self) -> str: ...
"""


def stub() -> str:
    """Return the text of the file."""
    shared = {"run": "SyncRunEvents"}
    handle = [*_methods("handle", "AgentHandle"), *_methods("commands", "Commands")]
    public = [one for one in handle if not one.name.startswith("_") and one.name not in OWN - {"run"}]
    own = [one for one in _methods("rpc", "RpcClient") if one.name in ("__init__", "open_session")]
    text = HEAD + HANDLE + "".join(_declared(one, shared.get(one.name)) for one in public)
    text += REST + "".join(_declared(one, "SyncRpcSession" if one.name == "open_session" else None) for one in own)
    command = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _methods(module: str, name: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse((CLIENT / f"{module}.py").read_text())
    client = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    return [node for node in client.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _declared(method: ast.FunctionDef | ast.AsyncFunctionDef, returns: str | None = None) -> str:
    kept = [node for node in method.decorator_list if ast.unparse(node) in ("property", "overload")]
    if method.name == "tool" and not kept:
        return ""  # its overloads say it
    for defaults in (method.args.defaults, method.args.kw_defaults):
        defaults[:] = [None if default is None else ast.Constant(...) for default in defaults]
    plain = ast.FunctionDef(method.name, method.args, [ast.Expr(ast.Constant(...))], [], method.returns, None)
    if returns:
        plain.returns = ast.Name(returns)
    text = ast.unparse(ast.fix_missing_locations(plain)).replace(":\n    ...", ": ...")
    lines = [f"@{ast.unparse(node)}" for node in kept] + [text]
    return "".join(f"    {line}\n" for line in lines)


if __name__ == "__main__":
    TARGET.write_text(stub())
