"""Containers of an archive's keys: a zip file or a folder behind one interface.

The operations are those of the Zarr ZIP store specification 1.0 (get, set, list, list_prefix,
list_dir, canonical URI); a container is written once, key by key, and never changed.

Layout of a zip that we write; every entry STORED, every record ZIP64, every name once::

    local header + data        one per key, in the order of ``set``
    central directory          metadata first, breadth first; then the chunks in written order
    ZIP64 end + locator, end   counts, size and offset of the directory
"""

from __future__ import annotations

import contextlib
import errno
import lzma
import os
import shutil
import stat
import struct
import threading
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import IO, Self

from decant_batch.archive import ziprecords
from decant_batch.archive.model import ContainerKind
from decant_batch.archive.pagecache import Trail, forget, forget_file
from decant_batch.archive.ziprecords import Entry
from decant_batch.errors import ArchiveDamaged, NameTaken

_METADATA_NAMES = frozenset({".zgroup", ".zattrs", ".zarray", ".zmetadata", "manifest.json"})


class Container(ABC):
    """Keys and their bytes; a context manager that closes what it opened.

    ``set`` is for containers made by ``create`` and takes each key once; after ``close`` what was
    written is complete and on stable storage.
    """

    kind: ContainerKind
    path: Path

    @abstractmethod
    def get(self, key: str) -> bytes:
        """Value of ``key``. Raises KeyError where there is none, ArchiveDamaged on a bad CRC."""

    @abstractmethod
    def set(self, key: str, value: bytes | memoryview) -> None:
        """Write ``value`` as ``key``. Raises ValueError where the key was written before."""

    @abstractmethod
    def set_parts(self, key: str, parts: Iterable[bytes]) -> None:
        """Write ``key`` from its parts, of which one is held at a time. Raises as ``set``."""

    @abstractmethod
    def list(self) -> Sequence[str]:
        """All keys; a zip's directory entries are not keys."""

    @abstractmethod
    def close(self) -> None:
        """Complete what was written, bring it to stable storage, and close."""

    @abstractmethod
    def discard(self) -> None:
        """Close and remove what was written so far."""

    @abstractmethod
    def drop_cache(self) -> None:
        """Ask the system to forget its cached pages, so that the next read is from the disk."""

    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that the container takes: file sizes, without the file system's rounding."""

    def list_prefix(self, prefix: str) -> Sequence[str]:
        """Keys that begin with ``prefix``, a string, not a folder."""
        return [key for key in self.list() if key.startswith(prefix)]

    def list_dir(self, prefix: str) -> Sequence[str]:
        """Names directly within the folder ``prefix`` ('' for the root), sorted."""
        base = f"{prefix.rstrip('/')}/" if prefix.rstrip("/") else ""
        return sorted({key[len(base) :].split("/", 1)[0] for key in self.list_prefix(base)})

    @property
    def uri(self) -> str:
        """Canonical URI of the container (RFC 8089)."""
        return canonical_uri(self.path.absolute())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self.discard()
            return
        try:
            self.close()
        except BaseException:
            self.discard()  # what could not be completed must not look like an archive
            raise


def canonical_uri(path: PurePath) -> str:
    """``file://`` URI of an absolute path: RFC 8089, also for Windows drive paths.

    The drive letter is lower case, as the store specification's example has it.
    """
    uri = path.as_uri()
    drive = path.drive
    if len(drive) == 2 and drive[1] == ":":
        uri = uri.replace(f"file:///{drive}", f"file:///{drive.lower()}", 1)
    return uri


def create(path: Path, kind: ContainerKind) -> Container:
    """A new, empty container at ``path``.

    Raises
    ------
    NameTaken
        Where something stands at ``path``: it is never overwritten.
    OSError
        Where the folder is missing, read-only or full.
    """
    try:
        return ZipWriter(path) if kind == "zip" else FolderContainer(path, new=True)
    except FileExistsError as error:
        raise NameTaken(f"{path}: exists already; move it away or choose another name") from error


