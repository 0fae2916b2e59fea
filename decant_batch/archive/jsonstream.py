"""JSON whose long lists are read element by element, with ijson: never the whole as objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import ijson
from ijson.common import ObjectBuilder

# ijson makes all events of a block before it gives the first: some thirty times its bytes.
_BLOCK_NBYTES = 16 << 10
_OPENS = ("start_map", "start_array", "map_key")


def outline(parts: Iterable[bytes], key: str, take: Callable[[Any], None]) -> Any:  # noqa: ANN401 - JSON
    """The document without the elements of its list ``key``, each of which ``take`` is given.

    Raises
    ------
    ValueError
        Where the parts are no JSON; elements before that were given.
    """
    document, element, prefix = ObjectBuilder(), ObjectBuilder(), f"{key}.item"
    try:
        for where, event, value in ijson.parse(ijson.from_iter(_small(parts))):
            if where != prefix and not where.startswith(f"{prefix}."):
                document.event(event, value)
                continue
            element.event(event, value)
            if where == prefix and event not in _OPENS:
                take(element.value)
                element = ObjectBuilder()
    except ijson.JSONError as error:
        raise ValueError(_plainly(error)) from error
    return document.value


def elements(parts: Iterable[bytes]) -> Iterator[Any]:
    """The elements of a document that is a list; none of one that is something else.

    Raises
    ------
    ValueError
        Where the parts are no JSON, after the elements before that.
    """
    try:
        yield from ijson.items(ijson.from_iter(_small(parts)), "item")
    except ijson.JSONError as error:
        raise ValueError(_plainly(error)) from error


def _small(parts: Iterable[bytes]) -> Iterator[bytes]:
    for part in parts:
        for start in range(0, len(part), _BLOCK_NBYTES):
            yield part[start : start + _BLOCK_NBYTES]


def _plainly(error: ijson.JSONError) -> str:
    """The first line of what ijson says, which may be text or its bytes."""
    said = error.args[0] if error.args else ""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return text.split("\n", maxsplit=1)[0].strip() or "no JSON"
