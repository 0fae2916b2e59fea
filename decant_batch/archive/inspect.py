"""What an archive says of itself, in milliseconds: no pixel is read."""

from __future__ import annotations

import json
from pathlib import Path

from decant_batch.archive import arrays, planes
from decant_batch.archive.container import Container, open_container
from decant_batch.archive.manifest import Manifest, read
from decant_batch.archive.model import Inspection
from decant_batch.archive.rebuild import read_stamp


def inspect(archive: Path) -> Inspection:
    """Mode, sizes, hash, layout and reason of an archive, from its metadata alone.

    Raises
    ------
    ArchiveDamaged
        Where it cannot be opened or its manifest not be believed.
    """
    with open_container(archive) as container:
        found = read(container)
        stamp = read_stamp(container)
        reason, detail = _why_verbatim(container)
        members = found.members
        shape, axes, dtype = _pixels(container, found)
        return Inspection(
            uri=container.uri,
            container=container.kind,
            mode=found.mode,
            reason=reason,
            detail=detail,
            original_name=found.original_name,
            relpath=stamp.relpath,
            mtime_ns=stamp.mtime_ns,
            source_nbytes=found.original_size + sum(member.original_size for member in members),
            archive_nbytes=container.nbytes(),
            sha256=found.original_sha256,
            byteorder=found.byteorder,
            shape=shape,
            axes=axes,
            dtype=dtype,
            page_count=len(found.pages) + sum(len(member.pages) for member in members),
            husk_nbytes=found.husk_raw_size + sum(member.husk_raw_size for member in members),
            codec=found.pixel_codec,
            written_by=found.decant_version,
            members=tuple(member.relpath for member in members),
        )


def _why_verbatim(container: Container) -> tuple[str | None, str]:
    try:
        marker = json.loads(container.get(".zattrs"))["decant"]
        reason, detail = marker.get("reason"), marker.get("detail")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None, ""
    return reason if isinstance(reason, str) else None, str(detail or "")


def _pixels(container: Container, found: Manifest) -> tuple[tuple[int, ...], tuple[str, ...], str]:
    """Shape, axes and dtype of array ``0``; nothing where there is none."""
    if found.mode == "verbatim" or (found.mode == "series" and not found.series_consolidated):
        return (), (), ""
    array = arrays.open_array(container, "0")
    order = found.plane_order
    leading = tuple(order[i] for i in planes.canonical_order(order))
    rest = ("y", "x", "s")[: len(array.shape) - len(leading)] if leading else ()
    return array.shape, (*leading, *rest), array.dtype.name
