"""How the pages of a source are arranged: the leading axes, in storage order.

tifffile reads what the file's own metadata says (OME-XML, ImageJ, LSM, STK, shaped); where that
does not fit the pages that are really there, they make one axis.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from decant_batch.archive.model import Grid, Parts
from decant_batch.archive.segments import Segments, sample_pages

# Beyond this many IFDs tifffile is not asked: its series hold every page and compare them all.
MAX_PAGES_WITH_AXES = 5000
# Kinds of tifffile's series that tell axes and open no other file.
_KINDS = ("shaped", "ome", "imagej", "lsm", "stk")
# NGFF's name for tifffile's letter; the earlier ones are placed first, others take what is left.
_NAMES = {"T": "t", "Z": "z", "C": "c", "S": "c", "E": "c"}
_FREE = ("z", "t", "c")
_TAKEN = ("z", "t", "c", "y", "x", "s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Names and lengths of the leading axes in storage order; planar samples are one of them.

    ``order[k]`` is the IFD that is k-th in storage order; ``planes_per_ifd`` is above 1 where one
    IFD stands for many contiguous planes. ``merged`` says of which axes of the file, slowest first,
    an axis was made, where there were more than NGFF has a place for. ``image`` is the number of
    the series among those that tifffile tells of the file.
    """

    axes: tuple[str, ...]
    leading: tuple[int, ...]
    order: Sequence[int]
    planes_per_ifd: int = 1
    merged: Mapping[str, Parts] = field(default_factory=dict)
    image: int | None = None


def flat(page: Any, count: int) -> Stack:  # noqa: ANN401 - a TiffPage
    """The arrangement of ``count`` pages like ``page`` of which nothing else is known."""
    samples = sample_pages(page)
    if samples == 1:
        return Stack(axes=("z",), leading=(count,), order=range(count))
    return Stack(axes=("z", "c"), leading=(count, samples), order=range(count))


def told(
    tiff: Any,  # noqa: ANN401 - a TiffFile
    page: Any,  # noqa: ANN401 - a TiffPage
    ifds: Sequence[int],
    found: Segments,
) -> Stack | None:
    """The arrangement that the metadata tells of the pages at the offsets ``ifds``, if it does.

    ``page`` is the first of them and ``found`` their segments. What tifffile raises for metadata
    that does not hold passes through.
    """
    has_axes = any(getattr(tiff, f"is_{kind}", False) for kind in _KINDS)
    if not has_axes or not _is_plausible(tiff, page):
        return None
    images = list(tiff.series)
    if not images:
        return None
    number, series = max(enumerate(images), key=lambda each: int(each[1].nbytes))
    stack = _from_series(series, page, ifds, found, tiff.filehandle.size)
    return None if stack is None else replace(stack, image=number)


# tifffile makes a list as long as OME-XML says that there are planes.
_MAX_PLANES = 100_000
_MAX_XML = 2 << 20
_COUNTS = ("PlaneCount", "NumPlanes", "IFD", "FirstZ", "FirstC", "FirstT")


def _is_plausible(tiff: Any, page: Any) -> bool:  # noqa: ANN401 - a TiffFile, a TiffPage
    """False where OME-XML declares so much that tifffile would fill memory with it."""
    if not tiff.is_ome:
        return True
    xml = tiff.ome_metadata
    if len(xml) > _MAX_XML:
        return False
    root = ET.fromstring(xml)  # noqa: S314 - expat bounds what entities may grow to
    return sum(_planes(element, page) for element in root.iter()) <= _MAX_PLANES


def _planes(element: ET.Element, page: Any) -> float:  # noqa: ANN401 - a TiffPage
    """How many planes one element of OME-XML makes tifffile think of, at the most."""
    numbers = element.attrib
    counts = sum(int(numbers[name]) for name in _COUNTS if name in numbers)
    if "Modulo" in element.tag:
        start, end, step = (
            float(numbers.get(name, default))
            for name, default in (("Start", 0), ("End", 0), ("Step", 1))
        )
        return abs((end - start) / step)
    if not element.tag.endswith("Pixels"):
        return abs(counts)
    sizes = [abs(int(numbers.get(f"Size{axis}", 1))) for axis in "XYZCT"]
    pixels: int = math.prod(page.shape)
    return math.prod(sizes) / pixels + abs(counts)


