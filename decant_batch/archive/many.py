"""Many small values that are held in little memory, and looked at one after the other."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")

# So many are compressed together: values of one kind differ in a few bytes.
_TOGETHER = 64


class Many(Sequence[T], Generic[T]):
    """Values in the order in which they were added, pickled and compressed a few together.

    What is read back are copies. Near ones are read at no further cost; one here, one there costs
    the run of values that it is in.
    """

    def __init__(self, values: Iterable[T] = ()) -> None:
        self._packed: list[bytes] = []
        self._last: list[T] = []
        self._unpacked: tuple[int, list[T]] = (-1, [])
        for value in values:
            self.append(value)

    def append(self, value: T) -> None:
        """Add one value."""
        self._last.append(value)
        if len(self._last) == _TOGETHER:
            self._packed.append(zlib.compress(pickle.dumps(self._last), 1))
            self._last = []

    def __len__(self) -> int:
        """How many values there are."""
        return _TOGETHER * len(self._packed) + len(self._last)

    def __iter__(self) -> Iterator[T]:
        """The values, in their order."""
        for run in range(len(self._packed)):
            yield from self._run(run)
        yield from self._last

    @overload
    def __getitem__(self, i: int) -> T: ...

    @overload
    def __getitem__(self, i: slice) -> list[T]: ...

    def __getitem__(self, i: int | slice) -> T | list[T]:
        """The i-th value."""
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        run, place = divmod(i % len(self), _TOGETHER)
        if run == len(self._packed):
            return self._last[place]
        known, values = self._unpacked
        if known != run:
            values = self._run(run)
            self._unpacked = run, values  # at once: other threads look here too
        return values[place]

    def _run(self, run: int) -> list[T]:
        # These bytes are our own, of this process or of the driver that sent us the job.
        values: list[T] = pickle.loads(zlib.decompress(self._packed[run]))  # noqa: S301
        return values
