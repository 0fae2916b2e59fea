"""The reconstruction manifest ``.decant/manifest.json`` (spec section 4b).

Nothing in it is believed before it was checked: names must stay inside the output folder, sizes
must add up, segments must lie inside the file and apart from each other. What comes out is a
Layout like the one that packing works from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, overload

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from decant_batch.archive import jsonstream, planes
from decant_batch.archive.arrays import dump
from decant_batch.archive.container import Container
from decant_batch.archive.many import Many
from decant_batch.archive.model import MAX_PAGE_NBYTES, ByteOrder, Geometry, Layout, Mode
from decant_batch.archive.names import are_distinct, is_safe
from decant_batch.errors import ArchiveDamaged, UnknownFormat

KEY = ".decant/manifest.json"
# Of a series: what the records of its members have no field for, in their order.
STAMPS = ".decant/members.json"
FORMAT = 1

_Int63 = Annotated[int, Field(ge=0, lt=2**63)]
_Byteorder = Literal["<", ">", "|", ""]


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class PageRecord(_Record):
    """Layout of one page (spec section 4b, page record)."""

    index: _Int63
    shape: list[_Int63] = Field(min_length=2, max_length=3)
    dtype: str
    dataoffsets: list[_Int63]
    databytecounts: list[_Int63]
    samplesperpixel: _Int63 = 1
    planarconfig: Literal[1, 2] = 1
    predictor: Literal[1] = 1
    rowsperstrip: _Int63 = 0
    tilewidth: _Int63 = 0
    tilelength: _Int63 = 0


class MemberRecord(_Record):
    """One source of a series (spec section 4b, member record)."""

    relpath: str
    original_size: _Int63
    original_sha256: str
    byteorder: _Byteorder = "<"
    husk_array: str = ""
    husk_raw_size: _Int63 = 0
    pages: list[PageRecord] = []
    subarchive: str = ""


class Manifest(_Record):
    """The whole manifest (spec section 4b)."""

    decant_version: str = ""
    format: Literal[1]
    mode: Mode
    original_name: str
    original_size: _Int63 = 0
    original_sha256: str = ""
    byteorder: _Byteorder = "<"
    pixel_codec: str = ""
    pages: list[PageRecord] = []
    plane_order: list[str] = []
    husk_raw_size: _Int63 = 0
    notes: str = ""
    members: Sequence[MemberRecord] = []
    series_consolidated: bool = False


class _Head(BaseModel):
    format: Any = None


class Members(Sequence[MemberRecord]):
    """Records of a series' members, each made when it is asked for: they are many."""

    def __init__(self, records: Many[bytes]) -> None:
        self._records = records

    def __len__(self) -> int:
        """How many members there are."""
        return len(self._records)

    @overload
    def __getitem__(self, i: int) -> MemberRecord: ...

    @overload
    def __getitem__(self, i: slice) -> list[MemberRecord]: ...

    def __getitem__(self, i: int | slice) -> MemberRecord | list[MemberRecord]:
        """Record of the i-th member."""
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        return MemberRecord.model_validate_json(self._records[i])


def read(container: Container) -> Manifest:
    """The manifest of a container, its names checked.

    That of a series which has ``STAMPS`` is read member by member: what is held does not grow with
    what a member's record takes as an object.

    Raises
    ------
    UnknownFormat
        Where ``format`` is not 1: a reader must refuse rather than guess (spec section 6).
    ArchiveDamaged
        Where it is missing, is not what section 4b says, or names something outside the output.
    """
    where = container.path
    try:
        if _has(container, STAMPS):
            manifest = _streamed(container)
        else:
            text = container.get(KEY)
            _check_format(_Head.model_validate_json(text).format, where)
            manifest = Manifest.model_validate_json(text)
    except KeyError as error:
        raise ArchiveDamaged(f"{where}: no {KEY}: not a Decant archive, or not whole") from error
    except ValidationError as error:
        raise ArchiveDamaged(f"{where}: {KEY}: {_first(error)}") from error
    except ValueError as error:
        raise ArchiveDamaged(f"{where}: {KEY}: {error}") from error
    _check_names(manifest, where=str(where))
    return manifest


def _has(container: Container, key: str) -> bool:
    try:
        next(container.get_parts(key), b"")
    except KeyError:
        return False
    return True


def _check_format(version: object, where: Path) -> None:
    if type(version) is not int or version != FORMAT:
        raise UnknownFormat(
            f"{where}: format {version!r} is not known to this version, which reads format"
            f" {FORMAT}; use a newer decant-batch"
        )


