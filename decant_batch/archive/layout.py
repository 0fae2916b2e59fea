"""Which byte ranges of a TIFF are real pixels, or why they cannot be had.

tifffile reads the headers; nothing here decodes a pixel or reads beyond the IFDs, so a header that
lies costs what is in the file and no more. Pages are read one by one and only their segments kept,
in flat arrays: tifffile's own lists of pages would grow with the file.
"""

from __future__ import annotations

import errno
import logging
import math
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from decant_batch.archive import axes
from decant_batch.archive.axes import Stack
from decant_batch.archive.model import MAX_PAGE_NBYTES, Int64s, Layout, Reason, Refusal
from decant_batch.archive.segments import Segments, bits, geometry, sample_pages

# Without a handler the warnings of tifffile about odd files would go to standard error.
logging.getLogger("tifffile").addHandler(logging.NullHandler())

MAX_PAGES = 1_000_000
# Kinds of pages in one file; each keeps a page of tifffile's.
MAX_KINDS = 1000
_LSM_INFO = 34412  # the tag that makes a TIFF an LSM
# ImageDescription, ImageJ's and Micro-Manager's metadata, MetaMorph's UIC 1 to 4.
_DOCUMENTS = (270, 50839, 51123, 33628, 33629, 33630, 33631)
_LSM_WRAPS_AT = 1 << 32
# tifffile must not open other files of a set, nor guess where pages are instead of reading that.
AS_IT_STANDS = {
    "_multifile": False,
    "is_mmstack": False,
    "is_ndtiff": False,
    "is_scanimage": False,
}
_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")

# What a parser of hostile headers raises for them; OSError is not among them on purpose.
PARSER_ERRORS: tuple[type[Exception], ...] = (
    tifffile.TiffFileError,
    struct.error,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    MemoryError,
    SyntaxError,  # xml.etree.ElementTree.ParseError
)


def is_tiff(head: bytes) -> bool:
    """True where a file that begins with ``head`` says it is a TIFF (TIFF 6.0 section 2)."""
    return head[:4] in _MAGIC


def survey(path: Path) -> Layout | Refusal:
    """Layout of the TIFF at ``path``, or the reason why it can only be kept verbatim.

    Raises
    ------
    OSError
        Where the file cannot be read; a header that points outside of it is a Refusal.
    """
    with path.open("rb") as file:
        head = file.read(4)
    if not head:
        return Refusal(reason="empty-file", detail="the file has no bytes")
    if not is_tiff(head):
        return Refusal(reason="not-a-tiff", detail=f"the file begins with {head!r}")
    try:
        # An LSM whose IFDs loop would never let go of tifffile: first without its help.
        with tifffile.TiffFile(path, is_lsm=False, **AS_IT_STANDS) as tiff:
            pages = _read(tiff)
            if _LSM_INFO not in tiff.pages.first.tags:
                return _survey(tiff, pages)
        return _survey_lsm(path, pages)
    except PARSER_ERRORS as error:
        return _unreadable(error)
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # EINVAL: a seek to where no file can be
            raise
        return _unreadable(error)


def _unreadable(error: Exception) -> Refusal:
    return _refuse("unreadable-tiff", f"{type(error).__name__}: {error}"[:200])


def _refuse(reason: Reason, detail: str) -> Refusal:
    return Refusal(reason=reason, detail=detail)


@dataclass(slots=True, kw_only=True)
class _Group:
    """Pages that are alike, in the order of the IFD chain: the first, IFD offsets, segments.

    ``kin`` is what a reader would take for one stack, however its pages are stored.
    """

    page: Any
    kin: tuple[object, ...]
    refusal: Refusal | None
    segments: Segments
    ifds: array[int] = field(default_factory=lambda: array("q"))

    @property
    def nbytes(self) -> int:
        """Bytes of all its pages' pixels, as far as the header can be believed."""
        samples = math.prod(int(length) for length in self.page.shape)
        return len(self.ifds) * samples * bits(self.page) // 8

    def add(self, page: Any) -> None:  # noqa: ANN401 - a TiffPage
        """Take one more page."""
        self.ifds.append(page.offset)
        if self.refusal is None and (odd := self.segments.add(page)) is not None:
            self.refusal = _refuse(odd, f"page {page.index}: strips or tiles are not whole")


@dataclass(slots=True, kw_only=True)
class _Pages:
    """What the IFDs of a file say: groups of alike pages, or why they are not worth keeping."""

    groups: dict[tuple[object, ...], _Group] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    loops: bool = False
    refusal: Refusal | None = None


