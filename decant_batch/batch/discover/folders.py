"""Opening and listing folders, however deep, and never through a symlink."""

from __future__ import annotations

import os
from pathlib import Path

from decant_batch.errors import UsageError

Identity = tuple[int, int]  # st_dev, st_ino
# Linux takes paths of less than 4096 bytes; deeper folders are opened in several steps.
_STEP_NBYTES = 4000


def open_root(root: Path) -> int:
    """Descriptor of the root folder, which could just be listed.

    Raises
    ------
    UsageError
        Where it is missing, no folder, or cannot be read.
    """
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(descriptor) as entries:
                next(entries, None)
        except OSError:
            os.close(descriptor)
            raise
    except FileNotFoundError as error:
        raise UsageError(
            f"{root}: no such folder; mount the share, or correct `source:`"
        ) from error
    except NotADirectoryError as error:
        raise UsageError(f"{root}: not a folder; write the folder's path as `source:`") from error
    except OSError as error:
        raise UsageError(
            f"{root}: cannot be read: {error.strerror}; let this user read the share, or look at "
            "its mount"
        ) from error
    return descriptor


def identity(found: os.stat_result) -> Identity:
    """What tells a folder from all others, however it is reached."""
    return found.st_dev, found.st_ino


def open_below(top: int, relpath: str) -> int:
    """Descriptor of the folder ``relpath`` under the open folder ``top``; not through a symlink."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    rest = os.fsencode(relpath) or b"."
    at = top
    try:
        while len(rest) > _STEP_NBYTES and (cut := rest.rfind(b"/", 1, _STEP_NBYTES)) > 0:
            above, at = at, os.open(rest[:cut], flags, dir_fd=at)
            rest = rest[cut + 1 :]
            if above != top:
                os.close(above)
        return os.open(rest, flags, dir_fd=at)
    finally:
        if at != top:
            os.close(at)


def names(descriptor: int) -> tuple[list[str], list[str], OSError | None]:
    """Names of files and of folders, each sorted by their bytes, and what cut the listing short."""
    files: list[str] = []
    folders: list[str] = []
    failure = None
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                (folders if _says_folder(entry) else files).append(entry.name)
    except OSError as error:
        failure = error
    return sorted(files, key=os.fsencode), sorted(folders, key=os.fsencode), failure


def _says_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False  # asked again, and reported, when its turn comes
