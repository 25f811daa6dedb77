"""A tool with typed parameters, progress and structured details.

    spindle -e examples/extensions/count_lines.py -p "Which Python files are the longest?"

The model learns its name, description and parameters from the function below.
"""

from typing import Annotated

PROGRESS_EVERY = 100


def extension(agent):
    @agent.tool(snippet="Count the lines of files that match a glob")
    def count_lines(
        pattern: Annotated[str, "Glob relative to the working directory, e.g. src/**/*.py"],
        limit: Annotated[int, "How many files to report"] = 20,
        *,
        ctx,
        update,
    ):
        """Count lines of text files and report the longest ones first."""
        # A plain function runs in a thread of its own, so it may take its time; it only has to look up now and then.
        rows = []
        for path in ctx.cwd.glob(pattern):
            ctx.raise_if_aborted()
            if not path.is_file():
                continue
            with path.open("rb") as file:
                rows.append((sum(1 for _ in file), path.relative_to(ctx.cwd).as_posix()))
            if len(rows) % PROGRESS_EVERY == 1:
                update(f"{len(rows)} files so far, at {rows[-1][1]}")
        if not rows:
            raise agent.ToolError(f"No file matches {pattern}")
        rows.sort(reverse=True)
        text = "\n".join(f"{lines:>8} {name}" for lines, name in rows[:limit])
        return agent.result(text, details={"files": len(rows), "lines": sum(lines for lines, _ in rows)})