def _streamed(container: Container) -> Manifest:
    """The manifest, its members taken out one by one as they are read."""
    records, problems = Many[bytes](), list[ValidationError]()

    def take(element: object) -> None:
        try:
            records.append(MemberRecord.model_validate(element).model_dump_json().encode())
        except ValidationError as error:
            if not problems:  # told after the format, which may stand behind the members
                problems.append(error)

    document = jsonstream.outline(container.get_parts(KEY), "members", take)
    _check_format(_Head.model_validate(document).format, container.path)
    if problems:
        raise problems[0]
    return Manifest.model_validate(document).model_copy(update={"members": Members(records)})


def _first(error: ValidationError) -> str:
    """The first of what pydantic found, in one line."""
    found = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, found['loc'])) or 'document'}: {found['msg']}"


def _check_names(manifest: Manifest, *, where: str) -> None:
    if not is_safe(manifest.original_name) or "/" in manifest.original_name:
        raise ArchiveDamaged(f"{where}: original_name {manifest.original_name!r} is not a name")
    if not are_distinct(member.relpath for member in manifest.members):
        raise ArchiveDamaged(f"{where}: two members have one path")
    for member in manifest.members:
        if not is_safe(member.relpath):
            raise ArchiveDamaged(
                f"{where}: member {member.relpath!r} would leave the output folder"
            )
        for name in (member.husk_array, member.subarchive):
            if name and (not is_safe(name) or "/" in name):
                raise ArchiveDamaged(f"{where}: {name!r} is not a name within the archive")


def layout(
    pages: Sequence[PageRecord],
    *,
    size: int,
    husk_nbytes: int,
    byteorder: str,
    plane_order: Sequence[str],
    array_shape: Sequence[int],
    where: str,
) -> Layout:
    """Layout of one original from its page records, each number checked against the others.

    ``array_shape`` is that of ``0``: leading axes, then (Y, X) or (Y, X, S).

    Raises
    ------
    ArchiveDamaged
        Where the numbers cannot be true.
    """
    geometry = _geometry(pages, byteorder, where)
    leading = tuple(array_shape)[: len(array_shape) - len(geometry.shape)]
    trailing = tuple(array_shape)[len(leading) :]
    if trailing != geometry.shape or (plane_order and len(plane_order) != len(leading)):
        raise ArchiveDamaged(
            f"{where}: pages {geometry.shape} in order {list(plane_order)} do not fit array 0"
            f" {tuple(array_shape)}"
        )
    counts = [len(page.dataoffsets) for page in pages]
    found = Layout(
        size=size,
        geometry=geometry,
        axes=tuple(plane_order),
        leading=planes.storage_shape(plane_order, leading),
        index=np.array([page.index for page in pages], np.int64),
        starts=np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64))),
        offsets=_flat(page.dataoffsets for page in pages),
        nbytes=_flat(page.databytecounts for page in pages),
    )
    _check_layout(found, husk_nbytes, where)
    return found


