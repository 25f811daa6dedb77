"""Use a model that no catalogue knows: a server of your own, or a function of this program.

python examples/python/own_model.py http://127.0.0.1:8000/v1 qwen3       # any server with OpenAI's chat completions
python examples/python/own_model.py                                      # the function below
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import spindle


async def parrot(model: Any, request: Any, options: Any) -> AsyncIterator[str]:
    """Answer with the last message, word by word. A real one would ask a library for the model's next words."""
    last = request.messages[-1].content
    text = last if isinstance(last, str) else last[0].text
    for word in text.split():
        yield f"{word} "


def parrots(agent: Any) -> None:
    """An extension that adds the function as the model `birds/parrot`."""
    size = {"contextWindow": 8000, "maxTokens": 1000}
    agent.provider(
        "birds", api="birds", base_url="none", api_key="none", stream=parrot, models=[{"id": "parrot", **size}]
    )


async def main(address: str | None = None, name: str = "") -> None:
    if address is None:
        run = spindle.run("Polly wants a cracker.", model="birds/parrot", extensions=[parrots], hermetic=True)
    else:
        run = spindle.run("Who are you?", model=name, base_url=address, hermetic=True)
    async for event in run:
        print(event.text_delta, end="", flush=True)
    result = await run.result()
    print(f"\n{result.status}, {result.tokens.output} tokens")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
