"""Test doubles for programs that use Spindle, the same ones our own tests use.

    from spindle.testing import Call, Pause, Script

    script = Script([
        {"text": "Let me look.", "calls": [{"name": "bash", "arguments": {"command": "ls"}}]},
        {"text": ["There is ", Pause(gate="go"), "one file."]},
    ])
    model = script.model()              # give this to an agent
    await script.reached("go")          # the answer has come to the gate
    script.release("go")
    script.requests[0].messages         # what the model was sent

The keys of a step are explained in `spindle.llm.scripted`. `load` drives an extension without any model:

    agent = await load(extension)
    assert (await agent.tool_call("bash", command="rm -rf /")).blocked

More about it in `spindle.extensions.testing`.
"""

from spindle.extensions.testing import LoadedExtension, ToolCallOutcome, load
from spindle.llm.scripted import Call, Pause, Script, ScriptError, Step, load_script

__all__ = [
    "Call",
    "LoadedExtension",
    "Pause",
    "Script",
    "ScriptError",
    "Step",
    "ToolCallOutcome",
    "load",
    "load_script",
]