def open_container(path: Path) -> Container:
    """The container at ``path``, for reading.

    Raises
    ------
    ArchiveDamaged
        Where it is neither a folder nor a zip whose directory can be read.
    OSError
        Where it cannot be opened.
    """
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind == stat.S_IFDIR:
        return FolderContainer(path, new=False)
    if kind != stat.S_IFREG:
        raise ArchiveDamaged(f"{path}: neither a file nor a folder")
    try:
        return ZipReader(path)
    except (*_ZIP_ERRORS, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _NOT_THE_DISK:
            raise
        raise ArchiveDamaged(f"{path}: no archive, or a damaged one: {_plainly(error)}") from error


# What zipfile and its decompressors say of bytes that are no zip's; a seek to where no byte can be
# is EINVAL, and bz2 has an OSError without a number.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
    EOFError,
    struct.error,
    zlib.error,
    lzma.LZMAError,
)
_NOT_THE_DISK = (None, errno.EINVAL)
# A compressed entry may claim any size: more than this is no document and no chunk.
_MAX_INFLATED_NBYTES = 512 << 20


def _plainly(error: Exception) -> str:
    """What zipfile says, in words; some of its errors hold raw bytes or nothing at all."""
    if isinstance(error, zipfile.BadZipFile) and "CRC" in str(error):
        return "its bytes are not those that were written (CRC)"
    if isinstance(error, zipfile.BadZipFile):
        return "its zip directory cannot be read"
    return f"{type(error).__name__}: {error}"


def in_reading_order(keys: Iterable[str]) -> list[str]:
    """Keys with metadata first, breadth first, then the others in the order given."""
    ordered = list(keys)
    metadata = [key for key in ordered if key.rsplit("/", 1)[-1] in _METADATA_NAMES]
    metadata.sort(key=lambda key: (key.count("/"), key))
    first = frozenset(metadata)
    return metadata + [key for key in ordered if key not in first]


class ZipWriter(Container):
    """A zip being written: deterministic, STORED, ZIP64, each name once."""

    kind: ContainerKind = "zip"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] = path.open("xb")
        self._entries: dict[str, Entry] = {}
        self._offset = 0
        self._trail = Trail(self._file.fileno())

    def get(self, key: str) -> bytes:
        """Value of a key written before."""
        entry = self._entries[key]
        self._file.flush()
        with self.path.open("rb") as file:
            file.seek(entry.offset + len(ziprecords.local_header(key, entry)))
            return file.read(entry.nbytes)

    def set(self, key: str, value: bytes | memoryview) -> None:
        """Append ``value`` as the entry ``key``."""
        if key in self._entries:
            raise ValueError(f"{key}: written before; a container takes each key once")
        entry = Entry(crc=zlib.crc32(value), nbytes=len(value), offset=self._offset)
        self._write(ziprecords.local_header(key, entry))
        self._write(value)
        self._entries[key] = entry

    def set_parts(self, key: str, parts: Iterable[bytes]) -> None:
        """Append the entry ``key``; its header, which tells length and CRC, is written last."""
        if key in self._entries:
            raise ValueError(f"{key}: written before; a container takes each key once")
        offset, crc, nbytes = self._offset, 0, 0
        self._write(ziprecords.local_header(key, Entry(crc=0, nbytes=0, offset=offset)))
        for part in parts:
            crc, nbytes = zlib.crc32(part, crc), nbytes + len(part)
            self._write(part)
        self._entries[key] = entry = Entry(crc=crc, nbytes=nbytes, offset=offset)
        self._file.seek(offset)
        self._file.write(ziprecords.local_header(key, entry))
        self._file.seek(0, os.SEEK_END)

    def list(self) -> Sequence[str]:
        """Keys written so far."""
        return tuple(self._entries)

    def close(self) -> None:
        """Write the central directory, bring the file to stable storage, close it."""
        if self._file.closed:
            return
        start = self._offset
        for key in in_reading_order(self._entries):
            self._write(ziprecords.central_record(key, self._entries[key]))
        self._write(ziprecords.end_records(len(self._entries), start, self._offset - start))
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


