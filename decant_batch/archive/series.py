"""Many sources -> one series archive (spec section 3, mode "series").

Consolidated: members stream one after the other through one job into a shared ``0``, each with a
husk of its own. What is held of a member that has passed is its hash and its record, compressed.

Nested: each member has a bundle of its own, made like any archive; here it gets its sidecar.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from decant_batch.archive import (
    arrays,
    codecs,
    documents,
    encoding,
    manifest,
    metadata,
    names,
    planes,
)
from decant_batch.archive import layout as layouts
from decant_batch.archive.container import Container, create, sync_folder
from decant_batch.archive.encoding import Lanes, Pipeline, pipeline
from decant_batch.archive.many import Many
from decant_batch.archive.model import (
    Channel,
    Grid,
    Layout,
    Member,
    Metadata,
    Packed,
    Recipe,
    Report,
    silent,
)
from decant_batch.errors import SourceChanged


def pack_series(
    members: Iterable[Member],
    archive: Path,
    *,
    grid: Grid,
    name: str | None = None,
    recipe: Recipe | None = None,
    report: Report = silent,
) -> tuple[Packed, Sequence[str]]:
    """Write the consolidated archive of ``members`` at ``archive``; their sha256 beside it.

    Members are in the order of the grid's planes, which they fill; that they do is not checked.
    ``name`` is what the archive says that it is called, its file's unless it is given. As with
    ``pack``, the archive is complete afterwards, but not proved.

    Raises
    ------
    SourceChanged
        Where a member changed during the read, or is not like the first or not as large as the
        grid wants it: it was when the grid was planned.
    NameTaken, OSError
        As ``pack``.
    """
    recipe = recipe or Recipe()
    members = iter(members)
    leader = next(members)
    first = _alike(leader, None)
    lanes = Lanes(first.geometry, planes.canonical_shape(grid.axes, grid.leading), recipe)
    described = documents.described(grid.axes, lanes)
    said = documents.fitting(_told(leader.path, first, grid), described)
    hashes, records, stamps = Many[str](), Many[bytes](), Many[bytes]()
    with create(archive, recipe.container) as container:
        for array in lanes.arrays:
            arrays.create(container, array)
        with pipeline(container, recipe.threads) as row:
            for number, member in enumerate(itertools.chain([leader], members)):
                found = _placed(member, _alike(member, first), number, grid)
                hashes.append(_pack_member(member, number, found, row, lanes, records, report))
                stamps.append(arrays.dump(_stamp(member)))
        name = name or archive_stem(archive)
        marker = {"series": {"members": len(hashes)}} | documents.merged(grid.merged)
        documents.write_image(container, name, described, said, marker)
        _write_series(container, grid, name, recipe, records, stamps)
    return (
        Packed(
            mode="series",
            reason=None,
            detail="",
            source_nbytes=0,
            archive_nbytes=container.nbytes(),
            sha256="",
            warnings=said.warnings,
        ),
        hashes,
    )


def close_series(folder: Path, name: str, bundles: Iterable[tuple[Member, int, str]]) -> None:
    """Make a nested series of the bundles ``m0.zarr.zip``, ``m1.zarr.zip``, … in ``folder``.

    ``bundles`` has for each its member and the member's size and sha256; whether a bundle holds
    that is not checked here. ``name`` is the series'. The folder is on stable storage afterwards.
    """
    records, stamps = Many[bytes](), Many[bytes]()
    for number, (member, nbytes, sha256) in enumerate(bundles):
        record = manifest.dump_bundle(
            bundle_name(number),
            relpath=names.readable(_relpath(member)),
            original_size=nbytes,
            original_sha256=sha256,
        )
        records.append(record)
        stamps.append(arrays.dump(_stamp(member)))
    parts = manifest.dump_series(
        records,
        (),
        consolidated=False,
        decant_version=documents.WRITTEN_BY,
        original_name=names.readable(name),
        pixel_codec="",
        notes="",
    )
    # The manifest last: with it, the folder is an archive.
    for key, value in ((manifest.STAMPS, manifest.dump_list(stamps)), (manifest.KEY, parts)):
        _write_file(folder / key, value)
    sync_folder(folder)


def bundle_name(number: int) -> str:
    """Name of the archive of the member ``number`` in a nested series (spec section 3)."""
    return f"m{number}.zarr.zip"


def _write_file(path: Path, parts: Iterable[bytes]) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)


def archive_stem(archive: Path) -> str:
    """An archive's name without what says that it is one."""
    return archive.name.removesuffix(".zip").removesuffix(".zarr")


def _alike(member: Member, first: Layout | None) -> Layout:
    """The member's layout, if it has as many pages as the first and they look like its pages.

    Raises
    ------
    SourceChanged
        Where they do not.
    """
    found = layouts.survey(member.path)
    if not isinstance(found, Layout):
        raise SourceChanged(f"{member.path}: is {found.reason} now and was not when it was planned")
    if first is not None and _looks(found) != _looks(first):
        raise SourceChanged(f"{member.path}: has other pages now than the series")
    return found


def _looks(found: Layout) -> tuple[object, ...]:
    return found.page_count, found.geometry.shape, found.geometry.dtype


def _placed(member: Member, found: Layout, number: int, grid: Grid) -> Layout:
    """The layout with the grid's axes, and each page's index among all planes of the grid."""
    index = found.index + number * found.page_count
    if member.index is not None:
        index = np.array(member.index, np.int64)[found.index]
    return replace(found, axes=grid.axes, leading=grid.leading, index=index)


def _pack_member(
    member: Member,
    number: int,
    found: Layout,
    row: Pipeline,
    lanes: Lanes,
    records: Many[bytes],
    report: Report,
) -> str:
    """Write one member's pages and husk, and its record; the member's sha256."""
    rest = encoding.husk_array(f"husk_{number}", found.husk_nbytes)
    row.put(f"{rest.name}/.zarray", arrays.document(rest))
    with encoding.reading(member.path, found.size, report) as reading:
        encoding.pack_pages(reading, row, found, rest, lanes)
    sha256 = reading.digest.hexdigest()
    record = manifest.dump_member(
        found,
        rest.name,
        relpath=names.readable(_relpath(member)),
        original_sha256=sha256,
    )
    records.append(record)
    return sha256


def _relpath(member: Member) -> str:
    return member.stamp.relpath or member.path.name


def _stamp(member: Member) -> dict[str, Any]:
    return documents.source(_relpath(member), member.stamp)


def _write_series(
    container: Container,
    grid: Grid,
    name: str,
    recipe: Recipe,
    records: Many[bytes],
    stamps: Many[bytes],
) -> None:
    container.set_parts(manifest.STAMPS, manifest.dump_list(stamps))
    parts = manifest.dump_series(
        records,
        grid.axes,
        consolidated=True,
        decant_version=documents.WRITTEN_BY,
        original_name=names.readable(name),
        pixel_codec=codecs.describe(recipe.compressor, recipe.filters),
        notes="",
    )
    container.set_parts(manifest.KEY, parts)


def _told(path: Path, first: Layout, grid: Grid) -> Metadata:
    """What the first member says of its pixels; channels are those that the grid names."""
    said = metadata.read(path, first)
    axes = set(grid.axes) - set(grid.merged) | {"y", "x"}
    channels = tuple(Channel(name=label) for label in grid.labels)
    count = dict(zip(grid.axes, grid.leading, strict=True)).get("c", 1)
    if not channels and len(said.channels) == count and "c" not in grid.merged:
        channels = said.channels
    return replace(
        said,
        name=None,
        channels=channels,
        spacing={axis: step for axis, step in said.spacing.items() if axis in axes},
    )
