"""Measure the agent beside others.

__main__.py        `make bench`: beside pi from npm, or beside another state of this repository; writes a page
scenarios.py       what is measured beside pi
states.py          what is measured beside another state, both agents at once
peers.py           the agents that are measured, and how they are installed
measured_agent.py  a running agent: its output, its times, its CPU and memory
fast_model.py      the model server that all agents talk to
batch.py           many tasks in one process, beside shell loops
many.py            many sessions in one process
codex.py           our sessions beside the threads of codex app-server
sessions.py        the session library alone, beside pi's
web_page.py        the chat page in Chromium, beside a bare page
"""
