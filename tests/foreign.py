"""Decant v1 archives as others may write them, put together by hand from format.md.

An archive is a dict from keys to bytes until ``write`` gives it a container, so tests can spoil any
key first. ``cases`` is everything that must be read; tests/recover.py and the package both read it.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import random
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numcodecs
import numpy as np

from tests import tiffs
from tests.tiffs import ByteOrder, Pixels, TiffSpec

Json = dict[str, Any]
Keys = dict[str, bytes]
ContainerForm = Literal["zip", "zip -r", "deflate", "shuffled", "folder"]

MANIFEST = ".decant/manifest.json"
BLOSC: Json = {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 1, "blocksize": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A file, its page records, and its pixels (pages, Y, X[, S]) in native byte order."""

    data: bytes
    pages: tuple[Json, ...]
    planes: Pixels
    byteorder: ByteOrder = "<"

    @property
    def sha256(self) -> str:
        """What the manifest says of ``data``."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def husk(self) -> bytes:
        """Every byte of ``data`` that no page record names."""
        is_husk = np.ones(len(self.data), bool)
        for page in self.pages:
            for start, count in zip(page["dataoffsets"], page["databytecounts"], strict=True):
                is_husk[start : start + count] = False
        return np.frombuffer(self.data, np.uint8)[is_husk].tobytes()


def original(spec: TiffSpec) -> Original:
    """The TIFF of ``spec``, as an archive sees it."""
    built, found = tiffs.built(spec), tiffs.planes(spec)
    pages = [_page(spec, index, segments) for index, segments in enumerate(built.segments)]
    shaped = found[..., 0] if spec.samples == 1 else found
    return Original(data=built.data, pages=tuple(pages), planes=shaped, byteorder=spec.byteorder)


def _page(spec: TiffSpec, index: int, segments: Sequence[tuple[int, int]]) -> Json:
    return {
        "index": index,
        "shape": [*spec.shape] if spec.samples == 1 else [*spec.shape, spec.samples],
        "dtype": spec.dtype,
        "dataoffsets": [start for start, _ in segments],
        "databytecounts": [nbytes for _, nbytes in segments],
        "samplesperpixel": spec.samples,
        "planarconfig": 2 if spec.planar else 1,
        "predictor": 1,
        "rowsperstrip": 0 if spec.tile_width else spec.rows,
        "tilewidth": spec.tile_width,
        "tilelength": spec.tile_length,
    }


def only_pixels() -> Original:
    """A file that is one plane and nothing else: its husk is empty."""
    spec = TiffSpec(pixels="random")
    plane = tiffs.planes(spec)[..., 0]
    page = _page(spec, 0, [(0, plane.nbytes)])
    return Original(data=plane.tobytes(), pages=(page,), planes=plane)


# --- arrays -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What a writer is free in.

    ``stored`` is the byte order of array ``0``, ``separator`` None leaves the key away (``.``, as
    Zarr v2 has it). ``axes`` and ``leading`` are the leading axes in storage order; no ``axes``
    leaves ``plane_order`` empty, no ``leading`` makes one axis. ``plane_chunk`` cuts planes into
    chunks; ``husk_chunk`` None makes one chunk. ``skip_fill`` leaves chunks of only ``fill`` away.
    """

    compressor: Json | None = None
    filters: tuple[Json, ...] = ()
    stored: ByteOrder = "<"
    separator: Literal[".", "/"] | None = "/"
    order: Literal["C", "F"] = "C"
    fill: int = 0
    skip_fill: bool = False
    axes: tuple[str, ...] = ("z",)
    leading: tuple[int, ...] = ()
    plane_chunk: tuple[int, ...] = ()
    husk_chunk: int | None = None
    relpath: str | None = None


PLAIN = Style(compressor=BLOSC)


