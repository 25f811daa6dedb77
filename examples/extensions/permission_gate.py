"""Ask before dangerous shell commands.

    spindle --mode rpc -e examples/extensions/permission_gate.py

Without a user to ask, after a minute without an answer, or if this very code fails, the command does not run.
`--gate-allow REGEX` lets matching commands through.
"""

import re

DANGEROUS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\brm\s+(?:[^;&|]*\s)?-(?:\w*[rf]|-recursive|-force)",
        r"\bsudo\b",
        r"\bmkfs\b|\bdd\s+.*\bof=",
        r"\bgit\s+push\b.*(?:--force|-f\b)",
        r"\bchmod\s+(?:-\w+\s+)*0?777\b",
        r">\s*/dev/sd",
    )
]
WAIT_S = 60


def extension(agent):
    agent.flag("gate-allow", type=str, help="Commands matching this expression need no permission")

    def is_dangerous(command):
        allowed = agent.get_flag("gate-allow")
        if allowed and re.search(allowed, command):
            return False
        return any(pattern.search(command) for pattern in DANGEROUS)

    @agent.on("tool_call", tool="bash")
    async def gate(event, ctx):
        command = str(event.input.get("command", ""))
        if not is_dangerous(command):
            return None
        if not ctx.has_ui:
            return agent.block("Dangerous command refused: nobody is there to ask.")
        if await ctx.ui.confirm("Dangerous command", command, timeout=WAIT_S):
            return None
        ctx.ui.notify("Command blocked", "warning")
        return agent.block("The user refused this command.")
