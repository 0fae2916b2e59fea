"""One Zarr v2 array: its ``.zarray`` document, and its chunks read and written.

Written here: C order, ``/`` between the indices of a chunk key, and every chunk, also an all-zero
one. Read here: whatever Zarr v2 allows (``.`` or ``/``, F order, missing chunks, any codec).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from decant_batch.archive import codecs
from decant_batch.archive.codecs import Coding
from decant_batch.archive.container import Container
from decant_batch.archive.model import MAX_PAGE_NBYTES
from decant_batch.errors import ArchiveDamaged, UsageError

_MAX_DIMENSIONS = 32
_MAX_PARTS = 1_000_000  # chunks of one plane


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """An array as its ``.zarray`` describes it; holds no chunk."""

    name: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[np.generic]
    coding: Coding
    fill: int | float | complex = 0
    separator: str = "/"
    order: Literal["C", "F"] = "C"

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of one decoded chunk."""
        return math.prod(self.chunks) * self.dtype.itemsize


def dump(document: Mapping[str, Any]) -> bytes:
    """Canonical JSON: keys sorted, no blanks, ASCII; the same value gives the same bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def create(container: Container, array: Array) -> None:
    """Write the array's ``.zarray``."""
    container.set(f"{array.name}/.zarray", document(array))


def document(array: Array) -> bytes:
    """The array's ``.zarray``."""
    codings = array.coding
    fields = {
        "zarr_format": 2,
        "shape": array.shape,
        "chunks": array.chunks,
        "dtype": array.dtype.str,
        "compressor": None if codings.compressor is None else codecs.config(codings.compressor),
        "filters": [codecs.config(codec) for codec in codings.filters] or None,
        "fill_value": [0.0, 0.0] if array.dtype.kind == "c" else array.fill,
        "order": array.order,
        "dimension_separator": array.separator,
    }
    return dump(fields)


def open_array(container: Container, name: str) -> Array:
    """The array ``name`` of a container.

    Raises
    ------
    ArchiveDamaged
        Where it is missing or its document is not that of a Zarr v2 array.
    """
    try:
        document = json.loads(container.get(f"{name}/.zarray"))
        return _parsed(name, document)
    except KeyError as error:
        raise ArchiveDamaged(f"{container.path}: array {name}: {error} is missing") from error
    except _DOCUMENT_ERRORS as error:
        raise ArchiveDamaged(f"{container.path}: array {name}: {error}") from error


# What JSON, numpy and numcodecs say of a document that is not one.
_DOCUMENT_ERRORS = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    SyntaxError,
    RecursionError,
    UsageError,
)
# A chunk may be larger than its array, but a small array has no reason for a huge one.
_SMALL_NBYTES = 64 << 20


def _parsed(name: str, document: Any) -> Array:  # noqa: ANN401 - JSON
    shape, chunks = (_lengths(document[key]) for key in ("shape", "chunks"))
    # An axis without length needs no chunks: zarr writes a chunk length of 0 then.
    chunks = tuple(n if n or length else 1 for n, length in zip(chunks, shape, strict=False))
    order, separator = document.get("order", "C"), document.get("dimension_separator", ".")
    if len(shape) != len(chunks) or not 1 <= len(shape) <= _MAX_DIMENSIONS or 0 in chunks:
        raise ValueError(f"shape {shape} and chunks {chunks} do not fit each other")
    if document["zarr_format"] != 2 or order not in ("C", "F") or separator not in (".", "/"):
        raise ValueError("not a Zarr v2 array document")
    dtype = np.dtype(document["dtype"])
    if dtype.kind not in "biufc":
        raise ValueError(f"dtype {dtype} is not numeric")
    chunk_nbytes = math.prod(chunks) * dtype.itemsize
    if chunk_nbytes > max(4 * math.prod(shape) * dtype.itemsize, _SMALL_NBYTES):
        raise ValueError(f"chunks {chunks} are too large for the shape {shape}")
    fill = _fill(document.get("fill_value"), dtype)
    np.full((), fill, dtype)  # raises where the dtype cannot hold it
    return Array(
        name=name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        coding=codecs.coding(document["compressor"], document.get("filters") or ()),
        fill=fill,
        separator=separator,
        order=order,
    )


