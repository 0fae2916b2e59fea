"""The central directory of a zip as one run of bytes, with what is needed to find a key in it.

An archive of many keys is common: what is held of each is its record (some 90 bytes) and where
that is, not an object.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from decant_batch.archive.container import records
from decant_batch.archive.container.base import is_metadata
from decant_batch.archive.container.records import Entry


class Directory:
    """Keys and their entries, in the order in which they were added."""

    def __init__(self) -> None:
        self._records = bytearray()
        self._places = array("q")
        self._hashes = array("q")
        self._sorted: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None

    @classmethod
    def parsed(cls, data: bytearray, count: int, end: int) -> Directory:
        """The directory whose records are ``data``, if they are such as we write, each key once.

        All of the entries lie before offset ``end``.

        Raises
        ------
        ValueError
            Where they are not.
        """
        found = cls()
        found._records = data
        place = 0
        while place < len(data):
            key, entry, after = records.parsed_central(data, place)
            if entry.offset + len(records.local_header(key, entry)) + entry.nbytes > end:
                raise ValueError(f"{key}: ends beyond the entries")
            found._index(key, place)
            place = after
        if len(found) != count:
            raise ValueError(f"{len(found)} records, not {count}")
        found.check()
        return found

    def add(self, key: str, entry: Entry) -> None:
        """One more key; that it is there only once is seen by ``check``."""
        self._index(key, len(self._records))
        self._records += records.central_record(key, entry)

    def _index(self, key: str, place: int) -> None:
        self._places.append(place)
        self._hashes.append(hash(key))
        self._sorted = None

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        """The keys, in their order."""
        return (self._at(place)[0] for place in self._places)

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

    def in_reading_order(self) -> Iterator[bytes]:
        """The records: metadata first, breadth first; then the others in their order."""
        first = sorted(
            (key.count("/"), key, place)
            for key, place in zip(self, self._places, strict=True)
            if is_metadata(key)
        )
        for _depth, _key, place in first:
            yield self._record(place)
        for key, place in zip(self, self._places, strict=True):
            if not is_metadata(key):
                yield self._record(place)

    def _by_hash(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Hashes, sorted, and the place of each key's record."""
        if self._sorted is None:
            hashes = np.array(self._hashes, np.int64)
            order = np.argsort(hashes, kind="stable")
            self._sorted = hashes[order], np.array(self._places, np.int64)[order]
        return self._sorted

    def _at(self, place: int) -> tuple[str, Entry]:
        key, entry, _end = records.parsed_central(self._records, place)
        return key, entry

    def _record(self, place: int) -> bytes:
        *_found, end = records.parsed_central(self._records, place)
        return bytes(self._records[place:end])
