"""Events of a model API as values of a declared shape.

Every piece of an answer passes through here, so the common form is read by one typed decoder; an event that is not
quite what it should be (a number as text, a broken escape) is read again, slowly and leniently.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from spindle.llm.errors import BadEventError
from spindle.shapes.codec import DecodeError, decode

__all__ = ["event_decoder"]

T = TypeVar("T")


def event_decoder(shape: type[T], loosely: Callable[[object], T] | None = None) -> Callable[[bytes], T]:
    """Return a function that reads one event. It raises `BadEventError`.

    `loosely` makes the best of a value that does not fit the shape, raising `DecodeError` if it cannot.
    """
    strictly = msgspec.json.Decoder(shape).decode

    def convert(value: object) -> T:
        return msgspec.convert(value, shape, strict=False)

    mend = loosely or convert

    def read(data: bytes) -> T:
        try:
            return strictly(data)
        except (DecodeError, UnicodeError):
            try:
                return mend(decode(data))
            except DecodeError:
                raise BadEventError(data) from None

    return read
