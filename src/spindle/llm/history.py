"""The history on its way to a model.

Every role becomes one of the three that model APIs know (`to_model_messages`). Then each API cleans the history for its
model (`transform_request`), because it may come from other models and from failed answers; cleaning twice gives the
same as cleaning once. How many tokens a message takes is estimated by its length (`estimate_tokens`).
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import is_
from typing import Any

from msgspec.structs import replace

from spindle.llm.stream import ModelMessage, Request
from spindle.shapes.codec import encode
from spindle.shapes.messages import (
    AgentMessage,
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    blocks_of,
)
from spindle.shapes.model import Model

COMPACTION_INTRO = "Earlier parts of this conversation were condensed. This summary stands in for them:"
BRANCH_INTRO = "The conversation went down another branch and came back to this point. Summary of that branch:"
IMAGES_OFF = "Image reading is disabled."
_MODEL_ROLES = (UserMessage, AssistantMessage, ToolResultMessage)
NO_RESULT = "No result provided"
USER_IMAGE = "(image omitted: model does not support images)"
TOOL_IMAGE = "(tool image omitted: model does not support images)"
# Longest tool call id by API, 64 for the others; other models' ids are rewritten to fit.
_ID_LIMITS = {"openai-completions": 40}
IMAGE_CHARACTERS = 4800
"""Characters that an image counts for in an estimate."""


def to_model_messages(messages: Iterable[AgentMessage]) -> list[ModelMessage]:
    """Return the messages of a history that a model gets; messages not meant for it are left out."""
    # Most messages need no conversion, and long histories are converted for every model call.
    converted = [
        (message if isinstance(message, _MODEL_ROLES) else _convert(message))
        if type(message) is not UserMessage or not message.attachments
        else _with_attachments(message, message.attachments)
        for message in messages
    ]
    return [message for message in converted if message is not None]


def _with_attachments(message: UserMessage, attachments: list[Any]) -> UserMessage:
    """Append attached images, and the text of other attached files, to the user's message."""
    content = [*blocks_of(message.content)]
    for item in attachments:
        match item:
            case {"extractedText": str(text)} if text:
                content.append(Text(f"[Attached file: {item.get('fileName') or 'unnamed'}]\n{text}"))
            case {"type": "image", "content": str(data), "mimeType": str(kind)} if data:
                content.append(Image(data, kind))
    return UserMessage(content, message.timestamp)


