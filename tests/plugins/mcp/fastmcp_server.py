"""A server made with FastMCP. Its first argument is the transport: stdio, sse or http; the second the port."""

import sys
from typing import Any, Literal

import mcp_types
from fastmcp import Context, FastMCP
from pydantic import BaseModel, Field

app = FastMCP("shop")


class Order(BaseModel):
    name: str = Field(min_length=2)
    count: int = Field(ge=1, le=9)
    size: Literal["small", "large"]


@app.tool
def add(a: int, b: int) -> int:
    return a + b


@app.tool
async def order(ctx: Context) -> str:
    """Ask as servers of the handshake do: with a request of its own."""
    answer: Any = await ctx.elicit("What shall it be?", response_type=Order)
    return f"{answer.action} {answer.data.model_dump_json()}"


@app.tool
async def toppings(ctx: Context) -> str:
    answer: Any = await ctx.elicit("Which?", response_type=[["cheese", "ham", "olives"]])
    return f"{answer.action} {answer.data}"


@app.tool
async def order_again(ctx: Context) -> Any:
    """Ask as stateless servers do: with a result that is not complete."""
    if ctx.input_responses is None:
        schema = Order.model_json_schema()
        params = mcp_types.ElicitRequestFormParams(message="What shall it be?", requested_schema=schema)
        return mcp_types.InputRequiredResult(input_requests={"order": mcp_types.ElicitRequest(params=params)})
    given: Any = ctx.input_responses["order"]
    return f"{given.action} {Order(**given.content).model_dump_json()}"


@app.tool
def fails() -> str:
    raise ValueError("kaput")


if __name__ == "__main__":
    place = {} if sys.argv[1] == "stdio" else {"host": "127.0.0.1", "port": int(sys.argv[2])}
    app.run(transport=sys.argv[1], show_banner=False, **place)  # type: ignore[arg-type]