def _survey_lsm(path: Path, pages: _Pages) -> Layout | Refusal:
    if pages.loops or pages.refusal or path.stat().st_size >= _LSM_WRAPS_AT:
        # Offsets of larger ones are cut to 32 bits in the file: what is at them is not known.
        return pages.refusal or _refuse(
            "unreadable-tiff", "an LSM with a loop, or of 4 GiB or more"
        )
    with tifffile.TiffFile(path, **AS_IT_STANDS) as tiff:
        return _survey(tiff, _read(tiff))


def _survey(tiff: Any, pages: _Pages) -> Layout | Refusal:  # noqa: ANN401 - a TiffFile
    if pages.refusal is not None:
        return pages.refusal
    groups = list(pages.groups.values())
    group = max(groups, key=lambda each: each.nbytes, default=None)
    if group is None:
        return _refuse("no-pixels", "no page has pixels")
    if group.refusal is not None:
        return group.refusal
    if sum(each.kin == group.kin for each in groups) > 1:
        return _refuse("pages-differ", "pages of one shape and type are stored differently")
    return _checked(_layout(group, _stack(tiff, group, pages), tiff))


def _read(tiff: Any) -> _Pages:  # noqa: ANN401 - a TiffFile
    """Pages of the file by likeness; an IFD that was there before ends the chain."""
    pages = _Pages()
    for page in _chain(tiff):
        if page.offset in pages.seen:
            pages.loops = True
            break
        pages.seen.add(page.offset)
        for each in (page, *_sub_pages(page, pages.seen)):
            # SubIFDs are not of the stack that the main chain is, however alike.
            _sort_in(pages, each, is_main=each is page, size=int(tiff.filehandle.size))
        if len(pages.seen) > MAX_PAGES or len(pages.groups) > MAX_KINDS:
            pages.refusal = _refuse("too-many-pages", f"{len(pages.seen)} IFDs and more")
            break
    return pages


def _sort_in(pages: _Pages, page: Any, *, is_main: bool, size: int) -> None:  # noqa: ANN401
    if not _has_pixels(page):
        return
    kin = (*_appearance(page), is_main)
    key = (kin, _storage(page))
    if key not in pages.groups:
        segments = Segments(size=size)
        pages.groups[key] = _Group(page=page, kin=kin, refusal=_refusal(page), segments=segments)
    pages.groups[key].add(page)


def _has_pixels(page: Any) -> bool:  # noqa: ANN401 - a TiffPage
    """True where each length that the layout is computed from is a positive number."""
    lengths = [page.imagewidth, page.imagelength, page.imagedepth, page.samplesperpixel]
    lengths += [page.tilewidth, page.tilelength] if page.is_tiled else [page.rowsperstrip]
    return all(type(length) is int and length > 0 for length in lengths)


def _chain(tiff: Any) -> Iterator[Any]:  # noqa: ANN401 - a TiffFile
    """Pages of the main IFD chain, each read when it is asked for and not kept."""
    index = 0
    while True:
        try:
            page = tiff.pages.get(index)
        except IndexError:
            # The end of the chain, or a page that cannot be parsed: only the first is an end.
            if index < len(tiff.pages):
                raise
            return
        yield page
        index += 1


def _sub_pages(page: Any, seen: set[int]) -> Iterator[Any]:  # noqa: ANN401 - a TiffPage
    """Pages that the SubIFDs tag of a page points to (TIFF supplement 1); not nested ones."""
    for i, offset in enumerate(page.subifds or ()):
        if offset >= 8 and offset not in seen:
            seen.add(offset)
            yield page.pages.get(i)


def _appearance(page: Any) -> tuple[object, ...]:  # noqa: ANN401 - a TiffPage
    """What pages of one stack have in common for whoever looks at them."""
    return page.shape, str(page.dtype), bits(page), bool(page.is_reduced)


def _storage(page: Any) -> tuple[object, ...]:  # noqa: ANN401 - a TiffPage
    """What pages of one array have in common in the file; their strips may be of any height."""
    return (
        int(page.compression),
        int(page.predictor),
        int(page.fillorder),
        int(page.planarconfig),
        int(page.samplesperpixel),
        page.tilewidth if page.is_tiled else 0,
        page.tilelength if page.is_tiled else 0,
    )


def _refusal(page: Any) -> Refusal | None:  # noqa: ANN401 - a TiffPage
    """Why pages like this one cannot be byte-exact, from the tags alone."""
    return next(_refusals(page), None)