def array(name: str, values: Pixels, chunks: Sequence[int], style: Style) -> Keys:
    """Keys of a Zarr v2 array: its document and its chunks."""
    separator = {} if style.separator is None else {"dimension_separator": style.separator}
    document = {
        "zarr_format": 2,
        "shape": list(values.shape),
        "chunks": list(chunks),
        "dtype": values.dtype.str,
        "compressor": style.compressor,
        "filters": list(style.filters) or None,
        "order": style.order,
        "fill_value": [style.fill, 0] if values.dtype.kind == "c" else style.fill,
        **separator,
    }
    keys = {f"{name}/.zarray": _json(document)}
    grid = [range(-(-n // max(step, 1))) for n, step in zip(values.shape, chunks, strict=True)]
    for index in itertools.product(*grid):
        chunk = _chunk(values, index, chunks, style)
        if not style.skip_fill or chunk.tobytes() != np.full_like(chunk, style.fill).tobytes():
            keys[f"{name}/{(style.separator or '.').join(map(str, index))}"] = encode(chunk, style)
    return keys


def _chunk(values: Pixels, index: Sequence[int], chunks: Sequence[int], style: Style) -> Pixels:
    """A whole chunk; what is past the array's edge holds the fill value."""
    where = tuple(slice(i * n, (i + 1) * n) for i, n in zip(index, chunks, strict=True))
    real = values[where]
    whole = np.full(tuple(chunks), style.fill, values.dtype)
    whole[tuple(slice(0, n) for n in real.shape)] = real
    return whole


def encode(chunk: Pixels, style: Style) -> bytes:
    """Filters in their order, then the compressor."""
    found: Any = np.frombuffer(chunk.tobytes(style.order), chunk.dtype)
    for config in [*style.filters, *([style.compressor] if style.compressor else [])]:
        found = numcodecs.get_codec(config).encode(found)
    return found.tobytes() if isinstance(found, np.ndarray) else bytes(found)


def _json(document: object) -> bytes:
    return json.dumps(document, indent=1).encode()


def _bytes_array(name: str, data: bytes, style: Style) -> Keys:
    chunk = max(len(data), 1) if style.husk_chunk is None else style.husk_chunk
    plain = replace(style, filters=(), order="C")
    return array(name, np.frombuffer(data, np.uint8), [chunk], plain)


def _pixels(planes: Pixels, style: Style) -> Keys:
    """Array ``0``: planes in storage order, put into canonical axis order."""
    leading = style.leading or (len(planes),)
    ranks = [{"t": 0, "z": 2}.get(axis, 1) for axis in style.axes] or [0] * len(leading)
    perm = sorted(range(len(leading)), key=ranks.__getitem__)
    page = planes.shape[1:]
    grid = planes.reshape(leading + page)
    turned = grid.transpose(*perm, *range(len(leading), grid.ndim))
    stored = turned if turned.dtype.str[0] in "|" + style.stored else _swapped(turned)
    return array("0", stored, [1] * len(leading) + list(style.plane_chunk or page), style)


def _swapped(values: Pixels) -> Pixels:
    return values.byteswap().view(values.dtype.newbyteorder())


# --- archives ---------------------------------------------------------------------------------


def _manifest(**fields: object) -> bytes:
    return _json(
        {
            "decant_version": "0.9.1",
            "format": 1,
            "original_size": 0,
            "original_sha256": "",
            "byteorder": "<",
            "pixel_codec": "",
            "pages": [],
            "plane_order": [],
            "husk_raw_size": 0,
            "notes": "",
            "members": [],
            "series_consolidated": False,
            **fields,
        }
    )


def _group(style: Style, **multiscales: object) -> Keys:
    source = {} if style.relpath is None else {"source": {"relpath": style.relpath}}
    marker = {"decant": {"pixels": "0", **source}}
    return {".zgroup": b'{"zarr_format": 2}', ".zattrs": _json({**multiscales, **marker})}


def _browsable(style: Style) -> Keys:
    axes = [{"name": name} for name in (*style.axes, "y", "x")]
    datasets = [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, 1, 1]}]}]
    return _group(style, multiscales=[{"version": "0.4", "axes": axes, "datasets": datasets}])


def byte_exact(source: Original, style: Style = PLAIN, *, name: str = "a.tif") -> Keys:
    """A byte-exact archive (mode D)."""
    document = _manifest(
        mode="byte-exact",
        original_name=name,
        original_size=len(source.data),
        original_sha256=source.sha256,
        byteorder=source.byteorder,
        pages=source.pages,
        plane_order=style.axes,
        husk_raw_size=len(source.husk),
    )
    pixels = _pixels(source.planes, style)
    husk = _bytes_array("husk", source.husk, style)
    return {**_browsable(style), **pixels, **husk, MANIFEST: document}


