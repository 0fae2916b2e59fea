"""The segments of one page: the byte ranges of its real pixels, in serialized order.

::

    strips   [rows of strip 0][rows of strip 1]…        what follows the real rows is husk
    tiles    full width: [rows x tile width], one segment; the rows below the image are husk
             right edge: [x real | padding][x real | padding]…, one segment per real row

Pages are tifffile's (``Any`` here, because its annotations change); no pixel is read.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from decant_batch.archive import planes
from decant_batch.archive.model import Geometry, Reason


def bits(page: Any) -> int:  # noqa: ANN401 - a TiffPage
    """Bits of one sample; 0 where the samples of a pixel differ."""
    return int(page.bitspersample) if isinstance(page.bitspersample, int) else 0


def sample_pages(page: Any) -> int:  # noqa: ANN401 - a TiffPage
    """How many (Y, X) pages one IFD gives: its samples where they are planar, else one."""
    return int(page.samplesperpixel) if page.planarconfig == 2 else 1


def geometry(page: Any, byteorder: str = "<") -> Geometry:  # noqa: ANN401 - a TiffPage
    """Geometry of one (Y, X) or (Y, X, S) page; planar samples are pages of their own."""
    chunky = page.planarconfig == 1 and page.samplesperpixel > 1
    shape = (page.imagelength, page.imagewidth)
    return Geometry(
        shape=(*shape, page.samplesperpixel) if chunky else shape,
        dtype=page.dtype.name if page.dtype is not None else f"V{max(1, bits(page) // 8)}",
        byteorder=">" if byteorder == ">" else "<",
        rows_per_strip=0 if page.is_tiled else page.rowsperstrip,
        tile_width=page.tilewidth if page.is_tiled else 0,
        tile_length=page.tilelength if page.is_tiled else 0,
    )


@dataclass(slots=True, kw_only=True)
class Segments:
    """Segments of many pages, flat: page i's are those from ``ends[i - 1]`` to ``ends[i]``.

    ``size`` is the file's: segments that pass it, or that hold more than it, are not taken, so that
    what is kept never grows beyond what is there.
    """

    size: int
    total: int = 0
    ends: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    nbytes: array[int] = field(default_factory=lambda: array("q"))

    def add(self, page: Any) -> Reason | None:  # noqa: ANN401 - a TiffPage
        """Append the page's segments, or those of its planar samples; a reason if that fails."""
        shared = geometry(page)
        per_sample = _per_sample(shared)
        offsets, counts = page.dataoffsets, page.databytecounts
        if per_sample * sample_pages(page) > min(len(offsets), len(counts)):
            return "segment-too-short"
        add = self._add_tiles if shared.tile_width else self._add_strips
        for sample in range(sample_pages(page)):
            given = slice(sample * per_sample, (sample + 1) * per_sample)
            odd = add(shared, offsets[given], counts[given])
            if odd is not None:
                return odd
            self.ends.append(len(self.offsets))
        return None

    def _add_strips(
        self, shared: Geometry, offsets: Sequence[int], counts: Sequence[int]
    ) -> Reason | None:
        """Append the strips' real bytes; a strip that follows its neighbour in the file joins."""
        height, first = shared.shape[0], len(self.offsets)
        row_nbytes = shared.page_nbytes // height
        for i, (offset, count) in enumerate(zip(offsets, counts, strict=True)):
            rows = min(shared.rows_per_strip, height - i * shared.rows_per_strip)
            if (odd := self._odd(offset, count, rows * row_nbytes)) is not None:
                return odd
            if len(self.offsets) > first and offset == self.offsets[-1] + self.nbytes[-1]:
                self.nbytes[-1] += rows * row_nbytes
            else:
                self.offsets.append(offset)
                self.nbytes.append(rows * row_nbytes)
        return None

    def _add_tiles(
        self, shared: Geometry, offsets: Sequence[int], counts: Sequence[int]
    ) -> Reason | None:
        """Append the tiles' real bytes (spec section 5, tiled)."""
        pixel_nbytes = shared.samples * shared.itemsize
        stride = shared.tile_width * pixel_nbytes
        for tile, offset, count in zip(planes.tiles(shared), offsets, counts, strict=True):
            row_nbytes = tile.columns * pixel_nbytes
            needed = (tile.rows - 1) * stride + row_nbytes
            if (odd := self._odd(offset, count, needed)) is not None:
                return odd
            if tile.columns == shared.tile_width:
                self.offsets.append(offset)
                self.nbytes.append(tile.rows * stride)
            else:
                self.offsets.extend(range(offset, offset + tile.rows * stride, stride))
                self.nbytes.extend([row_nbytes] * tile.rows)
        return None

    def _odd(self, offset: int, declared: int, needed: int) -> Reason | None:
        if offset == 0 or declared == 0:
            return "sparse-segments"
        if declared < needed:
            return "segment-too-short"
        self.total += needed
        if offset < 0 or offset + needed > self.size:
            return "segment-past-end"
        return "overlapping-segments" if self.total > self.size else None


def _per_sample(shared: Geometry) -> int:
    """Strips or tiles of one page."""
    height, width = shared.shape[:2]
    if shared.tile_width:
        return math.ceil(height / shared.tile_length) * math.ceil(width / shared.tile_width)
    return math.ceil(height / max(1, shared.rows_per_strip))