def _from_series(
    series: Any,  # noqa: ANN401 - a TiffPageSeries
    page: Any,  # noqa: ANN401 - a TiffPage
    ifds: Sequence[int],
    found: Segments,
    size: int,
) -> Stack | None:
    """Arrangement that a series tells, where it is about just these pages."""
    letters, leading = _leading(series)
    planes = math.prod(leading) // sample_pages(page)
    if len(ifds) == 1 and planes > 1:
        return _virtual(series, page, letters, leading, found, size)
    place = {ifd: i for i, ifd in enumerate(ifds)}
    order = [place[each.offset] for each in series.pages if each is not None]
    if planes != len(ifds) or sorted(order) != list(range(len(ifds))):
        return None
    return _named(letters, leading, order, planes_per_ifd=1)


def _virtual(
    series: Any,  # noqa: ANN401 - a TiffPageSeries
    page: Any,  # noqa: ANN401 - a TiffPage
    letters: str,
    leading: tuple[int, ...],
    found: Segments,
    size: int,
) -> Stack | None:
    """One IFD over many contiguous planes: ImageJ hyperstacks, STK, truncated shaped files."""
    count = math.prod(leading)
    contiguous = len(found.offsets) == 1 and series.dataoffset == found.offsets[0]
    if (
        sample_pages(page) > 1
        or not contiguous
        or found.offsets[0] + count * found.nbytes[0] > size
    ):
        return None
    return _named(letters, leading, (0,), planes_per_ifd=count)


def _leading(series: Any) -> tuple[str, tuple[int, ...]]:  # noqa: ANN401 - a TiffPageSeries
    """Letters and lengths of a series' axes before (Y, X) or (Y, X, S)."""
    letters, shape = str(series.axes), tuple(int(length) for length in series.shape)
    y = letters.index("YX")
    if letters[y + 2 :] not in ("", "S"):
        raise ValueError(f"axes {letters}")
    return letters[:y], shape[:y]


def _named(
    letters: str, leading: tuple[int, ...], order: Sequence[int], *, planes_per_ifd: int
) -> Stack:
    """Axes by their NGFF names, those merged that NGFF has no place for."""
    parts = tuple((letter.lower(), length) for letter, length in zip(letters, leading, strict=True))
    grid = _merged(parts, _places(letters))
    return Stack(
        axes=grid.axes,
        leading=grid.leading,
        order=order,
        planes_per_ifd=planes_per_ifd,
        merged=grid.merged,
    )


def gridded(parts: Parts) -> Grid:
    """The leading axes of a series from all its axes, slowest first, the members' own ones last.

    ``t``, ``z`` and ``c`` keep their names, and so does one other axis where there is no ``c``:
    NGFF 0.4 has one place between time and space. The rest are merged, see ``_places``.
    """
    names = [name for name, _ in parts]
    places = [
        name if name in _FREE and names.index(name) == i else "" for i, name in enumerate(names)
    ]
    if "c" not in places:
        other = next((i for i, name in enumerate(names) if name not in _TAKEN), None)
        if other is not None:
            places[other] = names[other]
    return _merged(parts, _filled(places))


def _merged(parts: Parts, places: Sequence[str]) -> Grid:
    """Axes by their places; those that stand beside each other in one place become one."""
    axes: list[str] = []
    made_of: list[list[tuple[str, int]]] = []
    for place, part in zip(places, parts, strict=True):
        if not axes or place != axes[-1]:
            axes.append(place)
            made_of.append([])
        made_of[-1].append(part)
    if not axes:
        axes, made_of = ["z"], [[("z", 1)]]
    return Grid(
        axes=tuple(axes),
        leading=tuple(math.prod(length for _, length in each) for each in made_of),
        merged={
            axis: tuple(each) for axis, each in zip(axes, made_of, strict=True) if len(each) > 1
        },
    )


def _places(letters: str) -> list[str]:
    """NGFF's axis for each letter: one of its own, else that of the axis before it, or after it.

    Axes that stand beside each other in storage order are one axis to whoever counts pages, so the
    pages keep their numbers, and the format's section 5 finds them.
    """
    places = [""] * len(letters)
    for letter, axis in _NAMES.items():
        if letter in letters and axis not in places:
            places[letters.index(letter)] = axis
    for i, place in enumerate(places):
        free = [axis for axis in _FREE if axis not in places]
        if not place and free and letters[i] != "S":  # samples are no depth and no time
            places[i] = free[0]
    return _filled(places)


def _filled(places: Sequence[str]) -> list[str]:
    """Places with the empty ones filled by the one before, or after where none is before."""
    filled = list(places)
    first = next((place for place in places if place), "z")
    for i, place in enumerate(filled):
        filled[i] = place or (filled[i - 1] if i else first)
    return filled
