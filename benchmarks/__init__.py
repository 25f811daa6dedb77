"""Measure the agent beside others.

__main__.py        `make bench`: beside pi from npm, or beside another state of this repository; writes a page
scenarios.py       what is measured beside pi
states.py          what is measured beside another state, both agents at once
peers.py           who is measured, and how they are installed
measured_agent.py  a running agent: what it writes, how long that takes, what it uses
fast_model.py      the model server they all talk to
sessions.py        the session library alone, beside pi's
web_page.py        the chat page in Chromium, beside a bare page
"""
