"""What tests/tiffs.py builds, held against tifffile and against the spec's own reader."""

from __future__ import annotations

import io
import itertools
import struct
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import tifffile
from hypothesis import given, settings

from tests import recover, tiffs
from tests.tiffs import TiffSpec

QUICK = settings(max_examples=60, deadline=None, derandomize=True)


@given(spec=tiffs.tiff_specs())
@QUICK
def test_tifffile_decodes_the_true_pixels(spec: TiffSpec) -> None:
    expected, found = tiffs.planes(spec), _decoded(spec)
    assert found.shape == expected.shape
    assert _native(found).tobytes() == expected.tobytes()


def _decoded(spec: TiffSpec) -> tiffs.Pixels:
    with tifffile.TiffFile(io.BytesIO(tiffs.build(spec))) as tiff:
        assert len(tiff.pages) == spec.pages
        found = [np.asarray(page.asarray(squeeze=False)) for page in tiff.pages]
    # tifffile has (separate samples, depth, Y, X, interleaved samples).
    return np.stack([np.moveaxis(page[:, 0], 0, -2).reshape(*spec.shape, -1) for page in found])


def _native(values: tiffs.Pixels) -> tiffs.Pixels:
    return values if values.dtype.isnative else values.byteswap()


@given(spec=tiffs.tiff_specs())
@QUICK
def test_segments_are_disjoint_and_serialize_the_true_pixels(spec: TiffSpec) -> None:
    built = tiffs.built(spec)
    runs = sorted(run for page in built.segments for run in page)
    following = [start for start, _ in runs[1:]] + [len(built.data)]
    assert all(a + nbytes <= b for (a, nbytes), b in zip(runs, following, strict=True))
    layout = {
        "planarconfig": 2 if spec.planar else 1,
        "tilewidth": spec.tile_width,
        "tilelength": spec.tile_length,
    }
    for page, plane in zip(built.segments, tiffs.planes(spec), strict=True):
        stored = b"".join(built.data[start : start + nbytes] for start, nbytes in page)
        assert stored == recover.serialize(plane, layout, spec.byteorder)


def test_gaps_and_padding_hold_no_zero() -> None:
    tiles = TiffSpec(dtype="uint8", tile_width=16, tile_length=16, edge_padding=True)
    spec = replace(tiles, pages=2, ifds="last", lead=9, gap=30, trailing=9)
    data = tiffs.build(spec)
    (ifds,) = struct.unpack_from("<I", data, 4)
    assert 0 not in data[8 : ifds - 1]
    assert 0 not in data[-9:]


@pytest.mark.parametrize("dtype", tiffs.DTYPES)
def test_no_two_planes_look_alike(dtype: str) -> None:
    found = tiffs.planes(TiffSpec(dtype=dtype, pages=5, shape=(16, 16)))
    assert len({plane.tobytes() for plane in found}) == 5


@pytest.mark.parametrize("nbytes", [2, 4, 8])
def test_special_floats_are_what_they_say(nbytes: int) -> None:
    values = tiffs.special_floats(nbytes).view(f"f{nbytes}")
    assert np.isnan(values).tolist() == [False] * 3 + [True] * 4 + [False] * 3
    assert np.isinf(values).tolist() == [False, True, True] + [False] * 7
    assert values[0] == 0
    assert np.signbit(values[0])


def test_shuffled_pages_interleave() -> None:
    spec = TiffSpec(pages=3, shape=(12, 5), rows_per_strip=1, order="shuffled")
    pages = enumerate(tiffs.built(spec).segments)
    runs = sorted((start, page) for page, segments in pages for start, _ in segments)
    assert len(list(itertools.groupby(page for _, page in runs))) > 12


@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_imagej_hyperstack(byteorder: tiffs.ByteOrder) -> None:
    spec = TiffSpec(byteorder=byteorder, shape=(4, 6), trailing=5)
    whole = tiffs.planes(tiffs.imagej_spec(spec, 2, 3, 4)).reshape(2, 3, 4, 4, 6)
    with tifffile.TiffFile(io.BytesIO(tiffs.imagej_hyperstack(2, 3, 4, spec=spec))) as tiff:
        assert len(tiff.pages) == 1
        assert tiff.series[0].axes == "TZCYX"
        assert np.array_equal(tiff.series[0].asarray(), whole)


@pytest.mark.parametrize(
    ("name", "tag", "value"),
    [
        ("compressed", "Compression", 5),
        ("predictor", "Predictor", 2),
        ("one_bit", "BitsPerSample", 1),
        ("twelve_bit", "BitsPerSample", 12),
        ("fill_order_2", "FillOrder", 2),
        ("lying_header", "ImageLength", 65535),
        ("huge_rows", "ImageLength", 2**30),
        ("sparse", "StripOffsets", (0, 204)),
        ("sparse", "StripByteCounts", (0, 42)),
        ("strip_too_short", "StripByteCounts", (67,)),
    ],
)
def test_odd_ones_declare_what_they_say(name: str, tag: str, value: object) -> None:
    with tifffile.TiffFile(io.BytesIO(tiffs.ODD[name]())) as tiff:
        assert tiff.pages[0].tags[tag].value == value


@pytest.mark.parametrize("name", ["one_bit", "twelve_bit"])
def test_samples_of_odd_widths_fill_their_strip(name: str) -> None:
    with tifffile.TiffFile(io.BytesIO(tiffs.ODD[name]())) as tiff:
        page = tiff.pages[0]
        bits = page.imagewidth * page.tags["BitsPerSample"].value
        assert page.databytecounts == (page.imagelength * bits // 8,)


def test_lying_header_is_small() -> None:
    assert len(tiffs.lying_header()) == 401


@pytest.mark.parametrize("cycle", [1, 3, 150])
def test_ifd_loop_comes_round(cycle: int) -> None:
    offsets = list(itertools.islice(_chain(tiffs.ifd_loop(cycle)), 2 * cycle))
    assert offsets == offsets[:cycle] * 2
    assert len(set(offsets)) == cycle


def test_many_ifds() -> None:
    assert len(list(_chain(tiffs.many_ifds(300)))) == 300


def _chain(data: bytes) -> Iterator[int]:
    """Offsets of the IFDs of a little-endian TIFF."""
    (at,) = struct.unpack_from("<I", data, 4)
    while at:
        yield at
        (count,) = struct.unpack_from("<H", data, at)
        (at,) = struct.unpack_from("<I", data, at + 2 + 12 * count)
