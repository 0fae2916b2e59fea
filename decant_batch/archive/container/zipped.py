"""Zips of the one form that we write: deterministic, STORED, ZIP64, each name once."""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from abc import ABC
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from decant_batch.archive.container import records
from decant_batch.archive.container.base import Container
from decant_batch.archive.container.directory import NewDirectory, StoredDirectory
from decant_batch.archive.container.records import Entry
from decant_batch.archive.model import ContainerKind
from decant_batch.archive.pagecache import Trail, forget_file
from decant_batch.errors import ArchiveDamaged

_BLOCK_NBYTES = 256 << 10


class ZipWriter(Container):
    """A zip being written: deterministic, STORED, ZIP64, each name once."""

    kind: ContainerKind = "zip"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] = path.open("xb")
        self._directory = NewDirectory()
        self._offset = 0
        self._trail = Trail(self._file.fileno())

    def get(self, key: str) -> bytes:
        """Value of a key written before."""
        return b"".join(self.get_parts(key))

    def get_parts(self, key: str) -> Iterator[bytes]:
        """Value of a key written before, as one part."""
        entry = self._directory.find(key)
        self._file.flush()
        with self.path.open("rb") as file:
            file.seek(entry.offset + len(records.local_header(key, entry)))
            yield file.read(entry.nbytes)

    def set(self, key: str, value: bytes | memoryview) -> None:
        """Append ``value`` as the entry ``key``."""
        entry = Entry(crc=zlib.crc32(value), nbytes=len(value), offset=self._offset)
        self._write(records.local_header(key, entry))
        self._write(value)
        self._directory.add(key, entry)

    def set_parts(self, key: str, parts: Iterable[bytes]) -> None:
        """Append the entry ``key``; its header, which tells length and CRC, is written last."""
        offset, crc, nbytes = self._offset, 0, 0
        self._write(records.local_header(key, Entry(crc=0, nbytes=0, offset=offset)))
        for part in parts:
            crc, nbytes = zlib.crc32(part, crc), nbytes + len(part)
            self._write(part)
        entry = Entry(crc=crc, nbytes=nbytes, offset=offset)
        self._directory.add(key, entry)
        self._file.seek(offset)
        self._file.write(records.local_header(key, entry))
        self._file.seek(0, os.SEEK_END)

    def list(self) -> Sequence[str]:
        """Keys written so far."""
        return tuple(self._directory)

    def close(self) -> None:
        """Write the central directory, bring the file to stable storage, close it."""
        if self._file.closed:
            return
        self._directory.check()
        start = self._offset
        for record in self._directory.in_reading_order():
            self._write(record)
        self._write(records.end_records(len(self._directory), start, self._offset - start))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def discard(self) -> None:
        """Close and remove the unfinished file."""
        with contextlib.suppress(OSError):  # closing flushes, and a full disk refuses that too
            self._file.close()
        self.path.unlink(missing_ok=True)

    def drop_cache(self) -> None:
        """Forget the file's cached pages."""
        forget_file(self.path)

    def nbytes(self) -> int:
        """Bytes written so far."""
        return self._offset

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._offset += len(data)
        self._trail.passed(len(data))


class ReadZip(Container, ABC):
    """A zip opened for reading: it is never changed."""

    kind: ContainerKind = "zip"

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self._file = file
        self._trail = Trail(file.fileno())
        self._lock = threading.Lock()

    def set(self, key: str, value: bytes | memoryview) -> None:
        """Refuse: an archive is never changed."""
        raise ValueError(f"{self.path}: open for reading; {key} cannot be written")

    def set_parts(self, key: str, parts: Iterable[bytes]) -> None:
        """Refuse: an archive is never changed."""
        del parts
        self.set(key, b"")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    discard = close

    def drop_cache(self) -> None:
        """Forget the file's cached pages."""
        forget_file(self.path)

    def nbytes(self) -> int:
        """Size of the file."""
        return self.path.stat().st_size


class ZipReader(ReadZip):
    """A zip of our own form, opened for reading."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        super().__init__(path, file)
        size = file.seek(0, os.SEEK_END)
        place = max(0, size - records.END_NBYTES)
        count, start, nbytes = records.parsed_end(self._read(place, records.END_NBYTES))
        if start + nbytes != place:
            raise ValueError(f"{size - start - nbytes} bytes behind the directory")
        self._directory = StoredDirectory(
            lambda at, most: self._read(start + at, min(most, nbytes - at)),
            nbytes=nbytes,
            count=count,
            end=start,
        )

    @classmethod
    def opened(cls, path: Path) -> ZipReader | None:
        """The zip at ``path``; None where it is not of our form, bit for bit."""
        with contextlib.ExitStack() as stack, contextlib.suppress(ValueError):
            found = cls(path, stack.enter_context(path.open("rb")))
            stack.pop_all()
            return found
        return None

    def get(self, key: str) -> bytes:
        """Value of ``key``, its CRC checked."""
        entry, place = self._entry(key)
        value = self._read(place, entry.nbytes)
        self._check(key, entry, zlib.crc32(value))
        self._trail.passed(len(value), entry.offset)
        return value

    def get_parts(self, key: str) -> Iterator[bytes]:
        """Value of ``key`` in blocks; its CRC is checked after the last."""
        entry, place = self._entry(key)
        crc, end = 0, place + entry.nbytes
        while place < end:
            block = self._read(place, min(_BLOCK_NBYTES, end - place))
            if not block:
                break  # the file became shorter: its CRC tells
            crc, place = zlib.crc32(block, crc), place + len(block)
            yield block
        self._check(key, entry, crc)

    def list(self) -> Sequence[str]:
        """Keys in the order of the central directory."""
        return tuple(self._directory)

    def _entry(self, key: str) -> tuple[Entry, int]:
        """The entry of ``key``, and the offset of its data."""
        try:
            entry = self._directory.find(key)
        except ValueError as error:  # it is not what it was when it was opened
            raise self._damaged(key) from error
        header = records.local_header(key, entry)
        if self._read(entry.offset, len(header)) != header:
            raise self._damaged(key)
        return entry, entry.offset + len(header)

    def _read(self, offset: int, nbytes: int) -> bytes:
        with self._lock:
            self._file.seek(offset)
            return self._file.read(nbytes)

    def _check(self, key: str, entry: Entry, crc: int) -> None:
        if crc != entry.crc:
            raise self._damaged(key)

    def _damaged(self, key: str) -> ArchiveDamaged:
        return ArchiveDamaged(
            f"{self.path}: entry {key}: its bytes are not those that were written (CRC)"
        )
