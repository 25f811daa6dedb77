"""`spindle batch report`: the results of a batch for people and for other programs."""

import csv
import html
import io
from collections.abc import Callable
from pathlib import Path

from spindle.apps.batch.ledger import NAME, LedgerError
from spindle.apps.batch.report import Report, TaskRow, read_report
from spindle.apps.cli.args import UsageError
from spindle.apps.cli.usage import CommandParser
from spindle.base.spelling import counted

_COLUMNS = ("status", "task", "attempts", "turns", "tokens", "cost", "time", "reason")
_MOST_NAMES = 8
"""Tasks that are named with a reason."""
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem;color-scheme:light dark}table{border-collapse:collapse}"
    "td,th{padding:.2rem .7rem;text-align:left;border-bottom:1px solid #8884}td.n{text-align:right}"
)


def report_parser() -> CommandParser:
    parser = CommandParser("spindle batch report", description="Say how the tasks of a batch went, and what they cost.")
    parser.add_argument("folder", metavar="DIR", help="where the results are: what --out named")
    parser.add_argument(
        "--format", choices=tuple(_FORMATS), default="text", metavar="FORM", help=f"{', '.join(_FORMATS)} (text)"
    )
    return parser


def run_report(argv: list[str]) -> int:
    """Print the report. Raises `UsageError`."""
    given = report_parser().parse_args(argv)
    folder = Path(given.folder)
    folder = folder.parent if folder.name == NAME else folder
    try:
        report = read_report(folder)
    except LedgerError as error:
        raise UsageError(str(error), 1 if (folder / NAME).exists() else 2) from None
    print(_FORMATS[given.format](report, folder), end="")
    return 0


def _cells(row: TaskRow) -> tuple[str, ...]:
    numbers = str(row.attempts), str(row.turns), f"{row.tokens:,}", _money(row), f"{row.seconds:.1f} s"
    return row.status, row.id, *numbers, row.reason


def _money(row: TaskRow) -> str:
    return "?" if row.cost is None else f"${row.cost:.4f}"


def _sum(report: Report) -> str:
    cost = f"${report.cost:.4f}" if report.is_cost_known else f"at least ${report.cost:.4f}"
    cost = "unknown cost" if report.rows and report.is_cost_unknown else cost
    counts = ", ".join(f"{count} {status}" for status, count in report.statuses.items())
    tokens, seconds = sum(row.tokens for row in report.rows), sum(row.seconds for row in report.rows)
    turns = counted(sum(row.turns for row in report.rows), "turn")
    return (
        f"{counted(len(report.rows), 'task')}: {counts}; {cost}, {counted(tokens, 'token')}, {turns}, {seconds:.1f} s"
    )


def _named(rows: list[TaskRow]) -> str:
    more = len(rows) - _MOST_NAMES
    return ", ".join(row.id for row in rows[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _text(report: Report, folder: Path) -> str:
    rows = [_COLUMNS, *map(_cells, report.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += ["", _sum(report)]
    for reason, failed in report.failures.items():
        lines.append(f"  {len(failed)} {reason}: {_named(failed)}")
        lines += [f"      spindle --session {folder / row.session}" for row in failed[:1] if row.session]
    return "\n".join(lines) + "\n"


def _markdown(report: Report, folder: Path) -> str:
    def cell(text: str) -> str:
        for sign in ("\\", "|", "<", "[", "`", "*", "_"):
            text = text.replace(sign, f"\\{sign}")
        return text

    lines = [cell(_sum(report)), "", f"| {' | '.join(_COLUMNS)} | files |", "|---" * (len(_COLUMNS) + 1) + "|"]
    for row in report.rows:
        files = [f"[{name}](<{folder / path}>)" for name, path in _links(row)]
        lines.append(f"| {' | '.join(map(cell, _cells(row)))} | {' '.join(files)} |")
    for reason, failed in report.failures.items():
        lines += ["", f"* {len(failed)} {cell(reason)}: {cell(_named(failed))}"]
    return "\n".join(lines) + "\n"


def _html(report: Report, folder: Path) -> str:
    text = html.escape
    head = "".join(f"<th>{name}</th>" for name in (*_COLUMNS, "files"))
    body = []
    for row in report.rows:
        cells = [f"<td{' class=n' if 2 <= at <= 6 else ''}>{text(cell)}</td>" for at, cell in enumerate(_cells(row))]
        files = " ".join(f'<a href="{text(str(folder / path))}">{name}</a>' for name, path in _links(row))
        body.append(f"<tr>{''.join(cells)}<td>{files}</td></tr>")
    groups = [f"<li>{len(failed)} {text(why)}: {text(_named(failed))}</li>" for why, failed in report.failures.items()]
    return (
        f'<!doctype html>\n<meta charset="utf-8">\n<title>{text(folder.name)}</title>\n<style>{_STYLE}</style>\n'
        f"<p>{text(_sum(report))}</p>\n<ul>{''.join(groups)}</ul>\n"
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(body) + "\n</tbody></table>\n"
    )


def _csv(report: Report, folder: Path) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(TaskRow.__struct_fields__)
    for row in report.rows:
        writer.writerow([_cell(getattr(row, name)) for name in TaskRow.__struct_fields__])
    return out.getvalue()


def _cell(value: object) -> object:
    """Return a value that no spreadsheet takes for a formula: a model may have written it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value


def _links(row: TaskRow) -> list[tuple[str, str]]:
    return [(name, path) for name, path in (("session", row.session), ("patch", row.patch)) if path]


_FORMATS: dict[str, Callable[[Report, Path], str]] = {
    "text": _text,
    "markdown": _markdown,
    "html": _html,
    "csv": _csv,
}
