"""Parts of a page that programs write: all between `<!-- name -->` and `<!-- /name -->`; people write the rest."""

import re


def put(page: str, name: str, text: str) -> str:
    """Return the page with `text` as its part `name`; a page without such a part raises `LookupError`."""
    mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not mark.search(page):
        raise LookupError(f"The page has no part {name!r}")
    return mark.sub(lambda match: f"{match[1]}{text.rstrip()}\n{match[2]}", page)
