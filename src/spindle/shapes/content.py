"""Blocks that messages are made of."""

from typing import Any

import msgspec

__all__ = ["Image", "Text", "Thinking", "ToolCall", "Wire", "text_of"]


class Wire(msgspec.Struct, rename="camel", omit_defaults=True):
    """Base of all shapes: camelCase keys; a field equal to its default is left out.

    A key that must always be written therefore has no default. `gc=False` below: a long context is hundreds of
    thousands of these values, none of which refers back, so the garbage collector need not walk them.
    """


class Block(Wire, gc=False, tag_field="type"):
    """Base of what messages are made of."""

    @property
    def type(self) -> str:
        return str(type(self).__struct_config__.tag)


class Text(Block, tag="text"):
    text: str
    text_signature: str | None = None
    """Opaque provider data that must come back with the block."""


class Image(Block, tag="image"):
    data: str
    """Base64."""
    mime_type: str


class Thinking(Block, tag="thinking"):
    thinking: str
    thinking_signature: str | None = None
    """Anthropic: the signature. OpenAI-style servers: the name of the field it came in."""
    redacted: bool = False


class ToolCall(Block, gc=True, tag="toolCall"):
    id: str
    name: str
    arguments: Any
    """Usually an object; whatever JSON value the model wrote."""
    thought_signature: str | None = None


def text_of(content: str | list[Any], separator: str = "") -> str:
    """Return the text blocks of a message's content, joined."""
    if isinstance(content, str):
        return content
    return separator.join(block.text for block in content if isinstance(block, Text))
