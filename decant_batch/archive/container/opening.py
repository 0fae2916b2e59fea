"""Which container stands at a path, or is made there."""

from __future__ import annotations

import stat
from pathlib import Path

from decant_batch.archive.container.base import Container
from decant_batch.archive.container.folder import FolderContainer
from decant_batch.archive.container.foreign import ForeignZip
from decant_batch.archive.container.zipped import ZipReader, ZipWriter
from decant_batch.archive.model import ContainerKind
from decant_batch.errors import ArchiveDamaged, NameTaken


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
    return ZipReader.opened(path) or ForeignZip.opened(path)
