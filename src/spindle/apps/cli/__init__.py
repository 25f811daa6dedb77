"""The command line. This module imports nothing of ours: `spindle --version` must not wait for anything else."""

import gc
import os
import sys

_PI_VERSIONS = {"pi-0.74": "0.74.2", "pi-0.87": "0.87.1"}
_PI_VERSION = "1.5.0"
"""The newest pi version whose wire we speak; adapters that start us under the name `pi` check it."""


def version_text(program: str, dialect: str | None = None) -> str:
    """Return the bare version for the name the program was started under.

    Under the name `pi` it is that of pi: of the dialect that is given or `SPINDLE_DIALECT` names, else of the newest.
    """
    from spindle.base.version import __version__

    if not is_pi(program):
        return __version__
    return _PI_VERSIONS.get(dialect or os.environ.get("SPINDLE_DIALECT", ""), _PI_VERSION)


def is_pi(program: str | None = None) -> bool:
    """Say whether the program was started under the name `pi`."""
    return os.path.basename(sys.argv[0] if program is None else program).removesuffix(".exe") == "pi"


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if arguments in (["--version"], ["-v"], ["-V"]) and _print_version():
        return 0
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Half-loaded modules do not take an exception well: until there is something to clean up, Ctrl-C just ends us.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # objects made at start-up stay: looking for garbage is time lost until `end_of_start`
    from spindle.apps.cli.later import load_others_later
    from spindle.apps.cli.own_modules import find_quickly

    find_quickly()
    load_others_later()
    import datetime  # noqa: F401

    gc.collect()  # `datetime` makes garbage: its Python classes, 200 KB, are replaced by those written in C
    # If typing_extensions is installed, msgspec takes two names from it that typing has too. Importing it would take a
    # tenth of our start.
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
        import msgspec  # noqa: F401

        del sys.modules["typing_extensions"]
    from spindle.apps.cli.main import run

    return run(arguments)


def _print_version() -> bool:
    """Return False if stdout cannot be written to: `run` reports that."""
    try:
        print(version_text(sys.argv[0]), flush=True)
    except (OSError, AttributeError, ValueError):
        return False
    return True


def end_of_start() -> None:
    """Collect garbage from now on, but not among the objects made at start-up."""
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(10_000)  # for a hundred prompts at once: 26 collections took 4 % of their time
        gc.enable()


def tell(kind: str, text: str) -> None:
    """Tell the person at the command line something: one line on stderr."""
    # Advice follows some texts after a blank line; here it belongs on the same one.
    print(f"{kind}: " + text.replace("\n\n", " "), file=sys.stderr)


def warn(text: str) -> None:
    """Tell a warning; one about files that stay as they are only once (`spindle doctor` always shows it)."""
    from spindle.base.user_files import Standing, is_news

    if not isinstance(text, Standing) or is_news(text):
        tell("Warning", text)


def silence_stdout() -> None:
    """Let the interpreter's last flush go nowhere: stdout cannot be written to."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # by number: in RPC mode `sys.stdout` leads to stderr
    except OSError:  # no descriptors are left
        pass
