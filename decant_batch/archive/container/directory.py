"""The central directory of a zip of our form, with what is needed to find a key in it.

An archive of many keys is common. What is held of each is a hash and the place of its record, 16
bytes; the records themselves are bytes (some 90 each) while a zip is written, and stay in the file
when it is read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from decant_batch.archive.container import records
from decant_batch.archive.container.base import is_metadata
from decant_batch.archive.container.records import Entry

# Records are read in pieces: of the whole directory, and of one record whose length is not known.
_BLOCK_NBYTES = 256 << 10
_USUAL_NBYTES = 256


class Directory(ABC):
    """Keys and their entries; a record's place is its offset from the directory's start."""

    def __init__(self) -> None:
        self._places = array("q")
        self._hashes = array("q")
        self._sorted: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None

    @abstractmethod
    def _at(self, place: int) -> tuple[str, Entry]:
        """The key and the entry of the record at ``place``."""

    @abstractmethod
    def __iter__(self) -> Iterator[str]:
        """The keys, in their order."""

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._places)

    def find(self, key: str) -> Entry:
        """Entry of ``key``. Raises KeyError where there is none."""
        hashes, places = self._by_hash()
        wanted = hash(key)
        i = int(np.searchsorted(hashes, wanted))
        while i < len(hashes) and hashes[i] == wanted:
            found, entry = self._at(int(places[i]))
            if found == key:
                return entry
            i += 1
        raise KeyError(key)

    def check(self) -> None:
        """Raise ValueError where a key is there twice."""
        hashes, places = self._by_hash()
        for i in np.flatnonzero(hashes[1:] == hashes[:-1]):
            # Keys of one hash stand together: two that are equal need not be neighbours.
            alike = [self._at(int(place))[0] for place in places[hashes == hashes[i]]]
            if len(set(alike)) != len(alike):
                raise ValueError(f"{alike[0]}: written before; a container takes each key once")

    def _index(self, key: str, place: int) -> None:
        self._places.append(place)
        self._hashes.append(hash(key))
        self._sorted = None

    def _by_hash(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Hashes, sorted, and the place of each key's record."""
        if self._sorted is None:
            hashes = np.frombuffer(self._hashes, np.int64)
            order = np.argsort(hashes, kind="stable")
            self._sorted = hashes[order], np.frombuffer(self._places, np.int64)[order]
        return self._sorted


class NewDirectory(Directory):
    """The directory of a zip that is being written; keys in the order in which they were added."""

    def __init__(self) -> None:
        super().__init__()
        self._records = bytearray()

    def __iter__(self) -> Iterator[str]:
        """The keys, in their order."""
        return (self._at(place)[0] for place in self._places)

    def add(self, key: str, entry: Entry) -> None:
        """One more key; that it is there only once is seen by ``check``."""
        self._index(key, len(self._records))
        self._records += records.central_record(key, entry)

    def in_reading_order(self) -> Iterator[bytes]:
        """The records: metadata first, breadth first; then the others in their order."""
        first = sorted(filter(is_metadata, self))
        first.sort(key=lambda key: key.count("/"))
        for key in first:
            yield records.central_record(key, self.find(key))
        for key, place in zip(self, self._places, strict=True):
            if not is_metadata(key):
                yield records.central_record(key, self._at(place)[1])

    def _at(self, place: int) -> tuple[str, Entry]:
        key, entry, _end = records.parsed_central(self._records, place)
        return key, entry


class StoredDirectory(Directory):
    """The directory of a zip as it stands in the file; keys in its order.

    ``read`` gives bytes of it by place and number, fewer at its end; all entries lie before offset
    ``end`` of the file.

    Raises
    ------
    ValueError
        Where the ``nbytes`` are not ``count`` records such as we write, each of another key. Later,
        too, where they are not what they were.
    """

    def __init__(
        self, read: Callable[[int, int], bytes], *, nbytes: int, count: int, end: int
    ) -> None:
        super().__init__()
        self._read, self._nbytes = read, nbytes
        for place, key, entry in self._records():
            if entry.offset + len(records.local_header(key, entry)) + entry.nbytes > end:
                raise ValueError(f"{key}: ends beyond the entries")
            self._index(key, place)
        if len(self) != count:
            raise ValueError(f"{len(self)} records, not {count}")
        self.check()

    def __iter__(self) -> Iterator[str]:
        """The keys, in their order."""
        return (key for _place, key, _entry in self._records())

    def _records(self) -> Iterator[tuple[int, str, Entry]]:
        """Each record's place, key and entry, read block by block."""
        start = 0
        while start < self._nbytes:
            block = self._read(start, _BLOCK_NBYTES)
            place = 0
            while place < len(block):
                try:
                    key, entry, after = records.parsed_central(block, place)
                except ValueError:
                    if place == 0 or start + len(block) >= self._nbytes:
                        raise
                    break  # perhaps cut by the block's end: the next one begins with it
                yield start + place, key, entry
                place = after
            if not place:
                raise ValueError("the directory is cut short")
            start += place

    def _at(self, place: int) -> tuple[str, Entry]:
        try:
            key, entry, _end = records.parsed_central(self._read(place, _USUAL_NBYTES), 0)
        except ValueError:
            key, entry, _end = records.parsed_central(self._read(place, _BLOCK_NBYTES), 0)
        return key, entry
