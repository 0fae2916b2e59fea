"""What every container of an archive's keys does: the Zarr ZIP store specification 1.0."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Self

from decant_batch.archive.model import ContainerKind

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
    def get_parts(self, key: str) -> Iterator[bytes]:
        """Value of ``key`` in parts, of which one is held at a time; raises as ``get``.

        That its CRC is bad is known, and told, after the last part.
        """

    @abstractmethod
    def set(self, key: str, value: bytes | memoryview) -> None:
        """Write ``value`` as ``key``. Raises ValueError where the key was written before.

        Some containers see that only in ``close``.
        """

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


def is_metadata(key: str) -> bool:
    """True for keys that a reader wants before any chunk."""
    return key.rsplit("/", 1)[-1] in _METADATA_NAMES


def in_reading_order(keys: Iterable[str]) -> list[str]:
    """Keys with metadata first, breadth first, then the others in the order given."""
    ordered = list(keys)
    metadata = [key for key in ordered if is_metadata(key)]
    metadata.sort(key=lambda key: (key.count("/"), key))
    first = frozenset(metadata)
    return metadata + [key for key in ordered if key not in first]
