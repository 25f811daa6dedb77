"""Spindle in process: an agent as an object of a Python program.

from spindle import Agent

async with Agent.create(cwd="project", model="anthropic/claude-sonnet-4-5") as agent:
    async for event in agent.run("What is in this directory?"):
        print(event.text_delta, end="")
"""

from spindle.inprocess.agent import Agent
from spindle.inprocess.alone import ask, run
from spindle.inprocess.opening import Opening
from spindle.inprocess.options import CreateOptions, Limits, OpenOptions

__all__ = ["Agent", "CreateOptions", "Limits", "OpenOptions", "Opening", "ask", "run"]