def verbatim(data: bytes, style: Style = PLAIN, *, name: str = "a.txt") -> Keys:
    """A verbatim archive (mode V)."""
    document = _manifest(
        mode="verbatim",
        original_name=name,
        original_size=len(data),
        original_sha256=hashlib.sha256(data).hexdigest(),
    )
    return {**_group(style), **_bytes_array("original", data, style), MANIFEST: document}


def consolidated(sources: Mapping[str, Original], style: Style = PLAIN) -> Keys:
    """A consolidated series: one array ``0``, and a husk for each member."""
    keys, members, first = _browsable(style), [], 0
    for k, (relpath, source) in enumerate(sources.items()):
        pages = [{**page, "index": first + page["index"]} for page in source.pages]
        member = _member(relpath, source.data, byteorder=source.byteorder, pages=pages)
        members.append({**member, "husk_array": f"husk_{k}", "husk_raw_size": len(source.husk)})
        keys |= _bytes_array(f"husk_{k}", source.husk, style)
        first += len(pages)
    keys |= _pixels(np.concatenate([source.planes for source in sources.values()]), style)
    fields: Json = {"original_name": "series", "plane_order": style.axes, "members": members}
    return {**keys, MANIFEST: _manifest(mode="series", series_consolidated=True, **fields)}


def nested(bundles: Mapping[str, tuple[bytes, Keys]]) -> Keys:
    """A nested series, for the form ``folder``: each member's original and its own archive."""
    keys, members = {}, []
    for k, (relpath, (data, bundle)) in enumerate(bundles.items()):
        keys[f"m{k}.zarr.zip"] = zipped(bundle)
        members.append({**_member(relpath, data), "subarchive": f"m{k}.zarr.zip"})
    document = _manifest(mode="series", original_name="series", members=members)
    return {**keys, MANIFEST: document}


def _member(relpath: str, data: bytes, **fields: object) -> Json:
    sha256 = hashlib.sha256(data).hexdigest()
    return {"relpath": relpath, "original_size": len(data), "original_sha256": sha256, **fields}


def with_extras(keys: Keys) -> Keys:
    """The same archive with what a reader must pass over (spec sections 3 and 6)."""

    def change(document: Json) -> None:
        # "husk_array" means something within a member only.
        document |= {"x-vendor": {"pages": "not those"}, "husk_array": "thumbnail"}
        for page in document["pages"]:
            page["x-exposure"] = 12.5

    wrong = np.zeros((1, 2, 2), np.uint16)
    return {
        **edited(keys, MANIFEST, change),
        **array("1", wrong, (1, 2, 2), PLAIN),
        **array("thumbnail", np.arange(9, dtype=np.uint8), (9,), PLAIN),
        "labels/.zgroup": b'{"zarr_format": 2}',
        "labels/.zattrs": b'{"labels": []}',
        ".decant/notes.txt": b"kept by hand",
        "README": b"not a Zarr node",
        ".zattrs": edited(keys, ".zattrs", lambda attrs: attrs.update(omero={"x": 1}))[".zattrs"],
    }


def edited(keys: Keys, key: str, change: Callable[[Json], object]) -> Keys:
    """The same archive with one JSON document changed in place by ``change``."""
    document = json.loads(keys[key])
    change(document)
    return {**keys, key: _json(document)}


# --- containers -------------------------------------------------------------------------------


def write(keys: Keys, folder: Path, form: ContainerForm = "zip") -> Path:
    """Write the archive into ``folder``; its path."""
    if form != "folder":
        path = folder / "foreign.zarr.zip"
        path.write_bytes(zipped(keys, form))
        return path
    path = folder / "foreign.zarr"
    for key, value in keys.items():
        (path / key).parent.mkdir(parents=True, exist_ok=True)
        (path / key).write_bytes(value)
    return path


