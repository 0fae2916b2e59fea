"""One source -> one archive: a single sequential read, hashed as it goes.

Each byte goes either to the husk or to its page; a page is encoded when its last step has passed,
by a few threads, and written in the order in which pages were completed, so the archive's bytes do
not depend on the threads. The design's section 4 says what memory that takes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from decant_batch import __version__
from decant_batch.archive import arrays, codecs, husk, manifest, metadata, names, ngff, planes
from decant_batch.archive import layout as layouts
from decant_batch.archive.arrays import Array
from decant_batch.archive.buffers import Buffers
from decant_batch.archive.container import Container, create
from decant_batch.archive.husk import GAP, HUSK_BLOCK_NBYTES, Walk
from decant_batch.archive.model import (
    Layout,
    Metadata,
    Packed,
    Recipe,
    Refusal,
    Report,
    Stamp,
    silent,
)
from decant_batch.archive.ngff import Described
from decant_batch.errors import SourceChanged

IO_BLOCK_NBYTES = 1 << 20
# Smaller than a block, so that blocks go straight to where they belong and not through the buffer:
# it is for small strips and gaps.
_READ_BUFFER_NBYTES = 128 << 10
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
    said = _told(source, found) if isinstance(found, Layout) else Metadata()
    with source.open("rb", buffering=_READ_BUFFER_NBYTES) as file:
        before = os.fstat(file.fileno())
        stamp = stamp or Stamp(mtime_ns=before.st_mtime_ns, mode=stat.S_IMODE(before.st_mode))
        size = found.size if isinstance(found, Layout) else before.st_size
        with create(archive, recipe.container) as container:
            packing = _Packing(file, container, recipe, report)
            if isinstance(found, Layout):
                _pack_byte_exact(packing, found)
            else:
                _pack_verbatim(packing, size)
            sha256 = packing.digest.hexdigest()
            _check_unchanged(source, file, before, size)
            fields = _fields(source.name, size, sha256)
            marker = {"source": _source_document(source.name, stamp)}
            if isinstance(found, Layout):
                _write_byte_exact(packing, found, said, marker, fields)
            else:
                _write_verbatim(packing, found, marker, fields)
        return Packed(
            mode="byte-exact" if isinstance(found, Layout) else "verbatim",
            reason=None if isinstance(found, Layout) else found.reason,
            detail="" if isinstance(found, Layout) else found.detail,
            source_nbytes=size,
            archive_nbytes=container.nbytes(),
            sha256=sha256,
            warnings=said.warnings,
        )


class _Packing:
    """The source being read and hashed, and the container being written."""

    def __init__(
        self, file: IO[bytes], container: Container, recipe: Recipe, report: Report
    ) -> None:
        self.file = file
        self.container = container
        self.recipe = recipe
        self.digest = hashlib.sha256()
        self._report = report

    def read_into(self, target: memoryview) -> None:
        """Fill ``target`` with the next bytes of the source, hashed block by block."""
        for begin in range(0, len(target), IO_BLOCK_NBYTES):
            block = target[begin : begin + IO_BLOCK_NBYTES]
            got = self.file.readinto(block)  # type: ignore[attr-defined]  # a BufferedReader
            if got != len(block):
                raise SourceChanged("the file became shorter while it was read")
            self.digest.update(block)
            self._report(got)

    @contextmanager
    def pipeline(self) -> Iterator[_Pipeline]:
        """Encoding threads whose results are written in the order of submission."""
        with ThreadPoolExecutor(self.recipe.threads) as pool:
            pipeline = _Pipeline(self.container, pool, self.recipe.threads)
            yield pipeline
            pipeline.flush()


class _Lane:
    """One array being written, and its buffers for chunks that are not encoded yet."""

    def __init__(self, array: Array, chunk_nbytes: int) -> None:
        self.array = array
        self.buffers = Buffers(chunk_nbytes)

    def encode(self, values: npt.NDArray[np.generic]) -> bytes | memoryview:
        """Encoded chunk from its values, whose buffer is given back."""
        encoded = codecs.encode(values.reshape(self.array.chunks), self.array.coding)
        self.buffers.give(values.reshape(-1).view(np.uint8))
        return encoded


class _Pipeline:
    """A bounded row of chunks being encoded; the oldest is written before one too many begins."""

    def __init__(self, container: Container, pool: ThreadPoolExecutor, limit: int) -> None:
        self._container = container
        self._pool = pool
        self._limit = limit
        self._row: deque[tuple[str, Future[bytes | memoryview]]] = deque()

    def submit(self, key: str, encode: Callable[..., bytes | memoryview], *args: Any) -> None:  # noqa: ANN401
        """Encode on a thread; waits while all threads have work."""
        while len(self._row) >= self._limit:
            self._write_oldest()
        self._row.append((key, self._pool.submit(encode, *args)))

    def flush(self) -> None:
        """Write what is still in the row."""
        while self._row:
            self._write_oldest()

    def _write_oldest(self) -> None:
        key, future = self._row.popleft()
        self._container.set(key, future.result())


def _pack_byte_exact(packing: _Packing, found: Layout) -> None:
    """Write ``0`` and ``husk``: one pass over the walk."""
    pixels, rest = _pixel_array(found, packing.recipe), _husk_array(found.husk_nbytes)
    arrays.create(packing.container, pixels)
    arrays.create(packing.container, rest)
    walk = husk.walk(found)
    lane = _Lane(pixels, found.geometry.page_nbytes)
    with packing.pipeline() as pipeline:
        gaps = _Blocks(packing, pipeline, rest)
        for raw, page in _completed(packing, walk, found, gaps, lane.buffers):
            at = planes.coordinate(int(found.index[page]), found.axes, found.leading)
            key = arrays.chunk_key(pixels, (*at, *(0 for _ in found.geometry.shape)))
            pipeline.submit(key, _encode_page, raw, found, lane)
        gaps.flush()


def _completed(
    packing: _Packing, walk: Walk, found: Layout, gaps: _Blocks, buffers: Buffers
) -> Iterator[tuple[npt.NDArray[np.uint8], int]]:
    """Pages as their last step passes: serialized bytes and place in the layout."""
    live: dict[int, npt.NDArray[np.uint8]] = {}
    left = np.bincount(walk.page[walk.page != GAP], minlength=found.page_count)
    for page, position, nbytes in zip(walk.page, walk.position, walk.nbytes, strict=True):
        if page == GAP:
            gaps.take(int(nbytes))
            continue
        if page not in live:
            live[page] = buffers.take()
        packing.read_into(live[page].data[position : position + nbytes])
        left[page] -= 1
        if not left[page]:
            yield live.pop(page), int(page)


def _encode_page(raw: npt.NDArray[np.uint8], found: Layout, lane: _Lane) -> bytes | memoryview:
    return lane.encode(planes.deserialize(raw, found.geometry, lane.buffers))


class _Blocks:
    """Gaps of the source, gathered into the blocks of a 1-D array and never held whole."""

    def __init__(self, packing: _Packing, pipeline: _Pipeline, array: Array) -> None:
        self._packing = packing
        self._pipeline = pipeline
        self._lane = _Lane(array, array.chunks[0])
        self._count = 0
        self._fill = 0
        self._block = self._lane.buffers.take()

    def take(self, nbytes: int) -> None:
        """Read the next ``nbytes`` of the source into the row of blocks."""
        while nbytes:
            part = min(nbytes, len(self._block) - self._fill)
            self._packing.read_into(self._block.data[self._fill : self._fill + part])
            self._fill, nbytes = self._fill + part, nbytes - part
            if self._fill == len(self._block):
                self.flush()

    def flush(self) -> None:
        """Hand the block over, the last one filled up with zeros to a whole chunk (Zarr v2)."""
        if not self._fill:
            return
        self._block[self._fill :] = 0
        key = arrays.chunk_key(self._lane.array, (self._count,))
        self._pipeline.submit(key, self._lane.encode, self._block)
        self._count, self._fill = self._count + 1, 0
        self._block = self._lane.buffers.take()


def _pack_verbatim(packing: _Packing, size: int) -> None:
    """Write ``original``: the whole source in blocks."""
    array = _bytes_array("original", size, VERBATIM_CHUNK_NBYTES)
    arrays.create(packing.container, array)
    with packing.pipeline() as pipeline:
        blocks = _Blocks(packing, pipeline, array)
        blocks.take(size)
        blocks.flush()


def _pixel_array(found: Layout, recipe: Recipe) -> Array:
    leading = planes.canonical_shape(found.axes, found.leading)
    dtype: np.dtype[np.generic] = np.dtype(found.geometry.dtype).newbyteorder("<")
    return Array(
        name="0",
        shape=(*leading, *found.geometry.shape),
        chunks=(*(1 for _ in leading), *found.geometry.shape),
        dtype=dtype,
        coding=codecs.coding(recipe.compressor, recipe.filters),
        fill=0.0 if dtype.kind == "f" else 0,
    )


def _husk_array(nbytes: int) -> Array:
    return _bytes_array("husk", nbytes, HUSK_BLOCK_NBYTES)


def _bytes_array(name: str, nbytes: int, chunk_nbytes: int) -> Array:
    return Array(
        name=name,
        shape=(nbytes,),
        chunks=(max(1, min(nbytes, chunk_nbytes)),),
        dtype=np.dtype(np.uint8),
        coding=codecs.coding(codecs.HUSK_COMPRESSOR, ()),
    )


def _check_unchanged(source: Path, file: IO[bytes], before: os.stat_result, size: int) -> None:
    after = os.fstat(file.fileno())
    moved = (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns)
    if moved or size != after.st_size:
        raise SourceChanged(f"{source}: changed while it was read; it is tried again next run")


# --- documents, which need the hash: after the chunks ---------------------------------------------


def _fields(name: str, size: int, sha256: str) -> dict[str, str | int]:
    """The manifest's scalar fields that every mode has."""
    return {
        "decant_version": f"decant-batch {__version__}",
        "original_name": names.readable(name),
        "original_size": size,
        "original_sha256": sha256,
    }


