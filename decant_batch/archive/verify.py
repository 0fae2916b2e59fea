"""Proof: what is on the disk, read back and rebuilt, equals the originals."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from decant_batch.archive.container import Container, open_container
from decant_batch.archive.model import Report, Verified, silent
from decant_batch.archive.rebuild import Original, difference, originals, rebuild
from decant_batch.errors import ArchiveDamaged


def verify(archive: Path, *, threads: int = 1, report: Report = silent) -> list[Verified]:
    """Rebuild every original of ``archive`` and compare its length and sha256.

    What the system has in its page cache is dropped first, where it allows that. ``report`` is
    called with the number of bytes rebuilt since the last call.

    Raises
    ------
    ArchiveDamaged
        Where the archive cannot be opened or its manifest not be believed; damage to one original
        is told in its ``problem``.
    """
    return list(proofs(archive, threads=threads, report=report))


def proofs(archive: Path, *, threads: int = 1, report: Report = silent) -> Iterator[Verified]:
    """Each original as ``verify`` finds it, one after the other: those of a series are many."""
    with open_container(archive) as container:
        container.drop_cache()
        for original in originals(container):
            yield _verify_one(container, original, threads, report)


def _verify_one(container: Container, original: Original, threads: int, report: Report) -> Verified:
    digest, nbytes = hashlib.sha256(), 0

    def take(block: memoryview) -> None:
        nonlocal nbytes
        digest.update(block)
        nbytes += len(block)
        report(len(block))

    try:
        rebuild(container, original, take, threads=threads)
        problem = difference(original, digest.hexdigest(), nbytes)
    except ArchiveDamaged as error:
        problem = str(error)
    return Verified(
        name=original.relpath, nbytes=original.size, sha256=original.sha256, problem=problem
    )
