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
ByteOrder = Literal["<", ">"]
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
# Largest prime that such samples count to: the length of a plane whose sides are shorter is never a
# multiple of it, so no two planes look alike.
_WRAP = {"int8": 251, "uint8": 251, "int16": 65521, "uint16": 65521, "float16": 2039}


@dataclass(frozen=True, slots=True, kw_only=True)
class TiffSpec:
    """One TIFF. ``tile_width`` 0 means strips, and then ``rows_per_strip`` 0 means one strip.

    ``gap`` is the most bytes put before each segment, random and never zero; ``edge_padding`` says
    that tiles are padded with such bytes, not with zeros. ``order`` is that of the segments of all
    pages in the file: shuffled, pages interleave.
    """

    big: bool = False
    byteorder: ByteOrder = "<"
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
    noise, found = random.Random(spec.seed), []
    for page, plane in enumerate(_in_file_order(planes(spec), spec)):
        for part in np.split(plane, spec.samples, axis=2) if spec.planar else [plane]:
            found += [_segment(page, block, spec, noise) for block in _grid(part, spec)]
    return found


def _in_file_order(values: Pixels, spec: TiffSpec) -> Pixels:
    """The same bits in the file's byte order: bytes are moved, never values converted."""
    swapped = values.dtype != spec.file_dtype
    return values.byteswap().view(spec.file_dtype) if swapped else values


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


# --- the file ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A TIFF, and each page's real pixels as (offset, nbytes) in the order of serialization."""

    data: bytes
    segments: tuple[tuple[tuple[int, int], ...], ...]


Patch = Callable[[int, Tags], Tags]


def build(spec: TiffSpec) -> bytes:
    """The file."""
    return built(spec).data


def built(spec: TiffSpec, patch: Patch | None = None, *, loop: bool = False) -> Built:
    """The file, and where its pixels are.

    ``patch`` changes the tags of a page, given its number; with ``loop`` the last IFD is followed
    by the first.
    """
    found = _segments(spec)
    body, within = _body(spec, found)
    start = _even((16 if spec.big else 8) + spec.lead)
    ifds = _Ifds(spec=spec, segments=found, patch=patch or _unchanged, loop=loop)
    is_first = spec.ifds == "first"
    data_at = start + len(ifds.dump(start, within)) if is_first else start
    ifds_at = start if is_first else _even(data_at + len(body))
    offsets = [data_at + position for position in within]
    noise, head = random.Random(spec.seed + 2), _header(spec, ifds_at)
    file = bytearray(head + _noise(noise, start - len(head)))
    _put(file, data_at, body)
    _put(file, ifds_at, ifds.dump(ifds_at, offsets))
    file += _noise(noise, spec.trailing)
    return Built(data=bytes(file), segments=_real(spec, found, offsets))


def _even(position: int) -> int:
    """IFDs and values begin at an even offset (TIFF 6.0, section 2)."""
    return position + position % 2


def _put(file: bytearray, at: int, data: bytes) -> None:
    """Place ``data``; what is missing before it becomes zeros."""
    file.extend(bytes(max(0, at - len(file))))
    file[at : at + len(data)] = data


def _body(spec: TiffSpec, found: Sequence[Segment]) -> tuple[bytes, list[int]]:
    """Gaps and segments as they follow each other; the position of each segment in it."""
    noise = random.Random(spec.seed + 1)
    sequence = list(range(len(found)))
    if spec.order == "reversed":
        sequence.reverse()
    elif spec.order == "shuffled":
        noise.shuffle(sequence)
    body, within = bytearray(), [0] * len(found)
    for i in sequence:
        body += _noise(noise, noise.randint(1, spec.gap) if spec.gap else 0)
        within[i] = len(body)
        body += found[i].data
    return bytes(body), within


def _real(
    spec: TiffSpec, found: Sequence[Segment], offsets: Sequence[int]
) -> tuple[tuple[tuple[int, int], ...], ...]:
    pages: list[list[tuple[int, int]]] = [[] for _ in range(spec.pages)]
    for segment, offset in zip(found, offsets, strict=True):
        pages[segment.page] += [(offset + start, nbytes) for start, nbytes in segment.real]
    return tuple(map(tuple, pages))