def without_images(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Return a history in which a text stands in the place of every run of images."""
    return [
        message
        if isinstance(message, AssistantMessage) or isinstance(message.content, str)
        else replace(message, content=_name_images(message.content, IMAGES_OFF))
        for message in messages
    ]


def _convert(message: AgentMessage) -> ModelMessage | None:
    content: str | list[Text | Image]
    match message:
        case BashExecutionMessage(exclude_from_context=False):
            content = bash_text(message)
        case CustomMessage():
            content = message.content
        case CompactionSummaryMessage():
            content = f"{COMPACTION_INTRO}\n\n<summary>\n{message.summary}\n</summary>"
        case BranchSummaryMessage():
            content = f"{BRANCH_INTRO}\n\n<summary>\n{message.summary}</summary>"
        case _:
            return None
    return UserMessage(blocks_of(content), message.timestamp or 0)


def bash_text(message: BashExecutionMessage) -> str:
    """Return a shell command of the user and its outcome as text for the model."""
    text = f"Ran `{message.command}`\n"
    text += f"```\n{message.output}\n```" if message.output else "(no output)"
    if message.cancelled:
        text += "\n\n(command cancelled)"
    elif message.exit_code:
        text += f"\n\nCommand exited with code {message.exit_code}"
    if message.truncated and message.full_output_path:
        text += f"\n\n[Output truncated. Full output: {message.full_output_path}]"
    return text


# -- cleaning --------------------------------------------------------------------------------------


def transform_request(request: Request, model: Model) -> Request:
    """Return the request with its history as `model` can take it."""

    def clean(part: Sequence[ModelMessage], _: int) -> list[ModelMessage]:
        return transform_messages(part, model)

    messages = request.memory.parts("clean", request.messages, clean, model)
    return replace(request, system_prompt=clean_text(request.system_prompt), messages=messages)


def transform_messages(messages: Iterable[ModelMessage], model: Model) -> list[ModelMessage]:
    """Return the history as `model` can take it.

    Failed answers are left out, calls without a result get one, thinking and signatures of other models become plain
    text, images are named instead of shown to models that cannot see, lone surrogates vanish.
    """
    sees = "image" in model.input
    new_ids: dict[str, str] = {}
    cleaned: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, UserMessage):
            content = _clean_content(message.content, None if sees else USER_IMAGE)
            cleaned.append(message if content is message.content else replace(message, content=content))
        elif isinstance(message, ToolResultMessage):
            content = _clean_content(message.content, None if sees else TOOL_IMAGE)
            id = new_ids.get(message.tool_call_id, message.tool_call_id)
            is_same = content is message.content and id is message.tool_call_id
            cleaned.append(message if is_same else replace(message, content=content, tool_call_id=id))
        elif message.stop_reason not in ("error", "aborted"):
            cleaned.append(_clean_answer(message, model, new_ids))
    return _with_missing_results(cleaned)


def _clean_answer(message: AssistantMessage, model: Model, new_ids: dict[str, str]) -> AssistantMessage:
    same = (message.provider, message.api, message.model) == (model.provider, model.api, model.id)
    if same and _is_ascii_text(message.content):
        return message
    clean: Callable[[Any], Any] = _own_block if same else _foreign_block
    content = [block for old in message.content if (block := clean(old)) is not None]
    if same:
        return message if _all_same(content, message.content) else replace(message, content=content)
    for index, block in enumerate(content):
        if isinstance(block, ToolCall):
            new_ids[block.id] = _fitting_id(block.id, _ID_LIMITS.get(model.api, 64))
            content[index] = replace(block, id=new_ids[block.id])
    return replace(message, content=content)


def _is_ascii_text(content: Sequence[object]) -> bool:
    """Say whether there is nothing to clean, as in most messages: a long history is cleaned for every model call."""
    for block in content:  # noqa: SIM110
        if type(block) is not Text or not block.text.isascii():
            return False
    return True


def _all_same(new: Sequence[object], old: Sequence[object]) -> bool:
    """Say whether two sequences hold the very same objects."""
    return len(new) == len(old) and all(map(is_, new, old))


def _own_block(block: Text | Thinking | ToolCall) -> Text | Thinking | ToolCall | None:
    if isinstance(block, Text):
        return _clean_block(block)
    if isinstance(block, ToolCall):
        arguments = clean_value(block.arguments)
        return block if arguments is block.arguments else replace(block, arguments=arguments)
    if block.thinking_signature:
        return block  # the signature covers the text: neither may change
    text = clean_text(block.thinking)
    if not text.strip():
        return None
    return block if text is block.thinking else replace(block, thinking=text)


def _foreign_block(block: Text | Thinking | ToolCall) -> Text | ToolCall | None:
    if isinstance(block, Text):
        return Text(clean_text(block.text))
    if isinstance(block, ToolCall):
        return ToolCall(block.id, block.name, clean_value(block.arguments))
    if block.redacted or not block.thinking.strip():
        return None
    return Text(clean_text(block.thinking))


def _fitting_id(id: str, limit: int) -> str:
    """Return an id of letters, digits, `_` and `-` within the limit, distinct for distinct ids."""
    if len(id) <= limit and re.fullmatch(r"[A-Za-z0-9_-]+", id):
        return id
    from hashlib import blake2s

    digest = blake2s(id.encode("utf-8", "replace"), digest_size=6).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_-]', '_', id)[: limit - len(digest) - 1]}_{digest}"


def _clean_block(block: Text) -> Text:
    text = clean_text(block.text)
    return block if text is block.text else replace(block, text=text)


def _clean_content(content: str | list[Text | Image], image_text: str | None) -> str | list[Text | Image]:
    if isinstance(content, str):
        return clean_text(content)
    if _is_ascii_text(content):
        return content
    cleaned = [_clean_block(block) if isinstance(block, Text) else block for block in content]
    if image_text is not None:
        cleaned = _name_images(cleaned, image_text)
    return content if _all_same(cleaned, content) else cleaned


def _name_images(content: list[Text | Image], name: str) -> list[Text | Image]:
    """Return the content with one text in the place of every run of images."""
    named: list[Text | Image] = []
    for block in content:
        if isinstance(block, Text):
            named.append(block)
        elif not (named and isinstance(named[-1], Text) and named[-1].text == name):
            named.append(Text(name))
    return named


def _with_missing_results(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Put a result behind every call that has none before the next turn: servers refuse such histories."""
    complete: list[ModelMessage] = []
    waiting: dict[str, str] = {}

    def fill_in() -> None:
        now = int(time.time() * 1000)
        complete.extend(
            ToolResultMessage(tool_call_id=id, tool_name=name, content=[Text(NO_RESULT)], is_error=True, timestamp=now)
            for id, name in waiting.items()
        )
        waiting.clear()

    for message in messages:
        if isinstance(message, ToolResultMessage):
            waiting.pop(message.tool_call_id, None)
        else:
            if waiting:
                fill_in()
            if isinstance(message, AssistantMessage):
                for block in message.content:
                    if isinstance(block, ToolCall):
                        waiting[block.id] = block.name
        complete.append(message)
    fill_in()
    return complete


def goes_on_for_another(history: Sequence[ModelMessage], model: Model) -> bool:
    """Say whether another model has made calls in the turn that goes on, so that its thinking is not there any more.

    Claude refuses to think in such a turn, unless it decides by itself when to think.
    """
    for message in reversed(history):
        if isinstance(message, UserMessage):
            return False
        if isinstance(message, AssistantMessage) and (message.provider, message.model) != (model.provider, model.id):
            return True
    return False


def with_results_together(messages: Iterable[ModelMessage]) -> Iterator[ModelMessage | list[ToolResultMessage]]:
    """Give the messages one by one, but the results that follow an answer as one list: some APIs want them so."""
    results: list[ToolResultMessage] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            results.append(message)
            continue
        if results:
            yield results
            results = []
        yield message
    if results:
        yield results


def clean_text(text: str) -> str:
    """Return `text` without lone surrogates; halves that stand side by side become the character they mean."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    return text


def clean_value(value: Any) -> Any:
    """Clean every text in a JSON value; the value itself is returned if there is nothing to do."""
    if isinstance(value, dict) and all(map(_is_plain, value, value.values())):
        return value  # most arguments of tools are plain
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        items = [clean_value(item) for item in value]
        return value if _all_same(items, value) else items
    if isinstance(value, dict):
        members = {clean_text(key): clean_value(item) for key, item in value.items()}
        unchanged = all(key in value and members[key] is value[key] for key in members)
        return value if unchanged and len(members) == len(value) else members
    return value


def _is_plain(key: str, value: object) -> bool:
    return key.isascii() and (value.isascii() if isinstance(value, str) else not isinstance(value, list | dict))


# -- tokens ----------------------------------------------------------------------------------------


def estimate_tokens(message: AgentMessage) -> int:
    """Estimate one message by its length."""
    if isinstance(message, _MODEL_ROLES):  # a long history is measured for every model call
        if type(message) is UserMessage and message.attachments:
            message = _with_attachments(message, message.attachments)
        content = message.content
        if isinstance(content, str):
            return -(-_length(content) // 4)
        characters = 0
        for block in content:
            if type(block) is Text and block.text.isascii():
                characters += len(block.text)
            else:
                characters += _block_length(block)
        return -(-characters // 4)
    match message:
        case CustomMessage(content=str(text)):
            characters = _length(text)
        case CustomMessage():
            characters = sum(map(_block_length, message.content))
        case BashExecutionMessage():
            characters = _length(message.command) + _length(message.output)
        case BranchSummaryMessage() | CompactionSummaryMessage():
            characters = _length(message.summary)
        case _:
            characters = 0
    return -(-characters // 4)


def _block_length(block: object) -> int:
    if isinstance(block, Text):
        return _length(block.text)
    if isinstance(block, Thinking):
        return _length(block.thinking)
    if isinstance(block, ToolCall):
        arguments = encode(block.arguments)
        return _length(block.name) + (len(arguments) if arguments.isascii() else _length(arguments.decode()))
    return IMAGE_CHARACTERS if isinstance(block, Image) else 0


def _length(text: str) -> int:
    """Count UTF-16 units, as other programs that read the session file do."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def estimate_context(messages: Sequence[AgentMessage]) -> int:
    """Estimate the tokens of a conversation: the last reported usage plus the length of later messages."""
    later = 0
    for message in reversed(messages):
        if isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
            used = message.usage.context
            if used:
                return used + later
        later += estimate_tokens(message)
    return later