def zipped(keys: Keys, form: ContainerForm = "zip") -> bytes:
    """The archive as a zip file; ``zip -r`` is told by its entries for folders."""
    names = list(keys)
    if form == "zip -r":
        folders = {parent.as_posix() + "/" for key in keys for parent in Path(key).parents}
        names = sorted({*names, *folders - {"./"}})
    if form == "shuffled":
        random.Random(3).shuffle(names)
    method = zipfile.ZIP_DEFLATED if form == "deflate" else zipfile.ZIP_STORED
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", method) as archive:
            for name in names:
                archive.writestr(name, keys.get(name, b""))
        return file.getvalue()


# --- everything that must be read -------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An archive and the originals that must come out of it."""

    keys: Keys
    originals: Mapping[str, bytes]
    form: ContainerForm = "zip"


CODECS: Mapping[str, Json | None] = {
    "none": None,
    "zlib": {"id": "zlib", "level": 6},
    "gzip": {"id": "gzip", "level": 1},
    "bz2": {"id": "bz2", "level": 9},
    "lzma": {"id": "lzma", "format": 1, "check": -1, "preset": None, "filters": None},
    "zstd": {"id": "zstd", "level": 3},
    "lz4": {"id": "lz4", "acceleration": 1},
    "blosc-lz4": {**BLOSC, "cname": "lz4", "shuffle": 2},
    "blosc-lz4hc": {**BLOSC, "cname": "lz4hc", "shuffle": -1},
    "blosc-blosclz": {**BLOSC, "cname": "blosclz", "shuffle": 0},
    "blosc-zlib": {**BLOSC, "cname": "zlib"},
    "blosc-zstd": BLOSC,
}
_DELTA: Json = {"id": "delta", "dtype": "<u2", "astype": "<u2"}
_SHUFFLE: Json = {"id": "shuffle", "elementsize": 2}
FILTERS: Mapping[str, tuple[Json, ...]] = {
    "delta": (_DELTA,),
    "shuffle": (_SHUFFLE,),
    "delta-shuffle": (_DELTA, _SHUFFLE),
    "shuffle-crc32": (_SHUFFLE, {"id": "crc32"}),
    "adler32": ({"id": "adler32"},),
    "fletcher32": ({"id": "fletcher32"},),
}
FORMS: tuple[ContainerForm, ...] = ("zip", "zip -r", "deflate", "shuffled", "folder")
# A little of everything that can go wrong in the walk: gaps, pages that interleave, odd edges.
BUSY = TiffSpec(pages=4, shape=(21, 9), gap=7, order="shuffled", rows_per_strip=4, trailing=11)
LAYOUTS: Mapping[str, TiffSpec] = {
    "one-strip": TiffSpec(pages=2),
    "strips-interleave": BUSY,
    "strips-reversed": replace(BUSY, order="reversed", ifds="last", byteorder=">"),
    "big-tiff": replace(BUSY, big=True, lead=6),
    "rgb": replace(BUSY, samples=3, dtype="uint8"),
    "planar-strips": replace(BUSY, samples=3, planar=True),
    "tiles": replace(BUSY, tile_width=16, tile_length=16, shape=(37, 35), edge_padding=True),
    "tiles-full-width": replace(BUSY, tile_width=9, tile_length=6, edge_padding=True),
    "tile-past-page": replace(BUSY, tile_width=32, tile_length=32, edge_padding=True),
    "tiles-rgb": replace(BUSY, tile_width=4, tile_length=8, samples=4, edge_padding=True),
    "planar-tiles": replace(
        BUSY, tile_width=4, tile_length=8, samples=2, planar=True, edge_padding=True, byteorder=">"
    ),
}
ARRANGEMENTS: Mapping[str, Style] = {
    "z-c": replace(PLAIN, axes=("z", "c"), leading=(3, 4)),
    "c-z": replace(PLAIN, axes=("c", "z"), leading=(3, 4)),
    "z-c-t": replace(PLAIN, axes=("z", "c", "t"), leading=(2, 3, 2)),
    "c-z-t": replace(PLAIN, axes=("c", "z", "t"), leading=(2, 3, 2)),
    "t-custom-z": replace(PLAIN, axes=("t", "angle", "z"), leading=(2, 3, 2)),
    "z-custom-c": replace(PLAIN, axes=("z", "angle", "c"), leading=(2, 3, 2)),
    "empty": replace(PLAIN, axes=()),
    "empty-two-axes": replace(PLAIN, axes=(), leading=(3, 4)),
}


