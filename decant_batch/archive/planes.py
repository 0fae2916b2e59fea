"""Where each plane goes: page index <-> coordinate in array ``0``, pixels <-> bytes in the file.

This is the only module that knows both the storage order of pages and the canonical order of
array ``0`` (spec section 5), and the order in which strips and tiles serialize a page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from decant_batch.archive.buffers import Buffers
from decant_batch.archive.model import Geometry

_RANK = {"t": 0, "z": 2, "y": 2, "x": 2}  # everything else is channel or custom
_CHANNEL_RANK = 1


def canonical_order(axes: Sequence[str]) -> tuple[int, ...]:
    """Indices that stable-sort ``axes`` into time -> channel/custom -> space (``perm``)."""
    return tuple(sorted(range(len(axes)), key=lambda i: _RANK.get(axes[i], _CHANNEL_RANK)))


def canonical_shape(axes: Sequence[str], leading: Sequence[int]) -> tuple[int, ...]:
    """Lengths of the leading axes of ``0`` from those in storage order."""
    return tuple(leading[i] for i in canonical_order(axes))


def storage_shape(axes: Sequence[str], canonical: Sequence[int]) -> tuple[int, ...]:
    """Lengths in storage order from the leading axes of ``0``; the inverse of canonical_shape.

    Empty ``axes`` mean a plain unravel (spec section 4b, ``plane_order``).
    """
    if not axes:
        return tuple(canonical)
    perm = canonical_order(axes)
    return tuple(canonical[perm.index(i)] for i in range(len(perm)))


def coordinate(index: int, axes: Sequence[str], leading: Sequence[int]) -> tuple[int, ...]:
    """Coordinate in the leading axes of ``0`` of the page ``index`` (storage order, C-order)."""
    stored = tuple(int(i) for i in np.unravel_index(index, tuple(leading)))
    return tuple(stored[i] for i in canonical_order(axes)) if axes else stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """The real pixels of one tile: rows ``y:y + rows`` and columns ``x:x + columns``.

    ``sample`` is None where all samples of a pixel lie together.
    """

    sample: int | None
    y: int
    x: int
    rows: int
    columns: int


def tiles(geometry: Geometry) -> Iterator[Tile]:
    """Tiles of a page in the order in which they serialize: sample, then row-major (section 5)."""
    height, width = geometry.shape[:2]
    samples: Sequence[int | None] = range(geometry.samples) if geometry.planar else (None,)
    for sample in samples:
        for row in range(math.ceil(height / geometry.tile_length)):
            y = row * geometry.tile_length
            for column in range(math.ceil(width / geometry.tile_width)):
                x = column * geometry.tile_width
                yield Tile(
                    sample=sample,
                    y=y,
                    x=x,
                    rows=min(geometry.tile_length, height - y),
                    columns=min(geometry.tile_width, width - x),
                )


def is_plain(geometry: Geometry) -> bool:
    """True where the file has a page's bytes in the array's own order: no copy is needed."""
    return not geometry.tile_width and (not geometry.planar or geometry.samples == 1)


def deserialize(
    raw: npt.NDArray[np.uint8], geometry: Geometry, buffers: Buffers
) -> npt.NDArray[np.generic]:
    """Plane (Y, X) or (Y, X, S), little-endian, from the page's bytes in serialized order.

    Bytes are swapped in place in ``raw``, which the plane is a view of where the page is plain;
    else the plane is a buffer of its own and ``raw`` goes back to ``buffers``.
    """
    values = raw.view(_little(geometry))
    _swap(values, geometry)
    if is_plain(geometry):
        return values.reshape(geometry.shape)
    plane = buffers.take().view(values.dtype).reshape(geometry.shape)
    for part, block in _blocks(plane, values, geometry):
        part[...] = block.reshape(part.shape)
    buffers.give(raw)
    return plane


def serialize(
    plane: npt.NDArray[np.generic], geometry: Geometry, buffers: Buffers
) -> npt.NDArray[np.uint8]:
    """Page's bytes in serialized order from its plane, the inverse of deserialize.

    ``plane`` is contiguous and little-endian; its buffer is taken over in the same way.
    """
    if is_plain(geometry):
        values = plane.reshape(-1)
    else:
        values = buffers.take().view(plane.dtype)
        for part, block in _blocks(plane, values, geometry):
            block[...] = part.reshape(-1)
        buffers.give(plane.reshape(-1).view(np.uint8))
    _swap(values, geometry)
    return values.view(np.uint8)


def _little(geometry: Geometry) -> np.dtype[np.generic]:
    return np.dtype(geometry.dtype).newbyteorder("<")


def _swap(values: npt.NDArray[np.generic], geometry: Geometry) -> None:
    """Turn the byte order round in place; bits stay as they are, NaN payloads included."""
    if geometry.byteorder == ">" and geometry.itemsize > 1:
        values.byteswap(inplace=True)


def _blocks(
    plane: npt.NDArray[np.generic], values: npt.NDArray[np.generic], geometry: Geometry
) -> Iterator[tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]]:
    """Pairs of views (part of the plane, its run of serialized values), in serialized order."""
    position = 0
    for part in _parts(plane, geometry):
        yield part, values[position : position + part.size]
        position += part.size


def _parts(plane: npt.NDArray[np.generic], geometry: Geometry) -> Iterator[npt.NDArray[np.generic]]:
    """Views of the plane, one per tile or per sample, in serialized order."""
    if not geometry.tile_width:
        for sample in range(geometry.samples):
            yield plane[..., sample]
        return
    for tile in tiles(geometry):
        part = plane[tile.y : tile.y + tile.rows, tile.x : tile.x + tile.columns]
        yield part if tile.sample is None or plane.ndim == 2 else part[..., tile.sample]