class ZipReader(Container):
    """A zip opened for reading; also one that others wrote, with deflate or folder entries."""

    kind: ContainerKind = "zip"

    def __init__(self, path: Path) -> None:
        self.path = path
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(path.open("rb"))
            self._zip = stack.enter_context(zipfile.ZipFile(file))
            self._opened = stack.pop_all()
        self._trail = Trail(file.fileno())
        # Opening an entry asks where the shared file stands: another thread's read in between made
        # Python 3.12.1 and 3.13.0 see bad CRCs and «overlapped entries» in good archives.
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes:
        """Value of ``key``, its CRC checked."""
        entry = self._zip.getinfo(key)
        is_inflated = entry.compress_type != zipfile.ZIP_STORED
        if is_inflated and entry.file_size > _MAX_INFLATED_NBYTES:
            raise ArchiveDamaged(f"{self.path}: entry {key}: {entry.file_size} bytes declared")
        try:
            with self._lock:
                value = self._zip.read(key)
                self._trail.passed(len(value), entry.header_offset)
                return value
        except (*_ZIP_ERRORS, OSError) as error:
            if isinstance(error, OSError) and error.errno not in _NOT_THE_DISK:
                raise
            raise ArchiveDamaged(f"{self.path}: entry {key}: {_plainly(error)}") from error

    def set(self, key: str, value: bytes | memoryview) -> None:
        """Refuse: an archive is never changed."""
        raise ValueError(f"{self.path}: open for reading; {key} cannot be written")

    def set_parts(self, key: str, parts: Iterable[bytes]) -> None:
        """Refuse: an archive is never changed."""
        del parts
        self.set(key, b"")

    def list(self) -> Sequence[str]:
        """Keys in the order of the central directory."""
        return [name for name in self._zip.namelist() if not name.endswith("/")]

    def close(self) -> None:
        """Close the file."""
        self._opened.close()

    discard = close

    def drop_cache(self) -> None:
        """Forget the file's cached pages."""
        forget_file(self.path)

    def nbytes(self) -> int:
        """Size of the file."""
        return self.path.stat().st_size


class FolderContainer(Container):
    """A folder with one file per key."""

    kind: ContainerKind = "folder"

    def __init__(self, path: Path, *, new: bool) -> None:
        self.path = path
        self._new = new
        if new:
            path.mkdir()

    def get(self, key: str) -> bytes:
        """Bytes of the key's file, which is no link and no device."""
        file = self._file(key)
        try:
            kind = stat.S_IFMT(file.lstat().st_mode)
            if kind == stat.S_IFDIR:
                raise KeyError(key)
            if kind != stat.S_IFREG:
                raise ArchiveDamaged(f"{file}: not a file of its own")
            return file.read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise KeyError(key) from error

    def set(self, key: str, value: bytes | memoryview) -> None:
        """Write the key's file and bring it to stable storage."""
        self.set_parts(key, (value,))

    def set_parts(self, key: str, parts: Iterable[bytes | memoryview]) -> None:
        """Write the key's file part by part and bring it to stable storage."""
        if not self._new:
            raise ValueError(f"{self.path}: open for reading; {key} cannot be written")
        file = self._file(key)
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with file.open("xb") as handle:
                handle.writelines(parts)
                handle.flush()
                os.fsync(handle.fileno())
                forget(handle.fileno())
        except FileExistsError as error:
            raise ValueError(f"{key}: written before; a container takes each key once") from error

    def list(self) -> Sequence[str]:
        """Keys, sorted, metadata first."""
        return in_reading_order(
            sorted(file.relative_to(self.path).as_posix() for file in self._files())
        )

    def close(self) -> None:
        """Bring the folders' entries to stable storage."""
        if self._new:
            for folder, _, _ in os.walk(self.path):
                sync_folder(Path(folder))
            self._new = False

    def discard(self) -> None:
        """Remove what was written."""
        if self._new:
            shutil.rmtree(self.path)

    def drop_cache(self) -> None:
        """Forget the files' cached pages."""
        for file in self._files():
            forget_file(file)

    def nbytes(self) -> int:
        """Sum of the files' sizes."""
        return sum(file.stat().st_size for file in self._files())

    def _file(self, key: str) -> Path:
        if not key or key.startswith("/") or ".." in key.split("/") or "\0" in key:
            raise KeyError(key)
        return self.path / key

    def _files(self) -> Iterator[Path]:
        for folder, _, names in os.walk(self.path):
            for file in (Path(folder, name) for name in names):
                if stat.S_ISREG(file.lstat().st_mode):
                    yield file


def sync_folder(folder: Path) -> None:
    """Bring a folder's entries to stable storage, so that a rename survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