def cases() -> dict[str, Case]:
    """Every archive that must be read, by a name that says what is odd about it."""
    return {
        **_styles(),
        **{f"layout-{name}": _exact(spec) for name, spec in LAYOUTS.items()},
        **_byte_orders(),
        **_verbatims(),
        **_series(),
    }


def _exact(spec: TiffSpec, style: Style = PLAIN, form: ContainerForm = "zip") -> Case:
    source = original(spec)
    return Case(keys=byte_exact(source, style), originals={"a.tif": source.data}, form=form)


def _styles() -> dict[str, Case]:
    many = TiffSpec(pages=12, gap=3, order="shuffled")
    styles = {
        **{f"codec-{name}": replace(PLAIN, compressor=codec) for name, codec in CODECS.items()},
        **{f"filter-{name}": Style(filters=filters) for name, filters in FILTERS.items()},
        "filter-then-codec": replace(PLAIN, filters=(_DELTA, _SHUFFLE)),
        "separator-dot": replace(PLAIN, separator="."),
        "separator-absent": replace(PLAIN, separator=None),
        "husk-in-chunks": replace(PLAIN, husk_chunk=50),
        "husk-chunk-too-long": replace(PLAIN, husk_chunk=5000),
        "order-f": replace(PLAIN, order="F"),
        "planes-in-chunks": replace(PLAIN, plane_chunk=(8, 4)),
    }
    plain = only_pixels()
    emptied = {"a.tif": plain.data}
    return {
        **{name: _exact(BUSY, style) for name, style in styles.items()},
        **{f"order-{name}": _exact(many, style) for name, style in ARRANGEMENTS.items()},
        **{f"container-{form}": _exact(BUSY, form=form) for form in FORMS},
        **{f"missing-{name}": case for name, case in _missing().items()},
        **{f"records-{name}": case for name, case in _records().items()},
        "husk-empty": Case(keys=byte_exact(plain), originals=emptied),
        "husk-empty-chunk-0": Case(
            keys=byte_exact(plain, replace(PLAIN, husk_chunk=0)), originals=emptied
        ),
    }


def _missing() -> dict[str, Case]:
    """Chunks that hold nothing but the fill value are left away."""
    skip, zeros = replace(PLAIN, skip_fill=True), replace(BUSY, pixels="zero")
    return {
        "planes": _exact(zeros, skip),
        "planes-in-folder": _exact(zeros, skip, "folder"),
        "planes-fill-7": _sevens(replace(skip, fill=7)),
        "one-plane": _one_blank_plane(skip),
        "all-of-a-verbatim": Case(keys=verbatim(bytes(500), skip), originals={"a.txt": bytes(500)}),
    }


def _records() -> dict[str, Case]:
    """The same pixels, other ways to write them down."""
    changes: Mapping[str, Callable[[Json], object]] = {
        "in-any-order": lambda document: random.Random(1).shuffle(document["pages"]),
        "of-older-writers": lambda document: [document.pop(key) for key in OPTIONAL],
        "split-segments": _split,
        "empty-segment": lambda document: _put_empty_segment(document["pages"][2]),
    }
    plain = _exact(BUSY)
    made = {
        name: replace(plain, keys=edited(plain.keys, MANIFEST, change))
        for name, change in changes.items()
    }
    return {**made, "with-extras": replace(plain, keys=with_extras(plain.keys))}


# Absent from archives that were written before there were series and permuted planes (section 6).
OPTIONAL = ("plane_order", "members", "series_consolidated", "notes", "pixel_codec")


