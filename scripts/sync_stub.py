"""Write src/spindle/client/sync.pyi: the methods of `SyncRpcClient` with the types that `RpcClient` gives them.

`SyncRpcClient` hands every call on to an `RpcClient`, which a type checker cannot see. A test runs this and compares.
"""

import ast
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parent.parent / "src/spindle/client"
TARGET = CLIENT / "sync.pyi"
OWN = {"start", "close", "run", "events", "on_ui_request"}
"""Those that `SyncRpcClient` has itself."""
HEAD = """# Made by scripts/sync_stub.py of the methods of RpcClient.
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack, overload

from spindle.client.callbacks import Event, UiHandler
from spindle.client.commands import Behavior, Images, QueueMode, Timeout, Wishes
from spindle.client.rpc import Function, Run, RunEvents
from spindle.client.transport import Json

T = TypeVar("T")
"""
OWN_METHODS = """    def start(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> SyncRpcClient: ...
    def __exit__(self, *_: object) -> None: ...
    @property
    def on_ui_request(self) -> UiHandler | None: ...
    @on_ui_request.setter
    def on_ui_request(self, handler: UiHandler | None) -> None: ...
    def events(self) -> Iterator[Event]: ...
"""
TAIL = """class SyncRunEvents(Iterator[Event]):
    def __init__(self, events: RunEvents, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None: ...
    def __next__(self) -> Event: ...
    def close(self) -> None: ...
    def result(self) -> Json | None: ...
"""


def stub() -> str:
    """Return the text of the file."""
    methods = [method for name in ("rpc", "commands") for method in _methods((CLIENT / f"{name}.py").read_text())]
    own, others = [], []
    for method in methods:
        if method.name in ("__init__", "run"):
            own.append(_declared(method, returns="SyncRunEvents" if method.name == "run" else None))
        elif not method.name.startswith("_") and method.name not in OWN:
            text = _declared(method)
            if text not in others:
                others.append(text)
    body = "".join([own[0], OWN_METHODS, *own[1:], *others])
    text = f"{HEAD}\nclass SyncRpcClient:\n{body}\n{TAIL}"
    command = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _methods(source: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    client = next(node for node in classes if node.name in ("RpcClient", "Commands"))
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
