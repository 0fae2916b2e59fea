"""Containers that are folders with one file per key."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from decant_batch.archive.container.base import Container, in_reading_order
from decant_batch.archive.model import ContainerKind
from decant_batch.archive.pagecache import forget, forget_file
from decant_batch.errors import ArchiveDamaged

_BLOCK_NBYTES = 256 << 10


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
        with self._opened(key) as file:
            return file.read()

    def get_parts(self, key: str) -> Iterator[bytes]:
        """Bytes of the key's file in blocks; see ``get``."""
        with self._opened(key) as file:
            while block := file.read(_BLOCK_NBYTES):
                yield block

    def _opened(self, key: str) -> IO[bytes]:
        file = self._file(key)
        try:
            kind = stat.S_IFMT(file.lstat().st_mode)
            if kind == stat.S_IFDIR:
                raise KeyError(key)
            if kind != stat.S_IFREG:
                raise ArchiveDamaged(f"{file}: not a file of its own")
            return file.open("rb")
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
