"""One source -> one archive: a single sequential read, hashed as it goes (``encoding``)."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

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
from decant_batch.archive.container import Container, create
from decant_batch.archive.encoding import Blocks, Lanes, Reading, pipeline
from decant_batch.archive.model import Layout, Packed, Recipe, Refusal, Report, Stamp, silent

VERBATIM_CHUNK_NBYTES = 4 << 20


def pack(
    source: Path,
    archive: Path,
    *,
    recipe: Recipe | None = None,
    stamp: Stamp | None = None,
    found: Layout | Refusal | None = None,
    report: Report = silent,
) -> Packed:
    """Write the archive of ``source`` at ``archive`` and say what was written.

    The archive is complete and on stable storage afterwards, but not proved: ``verify`` does that.
    ``found`` is what ``survey`` said of the source; a Refusal gives a verbatim archive. ``report``
    is called with the number of source bytes read since the last call.

    Raises
    ------
    SourceChanged
        Where size, time or length moved during the read; nothing is left at ``archive``.
    NameTaken
        Where something stands at ``archive``.
    OSError
        Where the source cannot be read or the archive not be written; nothing is left behind.
    """
    recipe = recipe or Recipe()
    found = layouts.survey(source) if found is None else found
    if isinstance(found, Refusal):
        return _pack_verbatim(source, archive, recipe, stamp, found, report)
    lanes = _lanes(found, recipe)
    described = documents.described(found.axes, lanes)
    said = documents.fitting(metadata.read(source, found), described)
    with create(archive, recipe.container) as container:
        with encoding.reading(source, found.size, report) as reading:
            _write_chunks(container, reading, found, lanes, recipe)
        fields, marker = _documents(source, reading, stamp)
        marker |= documents.merged(found.merged)
        documents.write_image(container, str(fields["original_name"]), described, said, marker)
        codec = codecs.describe(recipe.compressor, recipe.filters)
        documents.write_manifest(
            container, manifest.dump_byte_exact(found, pixel_codec=codec, notes="", **fields)
        )
    return Packed(
        mode="byte-exact",
        reason=None,
        detail="",
        source_nbytes=found.size,
        archive_nbytes=container.nbytes(),
        sha256=reading.digest.hexdigest(),
        warnings=said.warnings,
    )


def _lanes(found: Layout, recipe: Recipe) -> Lanes:
    return Lanes(found.geometry, planes.canonical_shape(found.axes, found.leading), recipe)


def _write_chunks(
    container: Container, reading: Reading, found: Layout, lanes: Lanes, recipe: Recipe
) -> None:
    """Write ``0``, its levels and ``husk``."""
    rest = encoding.husk_array("husk", found.husk_nbytes)
    for array in (*lanes.arrays, rest):
        arrays.create(container, array)
    with pipeline(container, recipe.threads) as row:
        encoding.pack_pages(reading, row, found, rest, lanes)


def _pack_verbatim(
    source: Path,
    archive: Path,
    recipe: Recipe,
    stamp: Stamp | None,
    found: Refusal,
    report: Report,
) -> Packed:
    """Write ``original``: the whole source in blocks."""
    with create(archive, recipe.container) as container:
        with encoding.reading(source, None, report) as reading:
            size = reading.status.st_size
            array = encoding.bytes_array("original", size, VERBATIM_CHUNK_NBYTES)
            arrays.create(container, array)
            with pipeline(container, recipe.threads) as row:
                blocks = Blocks(reading, row, array)
                blocks.take(size)
                blocks.flush()
        fields, marker = _documents(source, reading, stamp)
        marker |= {"reason": found.reason, "detail": found.detail}
        documents.write_group(container, {"decant": marker})
        codec = codecs.describe(codecs.HUSK_COMPRESSOR, ())
        documents.write_manifest(
            container, manifest.dump_verbatim(pixel_codec=codec, notes=found.reason, **fields)
        )
    return Packed(
        mode="verbatim",
        reason=found.reason,
        detail=found.detail,
        source_nbytes=size,
        archive_nbytes=container.nbytes(),
        sha256=reading.digest.hexdigest(),
    )


def _documents(
    source: Path, reading: Reading, stamp: Stamp | None
) -> tuple[dict[str, str | int], dict[str, Any]]:
    """The manifest's scalar fields that every mode has, and the marker's word on the source."""
    status = reading.status
    stamp = stamp or Stamp(mtime_ns=status.st_mtime_ns, mode=stat.S_IMODE(status.st_mode))
    fields: dict[str, str | int] = {
        "decant_version": documents.WRITTEN_BY,
        "original_name": names.readable(source.name),
        "original_size": status.st_size,
        "original_sha256": reading.digest.hexdigest(),
    }
    return fields, {"source": documents.source(source.name, stamp)}