def _refusals(page: Any) -> Iterator[Refusal]:  # noqa: ANN401 - a TiffPage
    where, width = f"page {page.index}", bits(page)
    if page.compression != 1:
        name = getattr(page.compression, "name", page.compression)
        yield _refuse("compressed", f"{where}: compression {name}")
    if page.predictor != 1:
        yield _refuse("predictor", f"{where}: predictor {int(page.predictor)}")
    if width == 0 or width % 8:
        yield _refuse("sub-byte-samples", f"{where}: {page.bitspersample} bits per sample")
    if page.fillorder != 1:
        yield _refuse("fill-order", f"{where}: fill order {int(page.fillorder)}")
    if page.dtype is None or page.dtype.itemsize * 8 != width or page.dtype.kind not in "iufc":
        yield _refuse("unsupported-dtype", f"{where}: {width}-bit {page.sampleformat!s}")
    if page.planarconfig not in (1, 2):
        yield _refuse("unreadable-tiff", f"{where}: planar configuration {page.planarconfig}")
    if page.imagedepth != 1 or (page.is_tiled and page.tiledepth != 1):
        yield _refuse("volumetric-page", f"{where}: {page.imagedepth} planes deep")
    if geometry(page).page_nbytes > MAX_PAGE_NBYTES:
        yield _refuse("page-too-large", f"{where}: one chunk holds less than 2 GiB")


def _stack(tiff: Any, group: _Group, pages: _Pages) -> Stack:  # noqa: ANN401 - a TiffFile
    if pages.loops or len(pages.seen) > axes.MAX_PAGES_WITH_AXES:  # tifffile reads them all, twice
        return axes.flat(group.page, len(group.ifds))
    try:
        told = axes.told(tiff, group.page, group.ifds, group.segments)
    except PARSER_ERRORS:  # metadata that does not hold costs the axes, never the source
        told = None
    return axes.flat(group.page, len(group.ifds)) if told is None else told


def _layout(group: _Group, stack: Stack, tiff: Any) -> Layout:  # noqa: ANN401 - a TiffFile
    """Layout of the group's pages in storage order; not checked."""
    shared = geometry(group.page, tiff.byteorder)
    offsets, nbytes, ends = (
        np.array(values, np.int64)
        for values in (group.segments.offsets, group.segments.nbytes, group.segments.ends)
    )
    if stack.planes_per_ifd > 1:
        steps = np.arange(stack.planes_per_ifd, dtype=np.int64)
        offsets, ends = offsets[0] + steps * shared.page_nbytes, steps + 1
        nbytes = np.full(stack.planes_per_ifd, shared.page_nbytes, np.int64)
    return Layout(
        size=int(tiff.filehandle.size),
        geometry=shared,
        axes=stack.axes,
        leading=stack.leading,
        index=_storage_index(stack, sample_pages(group.page)),
        starts=np.concatenate((np.zeros(1, np.int64), ends)),
        offsets=offsets,
        nbytes=nbytes,
        merged=stack.merged,
        image=stack.image,
        document_nbytes=_document_nbytes(tiff),
    )


def _document_nbytes(tiff: Any) -> int:  # noqa: ANN401 - a TiffFile
    """Bytes of the first page's tags in which programs write about the pixels."""
    tags = tiff.pages.first.tags
    return sum(tags[code].valuebytecount for code in _DOCUMENTS if code in tags)


def _storage_index(stack: Stack, samples: int) -> Int64s:
    """Storage index of each page in the order of the IFD chain, sample after sample."""
    if stack.planes_per_ifd > 1:
        return np.arange(stack.planes_per_ifd, dtype=np.int64)
    place = np.argsort(np.array(stack.order, np.int64))
    return (place[:, None] * samples + np.arange(samples, dtype=np.int64)).reshape(-1)


def _checked(found: Layout) -> Layout | Refusal:
    """The layout, if its segments lie inside the file and apart from each other."""
    order = np.argsort(found.offsets, kind="stable")
    starts, ends = found.offsets[order], (found.offsets + found.nbytes)[order]
    if (ends > found.size).any():
        return _refuse("segment-past-end", f"pixels up to {int(ends[-1])} in {found.size} bytes")
    overlap = np.flatnonzero(starts[1:] < ends[:-1])
    if len(overlap):
        return _refuse("overlapping-segments", f"two segments share byte {starts[overlap[0] + 1]}")
    return found