def _split(document: Json) -> None:
    """Each segment becomes two that touch."""
    for page in document["pages"]:
        segments = list(zip(page["dataoffsets"], page["databytecounts"], strict=True))
        halves = [((at, n // 3), (at + n // 3, n - n // 3)) for at, n in segments]
        page["dataoffsets"] = [at for pair in halves for at, _ in pair]
        page["databytecounts"] = [count for pair in halves for _, count in pair]


def _put_empty_segment(page: Json) -> None:
    """A strip that a sparse file left out of a page: offset 0, count 0."""
    page["dataoffsets"].insert(1, 0)
    page["databytecounts"].insert(1, 0)


def _sevens(style: Style) -> Case:
    """The fill value is not zero."""
    source = original(replace(BUSY, dtype="uint8", pixels="zero"))
    data = bytearray(source.data)
    for page in source.pages:
        for start, count in zip(page["dataoffsets"], page["databytecounts"], strict=True):
            data[start : start + count] = b"\7" * count
    filled = replace(source, data=bytes(data), planes=np.full_like(source.planes, 7))
    return Case(keys=byte_exact(filled, style), originals={"a.tif": filled.data})


def _one_blank_plane(style: Style) -> Case:
    """The second plane of a stack is all zero, and only its chunk is missing."""
    source = original(TiffSpec(pages=3))
    data, planes = bytearray(source.data), source.planes.copy()
    start, count = source.pages[1]["dataoffsets"][0], source.pages[1]["databytecounts"][0]
    data[start : start + count] = bytes(count)
    planes[1] = 0
    blank = replace(source, data=bytes(data), planes=planes)
    return Case(keys=byte_exact(blank, style), originals={"a.tif": blank.data})


def _byte_orders() -> dict[str, Case]:
    """Each sample type, with bits that arithmetic would change, in each order in file and array."""
    orders: tuple[ByteOrder, ...] = ("<", ">")
    return {
        f"{dtype}-file{file}-array{stored}": _exact(
            TiffSpec(dtype=dtype, byteorder=file, pixels="special"), replace(PLAIN, stored=stored)
        )
        for dtype in tiffs.DTYPES
        for file in orders
        for stored in orders
    }


def _verbatims() -> dict[str, Case]:
    data = tiffs.ODD["compressed"]()
    several, none = replace(PLAIN, husk_chunk=64), replace(PLAIN, husk_chunk=0)
    made = {f"verbatim-{form}": (data, several, form) for form in FORMS}
    made |= {
        f"verbatim-{name}": (data, replace(several, compressor=codec), "zip")
        for name, codec in CODECS.items()
    }
    made |= {
        "verbatim-of-nothing": (b"", PLAIN, "zip"),
        "verbatim-of-nothing-folder": (b"", PLAIN, "folder"),
        "verbatim-of-nothing-chunk-0": (b"", none, "zip"),
    }
    return {
        name: Case(keys=verbatim(content, style), originals={"a.txt": content}, form=form)
        for name, (content, style, form) in made.items()
    }


def members() -> dict[str, Original]:
    """Members of a series: one sample type and page shape, all else differs."""
    striped = replace(BUSY, pages=3, seed=1, pixels="random")
    tiled = replace(BUSY, tile_width=4, tile_length=8, edge_padding=True, pixels="random", seed=2)
    return {
        "s01.tif": original(striped),
        "day 1/s02.tif": original(replace(tiled, byteorder=">", big=True)),
        "day 1/größe µm.tif": original(replace(striped, pages=5, byteorder=">", seed=3)),
    }


def bundles() -> dict[str, tuple[bytes, Keys]]:
    """Members of a nested series, each an archive of its own."""
    first, second = original(BUSY), original(LAYOUTS["planar-tiles"])
    odd = tiffs.ODD["truncated"]()
    return {
        "s01.tif": (first.data, byte_exact(first, name="s01.tif")),
        "day 1/s02.tif": (second.data, byte_exact(second, name="s02.tif")),
        "day 1/s03.tif": (odd, verbatim(odd, name="s03.tif")),
        "day 1/empty.tif": (b"", verbatim(b"", name="empty.tif")),
    }


def _series() -> dict[str, Case]:
    sources = members()
    expected = {relpath: source.data for relpath, source in sources.items()}
    turned = replace(PLAIN, axes=("z", "c"), leading=(4, 3), stored=">", husk_chunk=64)
    shared = {f"consolidated-{form}": (PLAIN, form) for form in FORMS}
    shared["consolidated-permuted"] = (turned, "zip")
    inner = bundles()
    series = Case(
        keys=nested(inner),
        originals={name: data for name, (data, _) in inner.items()},
        form="folder",
    )
    return {
        "nested": series,
        **{
            name: Case(keys=consolidated(sources, style), originals=expected, form=form)
            for name, (style, form) in shared.items()
        },
    }
