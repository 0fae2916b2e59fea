"""Series made, proved and published: as ``publish`` does it for one source.

A consolidated series is one archive, packed under a temporary name. The bundles of a nested one are
made one by one in a staging folder, which outlives a run that is interrupted; when all are there,
the folder gets its sidecar and its name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from decant_batch.archive.container import open_container
from decant_batch.archive.model import Member, Report, Stamp
from decant_batch.archive.rebuild import originals
from decant_batch.archive.series import bundle_name, close_series, pack_series
from decant_batch.archive.verify import proofs
from decant_batch.batch import publish
from decant_batch.batch.model import Closing, Outcome, Roots, Series, SeriesJob, Source
from decant_batch.errors import ArchiveDamaged, NameTaken, SourceChanged


def make_series(roots: Roots, job: SeriesJob, temporary: str, report: Report) -> Outcome:
    """The published archive of a consolidated series: made, or found standing and proved.

    Raises
    ------
    SourceChanged, NameTaken, OSError
        As ``publish.make``.
    ArchiveDamaged
        Where the archive does not give all members back; nothing is published.
    """
    series = job.series
    _check_still(roots, series)
    archive, hashes = _place(roots, series, job.archives)
    if hashes:
        return _adopted(roots, series, archive, hashes, job.recipe.threads)
    root, final, partial = (Path(roots.destination, name) for name in ("", archive, temporary))
    publish.make_folders(final.parent, root)
    try:
        publish.remove(partial)
        packed, made = pack_series(
            _members(roots, series),
            partial,
            grid=job.grid,
            name=Path(series.stem).name,
            recipe=job.recipe,
            report=report,
        )
        _prove(partial, made, job.recipe.threads)
        _check_still(roots, series)
        publish.publish(partial, final)
    finally:
        publish.remove(partial)
    outcome = _archived(series, archive, packed.archive_nbytes)
    return replace(outcome, warnings=packed.warnings)


def close(roots: Roots, closing: Closing, _report: Report) -> Outcome:
    """The published archive of a nested series, of bundles that were proved when they were made.

    Raises
    ------
    ArchiveDamaged
        Where a bundle is missing or is not what was made; it is removed, to be made anew.
    SourceChanged, NameTaken, OSError
        As ``publish.make``.
    """
    series, staging = closing.series, Path(roots.destination, closing.staging)
    _check_still(roots, series)
    archive, hashes = _place(roots, series, closing.archives)
    if hashes:
        return _adopted(roots, series, archive, hashes, 1)
    for number, (source, sha256) in enumerate(zip(series.members, closing.hashes, strict=True)):
        _check_bundle(staging / bundle_name(number), source, sha256)
    final = Path(roots.destination, archive)
    name = Path(series.stem).name
    sizes = (source.size for source in series.members)
    close_series(staging, name, zip(_members(roots, series), sizes, closing.hashes, strict=True))
    publish.make_folders(final.parent, Path(roots.destination))
    publish.publish(staging, final)
    with open_container(final) as container:
        outcome = _archived(series, archive, container.nbytes())
    return replace(outcome, detail=closing.reason)


def _members(roots: Roots, series: Series) -> Iterator[Member]:
    for source in series.members:
        yield Member(
            path=Path(roots.source, source.relpath),
            stamp=Stamp(relpath=source.relpath, mtime_ns=source.mtime_ns, mode=source.mode),
        )


def _check_still(roots: Roots, series: Series) -> None:
    for source in series.members:
        try:
            publish.check_still(Path(roots.source, source.relpath), source)
        except FileNotFoundError as error:
            raise SourceChanged(f"{error.filename}: vanished since the walk") from error


def _place(
    roots: Roots, series: Series, archives: tuple[tuple[str, str], ...]
) -> tuple[str, tuple[str, ...]]:
    """The first free name, or one where just these members stand already, with their sha256."""
    root, hashes = Path(roots.destination), tuple[str, ...]()
    for archive, other in archives:
        final = root / archive
        publish.refuse_obstacles(final, root)
        if not os.path.lexists(final) and not os.path.lexists(root / other):
            return archive, ()
        held = _held(final, series) if os.path.lexists(final) else ()
        if held:
            hashes = hashes or tuple(
                publish.sha256_of(Path(roots.source, source.relpath)) for source in series.members
            )
            if held == hashes:
                return archive, hashes
    raise NameTaken(
        f"{series.stem}: its archive's names are all taken; move old versions away, then run again"
    )


def _held(final: Path, series: Series) -> tuple[str, ...]:
    """Sha256 of the members that an archive says it holds; none where they are not these ones.

    These are members of the same paths and sizes, in the same order.
    """
    try:
        with open_container(final) as container:
            found = originals(container)
    except ArchiveDamaged:
        return ()
    wanted = [(source.relpath, source.size) for source in series.members]
    if [(each.relpath, each.size) for each in found] != wanted:
        return ()
    return tuple(each.sha256 for each in found)


def _prove(archive: Path, hashes: Sequence[str], threads: int) -> None:
    for found, sha256 in zip_longest(proofs(archive, threads=threads), hashes):
        problem = "it holds other members" if found is None or sha256 is None else found.problem
        if problem is None and found.sha256 != sha256:
            problem = f"{found.name}: it holds another file"
        if problem is not None:
            raise ArchiveDamaged(
                f"{archive}: the archive does not give its members back ({problem}); nothing"
                " published"
            )


def _check_bundle(path: Path, source: Source, sha256: str) -> None:
    try:
        held = publish.held(path)
        if (held.relpath, held.size, held.sha256) == (source.relpath, source.size, sha256):
            return
    except NameTaken:
        pass  # whatever stands there is not what was made: told below
    publish.remove(path)
    raise ArchiveDamaged(f"{path}: is not the bundle that was made; it is made anew next run")


def _archived(series: Series, archive: str, nbytes: int) -> Outcome:
    return Outcome(
        source=series.members[0],
        state="archived",
        archive=archive,
        mode="series",
        archive_nbytes=nbytes,
    )


def _adopted(
    roots: Roots, series: Series, archive: str, hashes: tuple[str, ...], threads: int
) -> Outcome:
    """Outcome for a series' archive that stands and holds just these contents; proved first."""
    final = Path(roots.destination, archive)
    try:
        _prove(final, hashes, threads)
    except ArchiveDamaged as error:
        raise NameTaken(f"{final}: {publish.DAMAGED} ({error})") from error
    with open_container(final) as container:
        outcome = _archived(series, archive, container.nbytes())
    return replace(outcome, adopted=True)
