"""Many short texts that are held in little memory, and read back one at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import overload

# So many lines are compressed together: records of one kind differ in a few bytes.
_TOGETHER = 64


class Lines(Sequence[bytes]):
    """Texts in the order in which they were added, compressed a few together."""

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._last: list[bytes] = []
        self._unpacked: tuple[int, list[bytes]] = (-1, [])

    def append(self, line: bytes) -> None:
        """Add one text, which has no line end in it."""
        if b"\n" in line:
            raise ValueError(f"{line[:40]!r} is more than one line")
        self._last.append(line)
        if len(self._last) == _TOGETHER:
            self._packed.append(zlib.compress(b"\n".join(self._last), 1))
            self._last = []

    def __len__(self) -> int:
        """How many texts there are."""
        return _TOGETHER * len(self._packed) + len(self._last)

    def __iter__(self) -> Iterator[bytes]:
        """The texts, in their order."""
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, i: int) -> bytes: ...

    @overload
    def __getitem__(self, i: slice) -> list[bytes]: ...

    def __getitem__(self, i: int | slice) -> bytes | list[bytes]:
        """The i-th text; near ones are read at no further cost."""
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        run, place = divmod(i % len(self), _TOGETHER)
        if run == len(self._packed):
            return self._last[place]
        if self._unpacked[0] != run:
            self._unpacked = run, zlib.decompress(self._packed[run]).split(b"\n")
        return self._unpacked[1][place]
