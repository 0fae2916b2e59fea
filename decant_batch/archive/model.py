"""Values that cross borders inside ``archive``; no behaviour beyond what their fields imply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Mode = Literal["byte-exact", "verbatim", "series"]
ByteOrder = Literal["<", ">"]
ContainerKind = Literal["zip", "folder"]
# How a pixel of a pyramid's level comes from the four below it.
Method = Literal["mean", "nearest"]
Int64s = npt.NDArray[np.int64]
# Axes of a file, slowest first, each with its length.
Parts = tuple[tuple[str, int], ...]
# Told the number of bytes that were read, or rebuilt, since it was told last.
Report = Callable[[int], None]


def silent(_nbytes: int) -> None:
    """Tell nobody: the Report where none is asked for."""


# Why a source is kept verbatim: the closed list (docs/format.md says each in words).
Reason = Literal[
    "compressed",
    "predictor",
    "sub-byte-samples",
    "unsupported-dtype",
    "fill-order",
    "overlapping-segments",
    "segment-past-end",
    "segment-too-short",
    "sparse-segments",
    "pages-differ",
    "page-too-large",
    "volumetric-page",
    "no-pixels",
    "too-many-pages",
    "not-a-tiff",
    "empty-file",
    "unreadable-tiff",
    "rebuild-differs",
    "over-memory",
]

# Blosc cannot hold a buffer of 2 GiB or more with its header of 16 bytes, and a page is one chunk.
MAX_PAGE_NBYTES = 2**31 - 1 - 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """How the pixels of one page lie in the file; the same for all pages of an archive.

    ``shape`` is (Y, X) or (Y, X, S); ``dtype`` a numpy name without byte order; ``planar`` is
    true where samples are stored one after the other (PlanarConfiguration 2) *within* a page.
    ``rows_per_strip`` is 0 for tiles, ``tile_width`` and ``tile_length`` are 0 for strips.
    """

    shape: tuple[int, ...]
    dtype: str
    byteorder: ByteOrder
    planar: bool = False
    rows_per_strip: int = 0
    tile_width: int = 0
    tile_length: int = 0

    @property
    def samples(self) -> int:
        """Samples per pixel within the page."""
        return self.shape[2] if len(self.shape) == 3 else 1

    @property
    def itemsize(self) -> int:
        """Bytes of one sample."""
        return np.dtype(self.dtype).itemsize

    @property
    def page_nbytes(self) -> int:
        """Bytes of the real pixels of one page."""
        nbytes = self.itemsize
        for length in self.shape:
            nbytes *= length
        return nbytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """Which byte ranges of a source are real pixels, and of which page.

    ``offsets`` and ``nbytes`` list the segments page after page, in the order in which a page is
    serialized (spec section 5); segments ``starts[i]:starts[i + 1]`` are page ``i``'s. Flat int64
    arrays, because a source may have millions of segments. ``index[i]`` is the page's index in
    storage order; ``axes`` and ``leading`` are the names and lengths of the leading axes, in
    storage order (the manifest's ``plane_order``). ``merged`` says of which axes of the file an
    axis was made, ``image`` which of the file's images these pages are (``axes.Stack``).
    ``document_nbytes`` is how much text about the pixels the first page holds.
    """

    size: int
    geometry: Geometry
    axes: tuple[str, ...]
    leading: tuple[int, ...]
    index: Int64s
    starts: Int64s
    offsets: Int64s
    nbytes: Int64s
    merged: Mapping[str, Parts] = field(default_factory=dict)
    image: int | None = None
    document_nbytes: int = 0

    @property
    def page_count(self) -> int:
        """How many pages."""
        return len(self.index)

    @property
    def pixels_nbytes(self) -> int:
        """Bytes of real pixels in all pages."""
        return int(self.nbytes.sum())

    @property
    def husk_nbytes(self) -> int:
        """Bytes of the source that are in no segment."""
        return self.size - self.pixels_nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a source cannot be byte-exact: a reason code and one line for people."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spacing:
    """The distance between two neighbours on an axis; ``unit`` is NGFF's name for it, if known."""

    value: float
    unit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One channel as its file describes it: ``color`` is RRGGBB, ``window`` what screens show."""

    name: str | None = None
    color: str | None = None
    window: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What a source says of its pixels beside their values; what it does not say is not there.

    ``spacing`` is by the axes ``t``, ``z``, ``y`` and ``x``; ``ome_xml`` the document as it stands
    in the file. ``warnings`` say what was left out, and why.
    """

    name: str | None = None
    spacing: Mapping[str, Spacing] = field(default_factory=dict)
    channels: tuple[Channel, ...] = ()
    ome_xml: bytes | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pyramid:
    """Levels for viewers: how many below the pixels themselves, and how they are made.

    ``levels`` None means as many as it takes until no side is longer than ``min_size`` pixels.
    """

    levels: int | None = None
    min_size: int = 256
    method: Method = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How archives are written; the same recipe and source give the same archive bytes.

    ``compressor`` and ``filters`` are numcodecs configurations; ``threads`` encode at once, which
    changes nothing in the bytes. ``pyramid`` None means that no levels are derived.
    """

    container: ContainerKind = "zip"
    compressor: Mapping[str, Any] | None = field(
        default_factory=lambda: {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 1}
    )
    filters: tuple[Mapping[str, Any], ...] = ()
    threads: int = 1
    pyramid: Pyramid | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What the manifest has no field for: put in ``.zattrs["decant"]``, put back by restore.

    ``relpath`` is relative to the source root (``/`` between parts, surrogateescape for bytes that
    are not UTF-8), ``mode`` the permission bits.
    """

    relpath: str | None = None
    mtime_ns: int | None = None
    mode: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The planes that the members of a series fill together.

    ``axes`` and ``leading`` are the names and lengths of the leading axes in storage order, the
    members' own axes last; ``merged`` as in ``Layout``. ``labels`` name the channels, if their axis
    does.
    """

    axes: tuple[str, ...]
    leading: tuple[int, ...]
    merged: Mapping[str, Parts] = field(default_factory=dict)
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One source of a series: where it is, and what the manifest has no field for.

    ``index[i]`` is the place of the source's page ``i``, in the order of its own storage index,
    among the planes of the grid; None where members follow each other, each with all its pages.
    """

    path: Path
    stamp: Stamp
    index: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What ``pack`` wrote: mode, reason, sizes in bytes and the sha256 of the source it read.

    ``warnings`` say what of the source's metadata was left out; its bytes are whole.
    """

    mode: Mode
    reason: Reason | None
    detail: str
    source_nbytes: int
    archive_nbytes: int
    sha256: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What an archive says of itself, no pixel read; sizes in bytes.

    ``shape`` and ``axes`` are those of array ``0`` (empty for verbatim archives), ``relpath`` the
    source's path under its root where it was recorded, ``members`` the relpaths of a series.
    """

    uri: str
    container: ContainerKind
    mode: Mode
    reason: str | None
    detail: str
    original_name: str
    relpath: str | None
    mtime_ns: int | None
    source_nbytes: int
    archive_nbytes: int
    sha256: str
    byteorder: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    dtype: str
    page_count: int
    husk_nbytes: int
    codec: str
    written_by: str
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One original that was rebuilt and compared: equal, or ``problem`` says what differs."""

    name: str
    nbytes: int
    sha256: str
    problem: str | None
