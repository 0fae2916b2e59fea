"""From a source's bytes to encoded chunks: read once in offset order, encoded by a few threads.

Each byte goes either to the husk or to its page; a page is encoded when its last step has passed,
and written in the order in which pages were completed, so an archive's bytes do not depend on the
threads. The design's section 4 says what memory that takes.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from decant_batch.archive import arrays, codecs, husk, planes, pyramid
from decant_batch.archive.arrays import Array
from decant_batch.archive.buffers import Buffers
from decant_batch.archive.container import Container
from decant_batch.archive.husk import GAP, HUSK_BLOCK_NBYTES, Walk
from decant_batch.archive.model import Geometry, Layout, Recipe, Report
from decant_batch.errors import SourceChanged

IO_BLOCK_NBYTES = 1 << 20
# Smaller than a block, so that blocks go straight to where they belong and not through the buffer:
# it is for small strips and gaps.
_READ_BUFFER_NBYTES = 128 << 10
Encoded = bytes | memoryview


class Reading:
    """A source being read and hashed from its start; ``status`` is what the system said of it."""

    def __init__(self, file: IO[bytes], report: Report) -> None:
        self._file = file
        self._report = report
        self.digest = hashlib.sha256()
        self.status = os.fstat(file.fileno())

    def read_into(self, target: memoryview) -> None:
        """Fill ``target`` with the next bytes of the source, hashed block by block.

        Raises
        ------
        SourceChanged
            Where the source has no more bytes.
        """
        for begin in range(0, len(target), IO_BLOCK_NBYTES):
            block = target[begin : begin + IO_BLOCK_NBYTES]
            got = self._file.readinto(block)  # type: ignore[attr-defined]  # a BufferedReader
            if got != len(block):
                raise SourceChanged("the file became shorter while it was read")
            self.digest.update(block)
            self._report(got)


@contextmanager
def reading(source: Path, size: int | None, report: Report) -> Iterator[Reading]:
    """A source of ``size`` bytes, if that is known, opened and read to its end.

    Raises
    ------
    SourceChanged
        At the end, where size, time or length moved during the read.
    """
    with source.open("rb", buffering=_READ_BUFFER_NBYTES) as file:
        opened = Reading(file, report)
        yield opened
        before, after = opened.status, os.fstat(file.fileno())
    moved = (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns)
    if moved or size not in (None, after.st_size):
        raise SourceChanged(f"{source}: changed while it was read; it is tried again next run")


class Pipeline:
    """A bounded row of chunks being encoded; the oldest is written before one too many begins."""

    def __init__(self, container: Container, pool: ThreadPoolExecutor, limit: int) -> None:
        self._container = container
        self._pool = pool
        self._limit = limit
        self._row: deque[tuple[Sequence[str], Future[Sequence[Encoded]]]] = deque()

    def submit(
        self,
        keys: Sequence[str],
        encode: Callable[..., Sequence[Encoded]],
        *args: Any,  # noqa: ANN401
    ) -> None:
        """Encode on a thread what is written under ``keys``; waits while all threads have work."""
        while len(self._row) >= self._limit:
            self._write_oldest()
        self._row.append((keys, self._pool.submit(encode, *args)))

    def put(self, key: str, value: bytes) -> None:
        """Write ``value`` in its turn."""
        done = Future[Sequence[Encoded]]()
        done.set_result([value])
        self._row.append(([key], done))

    def flush(self) -> None:
        """Write what is still in the row."""
        while self._row:
            self._write_oldest()

    def _write_oldest(self) -> None:
        keys, future = self._row.popleft()
        for key, encoded in zip(keys, future.result(), strict=True):
            self._container.set(key, encoded)


@contextmanager
def pipeline(container: Container, threads: int) -> Iterator[Pipeline]:
    """Encoding threads whose results are written in the order of submission."""
    with ThreadPoolExecutor(threads) as pool:
        row = Pipeline(container, pool, threads)
        yield row
        row.flush()


class Lanes:
    """The arrays that planes go to: ``0``, then its levels; and buffers for planes under way."""

    def __init__(self, geometry: Geometry, canonical: tuple[int, ...], recipe: Recipe) -> None:
        """``canonical`` are the lengths of the leading axes in the order of ``0``."""
        self.shapes = [geometry.shape, *pyramid.shapes(geometry.shape, recipe.pyramid)]
        self.arrays = [
            _pixel_array(str(number), canonical, shape, geometry.dtype, recipe)
            for number, shape in enumerate(self.shapes)
        ]
        self.buffers = Buffers(geometry.page_nbytes)
        self.method = recipe.pyramid.method if recipe.pyramid else "nearest"

    def keys(self, coordinate: Sequence[int]) -> list[str]:
        """Keys of a plane's chunks, one for each array."""
        tail = [0 for _ in self.shapes[0]]
        return [arrays.chunk_key(array, (*coordinate, *tail)) for array in self.arrays]

    def encode(self, raw: npt.NDArray[np.uint8], geometry: Geometry) -> list[Encoded]:
        """Encoded chunks of a page from its serialized bytes, whose buffer is given back."""
        plane = planes.deserialize(raw, geometry, self.buffers)
        full, encoded = plane, list[Encoded]()
        for array in self.arrays:
            encoded.append(codecs.encode(plane.reshape(array.chunks), array.coding))
            if len(encoded) < len(self.arrays):
                plane = pyramid.halved(plane, self.method)
        self.buffers.give(full.reshape(-1).view(np.uint8))
        return encoded