def _lengths(values: Any) -> tuple[int, ...]:  # noqa: ANN401 - JSON
    lengths = tuple(values)
    if not all(type(length) is int and length >= 0 for length in lengths):
        raise ValueError(f"{values!r} is not a list of lengths")
    return lengths


def _fill(value: Any, dtype: np.dtype[np.generic]) -> int | float | complex:  # noqa: ANN401 - JSON
    """The value of missing chunks; null means that it does not matter."""
    if value is None:
        return 0
    if dtype.kind == "c" and isinstance(value, list):
        return complex(float(value[0]), float(value[1]))
    number = float(value) if isinstance(value, str) else value
    if not isinstance(number, (int, float)):
        raise TypeError(f"fill_value {value!r} is not a number")
    return number


def chunk_key(array: Array, index: Sequence[int]) -> str:
    """Key of the chunk at ``index`` of the chunk grid."""
    return f"{array.name}/{array.separator.join(map(str, index))}"


def read_chunk(
    container: Container,
    array: Array,
    index: Sequence[int],
    out: npt.NDArray[np.generic] | None = None,
) -> npt.NDArray[np.generic]:
    """Values of one chunk, in the chunk's full shape; the fill value where it is missing.

    They are put into ``out`` if it is given: contiguous, of the array's dtype and a chunk's size.

    Raises
    ------
    ArchiveDamaged
        Where the chunk's bytes are damaged or decode to another size.
    """
    key = chunk_key(array, index)
    if array.chunk_nbytes > MAX_PAGE_NBYTES:  # numcodecs' limit too: such a chunk cannot exist
        raise ArchiveDamaged(f"{container.path}: chunk {key}: {array.chunk_nbytes} bytes declared")
    flat = np.empty(math.prod(array.chunks), array.dtype) if out is None else out.reshape(-1)
    try:
        fits = codecs.decode(container.get(key), array.coding, flat)
    except KeyError:
        flat[:] = array.fill
        fits = True
    except codecs.DECODE_ERRORS as error:
        raise ArchiveDamaged(f"{container.path}: chunk {key}: {error}") from error
    if not fits:
        raise ArchiveDamaged(f"{container.path}: chunk {key}: not {array.chunk_nbytes} bytes")
    return flat.reshape(array.chunks, order=array.order)


def read_plane(
    container: Container,
    array: Array,
    coordinate: Sequence[int],
    out: npt.NDArray[np.generic],
) -> None:
    """Fill ``out``, (Y, X) or (Y, X, S), with the plane at ``coordinate`` of the leading axes.

    Where the plane is one chunk, as in every archive that we write, it is decoded in place; chunks
    of other shapes are read one by one, each as often as planes have a part in it.
    """
    leading = len(array.shape) - out.ndim
    head = [int(i) // n for i, n in zip(coordinate, array.chunks, strict=False)]
    if array.order == "C" and array.chunks == (*(1 for _ in head), *out.shape):
        read_chunk(container, array, [*head, *(0 for _ in out.shape)], out)
        return
    within = tuple(int(i) % n for i, n in zip(coordinate, array.chunks, strict=False))
    steps = array.chunks[leading:]
    grid = [math.ceil(n / step) for n, step in zip(out.shape, steps, strict=True)]
    if math.prod(grid) > _MAX_PARTS:
        raise ArchiveDamaged(f"{container.path}: a plane in {math.prod(grid)} chunks")
    for tail in np.ndindex(*grid):
        part = out[tuple(slice(i * n, (i + 1) * n) for i, n in zip(tail, steps, strict=True))]
        chunk = read_chunk(container, array, [*head, *tail])[within]
        part[...] = chunk[tuple(slice(0, length) for length in part.shape)]


def blocks(container: Container, array: Array) -> Iterator[memoryview]:
    """Bytes of a 1-D uint8 array, block by block; one block is held at a time."""
    length, step = array.shape[0], array.chunks[0]
    for i in range(math.ceil(length / step)):
        values = read_chunk(container, array, (i,))
        yield memoryview(values[: min(step, length - i * step)].view(np.uint8).data)
