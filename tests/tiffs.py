"""TIFFs built by hand: what is in them is known from how they were put together.

::

    ifd first:  header | lead | IFDs | gap segment gap segment ... | trailing
    ifd last:   header | lead | gap segment gap segment ... | IFDs | trailing

Nothing here reads a TIFF; tests/test_tiffs.py holds what is built against tifffile.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

Pixels = npt.NDArray[Any]
Values = Sequence[int] | bytes
Tag = tuple[int, Values]  # data type of the TIFF, values; bytes for ASCII
Tags = dict[int, Tag]

DTYPES = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)

_ASCII, _SHORT, _LONG, _LONG8 = 2, 3, 4, 16
_FORMATS = {_SHORT: "H", _LONG: "I", _LONG8: "Q"}
_SAMPLE_FORMATS = {"u": 1, "i": 2, "f": 3, "c": 6}
# Largest prime that 1-byte, 2-byte and float16 samples hold: no plane is as long as a multiple of
# it, so two planes never look alike. Wider samples count on.
_WRAP = {"int8": 251, "uint8": 251, "int16": 65521, "uint16": 65521, "float16": 2039}


@dataclass(frozen=True, slots=True, kw_only=True)
class TiffSpec:
    """One TIFF. ``tile_width`` 0 means strips, and then ``rows_per_strip`` 0 means one strip.

    ``gap`` is the most bytes put before each segment, random and never zero; ``edge_padding`` says
    that tiles are padded with such bytes, not with zeros. ``order`` is that of the segments of all
    pages in the file: shuffled, pages interleave.
    """

    big: bool = False
    byteorder: Literal["<", ">"] = "<"
    dtype: str = "uint16"
    pages: int = 1
    shape: tuple[int, int] = (5, 7)
    samples: int = 1
    planar: bool = False
    rows_per_strip: int = 0
    tile_width: int = 0
    tile_length: int = 0
    gap: int = 0
    order: Literal["in-order", "reversed", "shuffled"] = "in-order"
    ifds: Literal["first", "last"] = "first"
    lead: int = 0
    trailing: int = 0
    edge_padding: bool = False
    pixels: Literal["coordinate", "special", "random", "zero"] = "coordinate"
    seed: int = 0

    @property
    def rows(self) -> int:
        """Rows of a tile or of a full strip."""
        return self.tile_length or self.rows_per_strip or self.shape[0]

    @property
    def columns(self) -> int:
        """Columns of a tile or of a strip."""
        return self.tile_width or self.shape[1]

    @property
    def file_dtype(self) -> np.dtype[Any]:
        """Data type of the samples, in the file's byte order."""
        return np.dtype(self.dtype).newbyteorder(self.byteorder)


# --- pixels -----------------------------------------------------------------------------------


def planes(spec: TiffSpec) -> Pixels:
    """True pixels, (pages, Y, X, S) in native byte order, also where the file is planar."""
    shape = (spec.pages, *spec.shape, spec.samples)
    made = {"coordinate": _coordinates, "special": _special, "random": _random, "zero": _zeros}
    return made[spec.pixels](spec, math.prod(shape)).view(spec.dtype).reshape(shape)


def _coordinates(spec: TiffSpec, count: int) -> Pixels:
    """Each sample holds 1 + its C-order index in (page, y, x, s), so that it names its place."""
    index = np.arange(count, dtype=np.uint64)
    wrapped = 1 + index % np.uint64(_WRAP.get(spec.dtype, 2**24 - 3))
    if spec.dtype == "int8":
        return wrapped.astype(np.uint8)
    if np.dtype(spec.dtype).kind == "c":  # the parts differ, so that swapping them shows
        return (wrapped - 1j * wrapped[::-1]).astype(spec.dtype)
    return wrapped.astype(np.uint16 if spec.dtype == "int16" else spec.dtype)


def _special(spec: TiffSpec, count: int) -> Pixels:
    dtype = np.dtype(spec.dtype)
    if dtype.kind not in "fc":
        info = np.iinfo(dtype)
        return np.resize(np.array([info.min, info.max, 0, 1, info.max - 1], dtype), count)
    parts = 2 if dtype.kind == "c" else 1
    bits = special_floats(dtype.itemsize // parts)
    return np.resize(bits, count * parts)


def special_floats(nbytes: int) -> Pixels:
    """Bit patterns that arithmetic would change: -0.0, infinities, NaNs with payloads."""
    mantissa = {2: 10, 4: 23, 8: 52}[nbytes]
    sign, quiet = 1 << (8 * nbytes - 1), 1 << (mantissa - 1)
    infinity = sign - (1 << mantissa)
    signalling, payload = infinity | 1, infinity | quiet | 0x155
    patterns = [sign, infinity, sign | infinity, signalling, sign | signalling, payload]
    return np.array([*patterns, sign | payload, 1, sign | 1, infinity - 1], f"u{nbytes}")


def _random(spec: TiffSpec, count: int) -> Pixels:
    raw = np.random.default_rng(spec.seed).bytes(count * np.dtype(spec.dtype).itemsize)
    return np.frombuffer(raw, np.uint8)


def _zeros(spec: TiffSpec, count: int) -> Pixels:
    return np.zeros(count, spec.dtype)


# --- segments ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One strip or tile as it stands in the file: its bytes, and where its real pixels are.

    ``real`` lists (position within ``data``, nbytes): all of a strip, each real row of a tile with
    padding at its right edge.
    """

    page: int
    data: bytes
    real: tuple[tuple[int, int], ...]


def _segments(spec: TiffSpec) -> list[Segment]:
    """Strips or tiles, page after page, in the order of the offsets' tag."""
    noise = random.Random(spec.seed)
    found = []
    for page, plane in enumerate(planes(spec).astype(spec.file_dtype, copy=False)):
        pixels = _in_file_order(plane, spec)
        parts = np.split(pixels, spec.samples, axis=2) if spec.planar else [pixels]
        found += [_segment(page, block, spec, noise) for part in parts for block in _grid(part, spec)]
    return found


def _in_file_order(plane: Pixels, spec: TiffSpec) -> Pixels:
    """The same bits; ``astype`` has given the values another byte order already."""
    assert plane.dtype == spec.file_dtype
    return plane


def _grid(part: Pixels, spec: TiffSpec) -> Iterator[Pixels]:
    for y in range(0, spec.shape[0], spec.rows):
        for x in range(0, spec.shape[1], spec.columns):
            yield part[y : y + spec.rows, x : x + spec.columns]


def _segment(page: int, block: Pixels, spec: TiffSpec, noise: random.Random) -> Segment:
    rows, columns, samples = block.shape
    pixel = samples * spec.file_dtype.itemsize
    if not spec.tile_width:
        data = block.tobytes()
        return Segment(page=page, data=data, real=((0, len(data)),))
    stride = spec.tile_width * pixel
    tile = bytearray(spec.tile_length * stride)
    if spec.edge_padding:
        tile = bytearray(_noise(noise, len(tile)))
    for row in range(rows):
        tile[row * stride : row * stride + columns * pixel] = block[row].tobytes()
    real = tuple((row * stride, columns * pixel) for row in range(rows))
    if columns == spec.tile_width:
        real = ((0, rows * stride),)
    return Segment(page=page, data=bytes(tile), real=real)


def _noise(noise: random.Random, nbytes: int) -> bytes:
    return bytes(noise.choices(range(1, 256), k=nbytes))