def pack_pages(reading: Reading, row: Pipeline, found: Layout, rest: Array, lanes: Lanes) -> None:
    """Write the pages and the husk of one source: one pass over the walk.

    ``rest`` is the husk's array. The index of a page, its axes and their lengths are those of the
    whole array ``0``, also where it is shared by several sources.
    """
    gaps = Blocks(reading, row, rest)
    for raw, page in _completed(reading, husk.walk(found), found, gaps, lanes.buffers):
        at = planes.coordinate(int(found.index[page]), found.axes, found.leading)
        row.submit(lanes.keys(at), lanes.encode, raw, found.geometry)
    gaps.flush()


def _completed(
    reading: Reading, walk: Walk, found: Layout, gaps: Blocks, buffers: Buffers
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
        reading.read_into(live[page].data[position : position + nbytes])
        left[page] -= 1
        if not left[page]:
            yield live.pop(page), int(page)


class Blocks:
    """Bytes of the source, gathered into the blocks of a 1-D array and never held whole."""

    def __init__(self, reading: Reading, row: Pipeline, array: Array) -> None:
        self._reading = reading
        self._pipeline = row
        self._array = array
        self._buffers = Buffers(array.chunks[0])
        self._count = 0
        self._fill = 0
        self._block = self._buffers.take()

    def take(self, nbytes: int) -> None:
        """Read the next ``nbytes`` of the source into the row of blocks."""
        while nbytes:
            part = min(nbytes, len(self._block) - self._fill)
            self._reading.read_into(self._block.data[self._fill : self._fill + part])
            self._fill, nbytes = self._fill + part, nbytes - part
            if self._fill == len(self._block):
                self.flush()

    def flush(self) -> None:
        """Hand the block over, the last one filled up with zeros to a whole chunk (Zarr v2)."""
        if not self._fill:
            return
        self._block[self._fill :] = 0
        key = arrays.chunk_key(self._array, (self._count,))
        self._pipeline.submit([key], self._encode, self._block)
        self._count, self._fill = self._count + 1, 0
        self._block = self._buffers.take()

    def _encode(self, block: npt.NDArray[np.uint8]) -> list[Encoded]:
        encoded = codecs.encode(block, self._array.coding)
        self._buffers.give(block)
        return [encoded]


def _pixel_array(
    name: str, canonical: tuple[int, ...], shape: tuple[int, ...], kind: str, recipe: Recipe
) -> Array:
    dtype: np.dtype[np.generic] = np.dtype(kind).newbyteorder("<")
    return Array(
        name=name,
        shape=(*canonical, *shape),
        chunks=(*(1 for _ in canonical), *shape),
        dtype=dtype,
        coding=codecs.coding(recipe.compressor, recipe.filters),
        fill=0.0 if dtype.kind == "f" else 0,
    )


def husk_array(name: str, nbytes: int) -> Array:
    """The array of a husk of ``nbytes``."""
    return bytes_array(name, nbytes, HUSK_BLOCK_NBYTES)


def bytes_array(name: str, nbytes: int, chunk_nbytes: int) -> Array:
    """A 1-D array of ``nbytes`` bytes in chunks of ``chunk_nbytes``, or one smaller chunk."""
    return Array(
        name=name,
        shape=(nbytes,),
        chunks=(max(1, min(nbytes, chunk_nbytes)),),
        dtype=np.dtype(np.uint8),
        coding=codecs.coding(codecs.HUSK_COMPRESSOR, ()),
    )