def _header(spec: TiffSpec, first: int) -> bytes:
    mark = b"II" if spec.byteorder == "<" else b"MM"
    if spec.big:
        return mark + struct.pack(f"{spec.byteorder}HHHQ", 43, 8, 0, first)
    return mark + struct.pack(f"{spec.byteorder}HI", 42, first)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ifds:
    """The chain of IFDs, each followed by its values; its length depends on no offset."""

    spec: TiffSpec
    segments: Sequence[Segment]
    patch: Patch
    loop: bool

    def dump(self, at: int, offsets: Sequence[int]) -> bytes:
        """The chain as it stands at the offset ``at``, which is even."""
        return b"".join(self._chain(at, offsets))

    def _chain(self, at: int, offsets: Sequence[int]) -> Iterator[bytes]:
        first, last = at, self.spec.pages - 1
        for page, (own, counts) in enumerate(self._pages(offsets)):
            tags = self.patch(page, _tags(self.spec, own, counts))
            after = at + len(_ifd(self.spec, tags, at, 0))
            yield _ifd(self.spec, tags, at, after if page < last else first * self.loop)
            at = after

    def _pages(self, offsets: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        pages: list[tuple[list[int], list[int]]] = [([], []) for _ in range(self.spec.pages)]
        for segment, offset in zip(self.segments, offsets, strict=True):
            pages[segment.page][0].append(offset)
            pages[segment.page][1].append(len(segment.data))
        return pages


def _tags(spec: TiffSpec, offsets: Sequence[int], counts: Sequence[int]) -> Tags:
    """Tags of one page; numbers are those of TIFF 6.0."""
    dtype, long = np.dtype(spec.dtype), _LONG8 if spec.big else _LONG
    colours = 3 if spec.samples >= 3 else 1
    tags: Tags = {
        256: (_LONG, [spec.shape[1]]),
        257: (_LONG, [spec.shape[0]]),
        258: (_SHORT, [8 * dtype.itemsize] * spec.samples),
        259: (_SHORT, [1]),
        262: (_SHORT, [2 if colours == 3 else 1]),
        277: (_SHORT, [spec.samples]),
        284: (_SHORT, [2 if spec.planar else 1]),
        339: (_SHORT, [_SAMPLE_FORMATS[dtype.kind]] * spec.samples),
    }
    if spec.samples > colours:
        tags[338] = (_SHORT, [0] * (spec.samples - colours))
    if spec.tile_width:
        tags |= {322: (_LONG, [spec.tile_width]), 323: (_LONG, [spec.tile_length])}
        return tags | {324: (long, offsets), 325: (long, counts)}
    return tags | {273: (long, offsets), 278: (_LONG, [spec.rows]), 279: (long, counts)}


def _ifd(spec: TiffSpec, tags: Tags, at: int, after: int) -> bytes:
    """One IFD at the offset ``at`` and the values that do not fit into its entries."""
    count, entry, word = ("Q", "HHQ", "Q") if spec.big else ("H", "HHI", "I")
    room = struct.calcsize(word)
    values_at = at + struct.calcsize(f"={count}") + len(tags) * (4 + 2 * room) + room
    entries, values = b"", b""
    for code, (kind, content) in sorted(tags.items()):
        raw = _packed(spec, kind, content)
        entries += struct.pack(f"{spec.byteorder}{entry}", code, kind, len(content))
        if len(raw) > room:
            values += bytes((values_at + len(values)) % 2)
            entries += struct.pack(f"{spec.byteorder}{word}", values_at + len(values))
            values += raw
        else:
            entries += raw.ljust(room, b"\0")
    head = struct.pack(f"{spec.byteorder}{count}", len(tags))
    whole = head + entries + struct.pack(f"{spec.byteorder}{word}", after) + values
    return whole + bytes(len(whole) % 2)


def _packed(spec: TiffSpec, kind: int, content: Values) -> bytes:
    if isinstance(content, bytes):
        return content
    return struct.pack(f"{spec.byteorder}{len(content)}{_FORMATS[kind]}", *content)


# --- odd ones ---------------------------------------------------------------------------------


def _unchanged(_page: int, tags: Tags) -> Tags:
    return tags


def _with(changes: Mapping[int, Tag]) -> Patch:
    return lambda _page, tags: {**tags, **changes}


def compressed() -> bytes:
    """LZW is declared, the strips are junk."""
    return built(TiffSpec(pixels="random"), _with({259: (_SHORT, [5])})).data


def predictor() -> bytes:
    """Horizontal differencing without compression."""
    return built(TiffSpec(), _with({317: (_SHORT, [2])})).data


def one_bit() -> bytes:
    """8 pixels to a byte: 16 columns are 2 bytes."""
    spec = TiffSpec(dtype="uint8", shape=(8, 2), pixels="random")
    return built(spec, _with({256: (_LONG, [16]), 258: (_SHORT, [1])})).data


def twelve_bit() -> bytes:
    """2 pixels to 3 bytes: 4 columns are 6 bytes."""
    spec = TiffSpec(dtype="uint8", shape=(4, 6), pixels="random")
    return built(spec, _with({256: (_LONG, [4]), 258: (_SHORT, [12])})).data


def fill_order_2() -> bytes:
    """The bits of each byte are reversed."""
    return built(TiffSpec(dtype="uint8"), _with({266: (_SHORT, [2])})).data


def _nudged(page: int, code: int, by: int) -> Patch:
    """The first value of a tag of one page is changed ``by``."""

    def patch(number: int, tags: Tags) -> Tags:
        if number != page:
            return tags
        kind, (first, *rest) = tags[code]
        return {**tags, code: (kind, [max(0, first + by), *rest])}

    return patch


def overlapping() -> bytes:
    """The second page begins within the first."""
    return built(TiffSpec(pages=2), _nudged(1, 273, -10)).data


def past_end() -> bytes:
    """The only strip ends 20 bytes past the end of the file."""
    return built(TiffSpec(), _nudged(0, 273, 20)).data


def strip_too_short() -> bytes:
    """The strip's byte count is 3 less than its pixels need."""
    return built(TiffSpec(), _nudged(0, 279, -3)).data


def sparse() -> bytes:
    """The first of two strips is left out: offset 0, count 0."""

    def patch(page: int, tags: Tags) -> Tags:
        return _nudged(0, 279, -(2**31))(page, _nudged(0, 273, -(2**31))(page, tags))

    return built(TiffSpec(shape=(6, 7), rows_per_strip=3), patch).data


def pages_differ() -> bytes:
    """The second page has the first one's height for its width."""

    def patch(page: int, tags: Tags) -> Tags:
        return {**tags, 256: tags[257], 257: tags[256], 278: tags[256]} if page else tags

    return built(TiffSpec(pages=2), patch).data


def lying_header() -> bytes:
    """65535 x 65535 pixels declared in 401 bytes."""
    side, nbytes = (_LONG, [65535]), (_LONG, [65535 * 65535])
    patch = _with({256: side, 257: side, 278: side, 279: nbytes})
    return built(TiffSpec(dtype="uint8"), patch).data.ljust(401, b"\0")


def huge_rows() -> bytes:
    """2**30 rows of one pixel, each said to be a strip; there is one."""
    patch = _with({257: (_LONG, [2**30]), 278: (_LONG, [1])})
    return built(TiffSpec(dtype="uint8", shape=(1, 1)), patch).data


def ifd_loop(cycle: int = 1) -> bytes:
    """The last of ``cycle`` IFDs is followed by the first."""
    return built(TiffSpec(pages=cycle, shape=(2, 3)), loop=True).data


def many_ifds(count: int = 1000) -> bytes:
    """``count`` pages of one pixel."""
    return build(TiffSpec(pages=count, shape=(1, 1)))


def truncated() -> bytes:
    """The last page's pixels end too early."""
    return build(TiffSpec(pages=2))[:-9]


def truncated_ifds() -> bytes:
    """The file ends within its last IFD."""
    return build(TiffSpec(pages=2, ifds="last"))[:-40]


def nothing() -> bytes:
    """A file of zero bytes."""
    return b""


def only_a_mark() -> bytes:
    """The first four bytes of a TIFF."""
    return b"II*\0"


def text() -> bytes:
    """No TIFF, whatever its name says."""
    return b"Well,Field,Channel\nA01,1,DAPI\n" * 20


ODD: Mapping[str, Callable[[], bytes]] = {
    **{
        function.__name__: function
        for function in (
            *(compressed, predictor, one_bit, twelve_bit, fill_order_2, overlapping, past_end),
            *(strip_too_short, sparse, pages_differ, lying_header, huge_rows, many_ifds, truncated),
            *(truncated_ifds, nothing, only_a_mark, text),
        )
    },
    "ifd_loop_1": lambda: ifd_loop(1),
    "ifd_loop_3": lambda: ifd_loop(3),
    "ifd_loop_150": lambda: ifd_loop(150),
}


def imagej_spec(spec: TiffSpec, frames: int, slices: int, channels: int) -> TiffSpec:
    """The spec whose ``planes`` are those of the hyperstack, (T*Z*C, Y, X, 1)."""
    return replace(spec, pages=frames * slices * channels, samples=1, rows_per_strip=0)


def imagej_hyperstack(
    frames: int = 2, slices: int = 3, channels: int = 2, *, spec: TiffSpec | None = None
) -> bytes:
    """One IFD over T*Z*C planes that follow each other, as ImageJ saves beyond 4 GiB."""
    spec = spec or TiffSpec(byteorder=">")
    whole = imagej_spec(spec, frames, slices, channels)
    description = (
        f"ImageJ=1.53t\nimages={whole.pages}\nchannels={channels}\nslices={slices}\n"
        f"frames={frames}\nhyperstack=true\n"
    )
    first = replace(whole, pages=1, gap=0, ifds="first", trailing=0)
    head = built(first, _with({270: (_ASCII, description.encode() + b"\0")})).data
    pixels = _in_file_order(planes(whole), whole).tobytes()
    nbytes = len(pixels) // whole.pages
    return head[: len(head) - nbytes] + pixels + bytes(range(1, 256))[: spec.trailing]


# --- any of them ------------------------------------------------------------------------------


@st.composite
def tiff_specs(draw: st.DrawFn) -> TiffSpec:
    """Small valid specs, over everything that a spec can say."""
    sides = st.integers(1, 40)
    tiled, tile = draw(st.booleans()), st.sampled_from([1, 3, 8, 16, 32, 48])
    samples = draw(st.sampled_from([1, 1, 2, 3, 4]))
    return TiffSpec(
        big=draw(st.booleans()),
        byteorder=draw(st.sampled_from(["<", ">"])),
        dtype=draw(st.sampled_from(DTYPES)),
        pages=draw(st.integers(1, 4)),
        shape=(draw(sides), draw(sides)),
        samples=samples,
        planar=samples > 1 and draw(st.booleans()),
        rows_per_strip=0 if tiled else draw(st.integers(0, 41)),
        tile_width=draw(tile) if tiled else 0,
        tile_length=draw(tile) if tiled else 0,
        gap=draw(st.sampled_from([0, 1, 17])),
        order=draw(st.sampled_from(["in-order", "reversed", "shuffled"])),
        ifds=draw(st.sampled_from(["first", "last"])),
        lead=draw(st.sampled_from([0, 1, 6, 40])),
        trailing=draw(st.sampled_from([0, 1, 30])),
        edge_padding=tiled and draw(st.booleans()),
        pixels=draw(st.sampled_from(["coordinate", "special", "random", "zero"])),
        seed=draw(st.integers(0, 9)),
    )