def _flat(lists: Iterator[list[int]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.fromiter((value for values in lists for value in values), np.int64)


def _geometry(pages: Sequence[PageRecord], byteorder: str, where: str) -> Geometry:
    """The geometry that all pages share; the rows per strip do not change how bytes lie."""
    if not pages:
        raise ArchiveDamaged(f"{where}: no pages")
    first = pages[0]
    for page in pages:
        if len(page.dataoffsets) != len(page.databytecounts):
            raise ArchiveDamaged(f"{where}: page {page.index}: offsets and byte counts differ")
        if _alike(page) != _alike(first):
            raise ArchiveDamaged(f"{where}: page {page.index} is not laid out as the first is")
    try:
        kind = np.dtype(first.dtype).kind
    except (TypeError, ValueError, SyntaxError) as error:
        raise ArchiveDamaged(f"{where}: dtype {first.dtype!r} is not known") from error
    if kind not in "biufc" or bool(first.tilewidth) != bool(first.tilelength):
        raise ArchiveDamaged(f"{where}: page of {first.dtype!r} cannot be laid out")
    return Geometry(
        shape=tuple(first.shape),
        dtype=first.dtype,
        byteorder=">" if byteorder == ">" else "<",
        planar=first.planarconfig == 2,
        rows_per_strip=first.rowsperstrip,
        tile_width=first.tilewidth,
        tile_length=first.tilelength,
    )


def _alike(page: PageRecord) -> tuple[object, ...]:
    return (page.shape, page.dtype, page.planarconfig, page.tilewidth, page.tilelength)


def _check_layout(found: Layout, husk_nbytes: int, where: str) -> None:
    per_page = np.add.reduceat(np.append(found.nbytes, 0), found.starts[:-1])
    per_page[np.diff(found.starts) == 0] = 0  # reduceat repeats its neighbour for an empty page
    order = np.argsort(found.offsets, kind="stable")
    order = order[found.nbytes[order] > 0]
    starts, ends = found.offsets[order], found.offsets[order] + found.nbytes[order]
    planes_nbytes = found.geometry.page_nbytes
    count = math.prod(found.leading)
    if planes_nbytes > MAX_PAGE_NBYTES or count >= 2**62:
        raise ArchiveDamaged(f"{where}: {count} planes of {planes_nbytes} bytes cannot be")
    if (per_page != planes_nbytes).any():
        raise ArchiveDamaged(f"{where}: segments do not hold the {planes_nbytes} bytes of a page")
    if len(starts) and (ends[-1] > found.size or (starts[1:] < ends[:-1]).any()):
        raise ArchiveDamaged(f"{where}: segments overlap or pass the end at {found.size}")
    if (ends < starts).any() or found.husk_nbytes != husk_nbytes:
        raise ArchiveDamaged(f"{where}: husk and pixels do not add up to {found.size} bytes")
    if (found.index >= count).any() or len(np.unique(found.index)) != len(found.index):
        raise ArchiveDamaged(f"{where}: page indices do not fit {count} planes")


def dump_byte_exact(found: Layout, **fields: str | int) -> bytes:
    """Canonical JSON of the manifest of a byte-exact archive; ``fields`` are the scalar ones."""
    pages = b",".join(dump(_page_record(found, i)) for i in range(found.page_count))
    rest = dump(
        {
            "format": FORMAT,
            "mode": "byte-exact",
            "byteorder": found.geometry.byteorder,
            "original_size": found.size,
            "plane_order": found.axes,
            "husk_raw_size": found.husk_nbytes,
            "members": [],
            "series_consolidated": False,
            "pages": [],
            **fields,
        }
    )
    # Pages are put in as text: a million of them are never held as objects.
    return rest.replace(b'"pages":[]', b'"pages":[' + pages + b"]", 1)


def dump_member(found: Layout, husk_array: str, **fields: str | int) -> bytes:
    """Canonical JSON of one member's record in a consolidated series; see ``dump_byte_exact``."""
    pages = b",".join(dump(_page_record(found, i)) for i in range(found.page_count))
    rest = dump(
        {
            "byteorder": found.geometry.byteorder,
            "husk_array": husk_array,
            "husk_raw_size": found.husk_nbytes,
            "original_size": found.size,
            "pages": [],
            "subarchive": "",
            **fields,
        }
    )
    return rest.replace(b'"pages":[]', b'"pages":[' + pages + b"]", 1)


def dump_bundle(subarchive: str, **fields: str | int) -> bytes:
    """Canonical JSON of one member's record in a nested series."""
    return dump(
        {"husk_array": "", "husk_raw_size": 0, "pages": [], "subarchive": subarchive, **fields}
    )


def dump_series(
    members: Iterable[bytes], plane_order: Sequence[str], *, consolidated: bool, **fields: str
) -> Iterator[bytes]:
    """Canonical JSON of the manifest of a series, in parts; ``members`` are records in JSON."""
    document = dump(
        {
            "format": FORMAT,
            "mode": "series",
            "byteorder": "<",
            "original_size": 0,
            "original_sha256": "",
            "plane_order": plane_order,
            "husk_raw_size": 0,
            "members": [],
            "series_consolidated": consolidated,
            "pages": [],
            **fields,
        }
    )
    before, after = document.split(b'"members":[]', 1)
    yield before + b'"members":'
    yield from dump_list(members)
    yield after


def dump_list(items: Iterable[bytes]) -> Iterator[bytes]:
    """A JSON list of items in JSON, in parts."""
    yield b"["
    for number, item in enumerate(items):
        yield b"," + item if number else item
    yield b"]"


def _page_record(found: Layout, i: int) -> dict[str, object]:
    geometry, (begin, end) = found.geometry, found.starts[i : i + 2]
    return {
        "index": int(found.index[i]),
        "shape": geometry.shape,
        "dtype": geometry.dtype,
        "dataoffsets": found.offsets[begin:end].tolist(),
        "databytecounts": found.nbytes[begin:end].tolist(),
        "samplesperpixel": geometry.samples,
        "planarconfig": 2 if geometry.planar else 1,
        "predictor": 1,
        "rowsperstrip": geometry.rows_per_strip,
        "tilewidth": geometry.tile_width,
        "tilelength": geometry.tile_length,
    }


def dump_verbatim(**fields: str | int) -> bytes:
    """Canonical JSON of the manifest of a verbatim archive; ``fields`` are the scalar ones."""
    byteorder: ByteOrder = "<"
    return dump(
        {
            "format": FORMAT,
            "mode": "verbatim",
            "byteorder": byteorder,
            "pages": [],
            "plane_order": [],
            "husk_raw_size": 0,
            "members": [],
            "series_consolidated": False,
            **fields,
        }
    )
