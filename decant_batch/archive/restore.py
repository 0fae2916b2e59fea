"""Originals written back as files: proved first, dates put back, never over others."""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from decant_batch.archive.container import Container, open_container, sync_folder
from decant_batch.archive.model import Stamp
from decant_batch.archive.pagecache import Trail
from decant_batch.archive.rebuild import Original, Write, difference, originals, rebuilder
from decant_batch.errors import ArchiveDamaged, NameTaken, Unusable, UsageError


def restore(
    archive: Path,
    directory: Path,
    *,
    force: bool = False,
    members: Sequence[str] | None = None,
    threads: int = 1,
) -> list[Path]:
    """Write the originals of ``archive`` below ``directory``; the paths written.

    Each original goes to its recorded relative path, with its dates and permissions where they were
    recorded, and gets its name only after its sha256 was compared. ``members`` are glob patterns on
    the relative paths of a series' members; none means all.

    Raises
    ------
    NameTaken
        Where a file stands at an original's path and ``force`` is not set.
    UsageError
        Where ``directory`` is no folder, or no member matches.
    ArchiveDamaged
        Where an original cannot be rebuilt; nothing is left of it.
    Unusable
        Where ``directory`` has no room.
    """
    if os.path.lexists(directory) and not directory.is_dir():
        raise UsageError(f"{directory}: is no folder; name one with -o")
    with open_container(archive) as container:
        return [
            _restore_one(container, original, directory, force=force, threads=threads)
            for original in _chosen(originals(container), members, archive)
        ]


def targets(archive: Path, members: Sequence[str] | None = None) -> list[str]:
    """Relative paths at which ``restore`` would write the originals of ``archive``."""
    with open_container(archive) as container:
        return [each.relpath for each in _chosen(originals(container), members, archive)]


def _chosen(
    found: Sequence[Original], members: Sequence[str] | None, archive: Path
) -> Sequence[Original]:
    if members is None:
        return found
    chosen = [
        original
        for original in found
        if any(fnmatch.fnmatchcase(original.relpath, pattern) for pattern in members)
    ]
    if not chosen:
        raise UsageError(f"{archive}: no member matches {', '.join(members)}; inspect lists them")
    return chosen


def _restore_one(
    container: Container, original: Original, directory: Path, *, force: bool, threads: int
) -> Path:
    target = directory / original.relpath
    if not force and os.path.lexists(target):
        raise _taken(container.path, target)
    give = rebuilder(container, original, threads=threads)
    target.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target.parent).free
    if original.size > free:
        raise Unusable(
            f"{directory}: {original.size} bytes needed for {original.relpath}, {free} free;"
            " choose another folder with -o"
        )
    unproved = target.parent / f".decant-{os.getpid()}-{os.urandom(4).hex()}.partial"
    try:
        with unproved.open("xb", buffering=0) as file:
            digest = hashlib.sha256()
            trail = Trail(file.fileno())
            give(_writer(file.write, digest.update, trail))
            _compare(container, original, digest.hexdigest(), file.tell())
            os.fsync(file.fileno())
        _put_back(unproved, original.stamp)
        if not _publish(unproved, target, force=force):
            raise _taken(container.path, target)
    finally:
        unproved.unlink(missing_ok=True)
    sync_folder(target.parent)
    return target


def _writer(write: Callable[[memoryview], int | None], update: Write, trail: Trail) -> Write:
    """Write and hash; an unbuffered file may take less than it was given."""

    def both(block: memoryview) -> None:
        update(block)
        trail.passed(len(block))
        while block:
            block = block[write(block) or 0 :]

    return both


def _compare(container: Container, original: Original, sha256: str, nbytes: int) -> None:
    problem = difference(original, sha256, nbytes)
    if problem is not None:
        raise ArchiveDamaged(f"{container.path}: {original.relpath}: {problem}")


def _put_back(file: Path, stamp: Stamp) -> None:
    """Dates and permissions, where they were recorded."""
    if stamp.mode is not None:
        file.chmod(stamp.mode)
    if stamp.mtime_ns is not None:
        with contextlib.suppress(OverflowError):  # a time that this system cannot hold
            os.utime(file, ns=(stamp.mtime_ns, stamp.mtime_ns))


def _publish(partial: Path, target: Path, *, force: bool) -> bool:
    """Give the file its name; without ``force`` never over another: False, also in a race."""
    if force:
        partial.replace(target)
        return True
    try:
        target.hardlink_to(partial)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links: what was checked above must do
        partial.rename(target)
    return True


def _taken(archive: Path, target: Path) -> NameTaken:
    return NameTaken(
        f"{archive}: {target} exists already; choose another folder with -o, or --force replaces it"
    )
