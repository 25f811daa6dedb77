"""Small text helpers: how numbers look in messages, and text that can always be encoded."""

__all__ = ["format_number", "format_size", "utf8_length", "well_formed"]


def format_number(value: int | float) -> str:
    """Write a number the way JSON clients do: no `.0`, short exponents."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        value = int(value)
    text = repr(value)
    mantissa, exponent_sign, exponent = text.partition("e")
    return f"{mantissa}e{exponent[0]}{exponent[1:].lstrip('0')}" if exponent_sign else text


def format_size(count: int) -> str:
    """Write a number of bytes for people: `512B`, `50.0KB`, `1.5MB`."""
    if count < 1024:
        return f"{count}B"
    if count < 1024 * 1024:
        return f"{count / 1024:.1f}KB"
    return f"{count / (1024 * 1024):.1f}MB"


def utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def well_formed(text: str) -> str:
    """Replace lone surrogates, which JSON can carry but UTF-8 cannot, by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