def _described(found: Layout) -> Described:
    leading = tuple(found.axes[i] for i in planes.canonical_order(found.axes))
    ndim = len(leading) + len(found.geometry.shape)
    return Described(leading=leading, ndim=ndim, dtype=found.geometry.dtype)


def _told(source: Path, found: Layout) -> Metadata:
    """What the source says of its pixels, as far as NGFF can say it too."""
    said = metadata.read(source, found)
    why = ngff.channels_left_out(_described(found), said)
    return said if why is None else replace(said, channels=(), warnings=(*said.warnings, why))


def _write_byte_exact(
    packing: _Packing,
    found: Layout,
    said: Metadata,
    marker: dict[str, Any],
    fields: dict[str, str | int],
) -> None:
    marker |= {"pixels": "0"} | ({"merged": dict(found.merged)} if found.merged else {})
    attributes = {"decant": marker} | ngff.attributes(
        str(fields["original_name"]), _described(found), said
    )
    codec = codecs.describe(packing.recipe.compressor, packing.recipe.filters)
    document = manifest.dump_byte_exact(found, pixel_codec=codec, notes="", **fields)
    if said.ome_xml is not None:
        packing.container.set(ngff.OME_XML, said.ome_xml)
    _write_group(packing.container, attributes, document)


def _write_verbatim(
    packing: _Packing, found: Refusal, marker: dict[str, Any], fields: dict[str, str | int]
) -> None:
    marker |= {"reason": found.reason, "detail": found.detail}
    codec = codecs.describe(codecs.HUSK_COMPRESSOR, ())
    document = manifest.dump_verbatim(pixel_codec=codec, notes=found.reason, **fields)
    _write_group(packing.container, {"decant": marker}, document)


def _write_group(container: Container, attributes: dict[str, Any], document: bytes) -> None:
    container.set(".zgroup", arrays.dump({"zarr_format": 2}))
    container.set(".zattrs", arrays.dump(attributes))
    container.set(manifest.KEY, document)


def _source_document(name: str, stamp: Stamp) -> dict[str, Any]:
    """``.zattrs["decant"]["source"]``: what restore puts back beside the bytes."""
    relpath = stamp.relpath if stamp.relpath is not None else name
    document: dict[str, Any] = {"mtime_ns": stamp.mtime_ns, "mode": stamp.mode}
    if stamp.relpath is not None:
        document["relpath"] = names.readable(relpath)
    if names.readable(relpath) != relpath:
        key = "name_bytes" if stamp.relpath is None else "relpath_bytes"
        document[key] = names.to_hex(relpath)
    return document
