"""What is found to be real pixels, against TIFFs of which each byte is known."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import tifffile
from hypothesis import HealthCheck, given, settings

from decant_batch.archive import Layout, Refusal, survey
from tests import tiffs
from tests.tiffs import TiffSpec

anywhere = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def surveyed(folder: Path, data: bytes) -> Layout | Refusal:
    path = folder / "x.tif"
    path.write_bytes(data)
    return survey(path)


def found(folder: Path, data: bytes) -> Layout:
    layout = surveyed(folder, data)
    assert isinstance(layout, Layout), layout
    return layout


@given(spec=tiffs.tiff_specs())
@anywhere
def test_segments_are_the_real_pixels(tmp_path: Path, spec: TiffSpec) -> None:
    built = tiffs.built(spec)
    layout = found(tmp_path, built.data)
    mine = np.zeros(len(built.data), bool)
    for offset, nbytes in zip(layout.offsets, layout.nbytes, strict=True):
        assert not mine[offset : offset + nbytes].any(), "segments are disjoint"
        mine[offset : offset + nbytes] = True
    real = np.zeros(len(built.data), bool)
    for page in built.segments:
        for offset, nbytes in page:
            real[offset : offset + nbytes] = True
    assert (mine == real).all()
    assert layout.husk_nbytes == len(built.data) - int(real.sum())


@given(spec=tiffs.tiff_specs())
@anywhere
def test_geometry_is_the_files(tmp_path: Path, spec: TiffSpec) -> None:
    layout = found(tmp_path, tiffs.build(spec))
    samples = spec.samples if spec.planar and spec.samples > 1 else 1
    assert layout.page_count == spec.pages * samples
    assert layout.geometry.dtype == spec.dtype
    assert layout.geometry.shape[:2] == spec.shape
    assert np.prod(layout.leading) == layout.page_count
    assert sorted(layout.index) == list(range(layout.page_count))
    assert layout.pixels_nbytes == layout.page_count * layout.geometry.page_nbytes


def test_strips_that_follow_each_other_are_one_segment(tmp_path: Path) -> None:
    layout = found(tmp_path, tiffs.build(TiffSpec(shape=(40, 8), rows_per_strip=1, pages=3)))
    assert layout.page_count == len(layout.offsets) == 3


def test_right_edge_tiles_give_one_segment_a_row(tmp_path: Path) -> None:
    spec = TiffSpec(shape=(20, 40), tile_width=32, tile_length=16, dtype="uint8")
    layout = found(tmp_path, tiffs.build(spec))
    # Two rows of tiles: a full-width one (one segment) and one of 8 columns (a segment a row).
    assert layout.nbytes.tolist() == [16 * 32, *[8] * 16, 4 * 32, *[8] * 4]


REASONS = {
    "compressed": "compressed",
    "predictor": "predictor",
    "one_bit": "sub-byte-samples",
    "twelve_bit": "sub-byte-samples",
    "fill_order_2": "fill-order",
    "overlapping": "overlapping-segments",
    "past_end": "segment-past-end",
    "strip_too_short": "segment-too-short",
    "sparse": "sparse-segments",
    "truncated": "segment-past-end",
    "nothing": "empty-file",
    "only_a_mark": "unreadable-tiff",
    "text": "not-a-tiff",
}
LAID_OUT = {"pages_differ", "many_ifds", "ifd_loop_1", "ifd_loop_3", "ifd_loop_150"}


@pytest.mark.parametrize("name", tiffs.ODD)
def test_odd_files_are_refused_with_a_reason_or_laid_out(tmp_path: Path, name: str) -> None:
    outcome = surveyed(tmp_path, tiffs.ODD[name]())
    if name in LAID_OUT:
        assert isinstance(outcome, Layout)
        return
    assert isinstance(outcome, Refusal)
    assert outcome.detail
    if name in REASONS:
        assert outcome.reason == REASONS[name]


@pytest.mark.parametrize("pages", [1, 2, 3, 7, 99, 100, 101, 150])
def test_a_loop_of_ifds_ends(tmp_path: Path, pages: int) -> None:
    layout = found(tmp_path, tiffs.ifd_loop(pages))
    assert layout.page_count == pages


def test_pages_stored_differently_are_not_one_stack(tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    plane = np.zeros((32, 32), "u2")
    with tifffile.TiffWriter(path) as tiff:
        tiff.write(plane, metadata=None)
        tiff.write(plane, metadata=None, compression="zlib")
    outcome = survey(path)
    assert isinstance(outcome, Refusal)
    assert outcome.reason in ("pages-differ", "compressed")
    with tifffile.TiffWriter(path) as tiff:
        for _ in range(3):
            tiff.write(plane, metadata=None)
        tiff.write(plane, metadata=None, tile=(16, 16))
    outcome = survey(path)
    assert isinstance(outcome, Refusal)
    assert outcome.reason == "pages-differ"


def test_a_thumbnail_does_not_keep_the_stack_from_being_exact(tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    with tifffile.TiffWriter(path) as tiff:
        tiff.write(np.zeros((8, 8), "u1"), metadata=None, compression="zlib")
        for _ in range(3):
            tiff.write(np.ones((64, 64), "u2"), metadata=None)
    layout = survey(path)
    assert isinstance(layout, Layout)
    assert (layout.page_count, layout.geometry.shape) == (3, (64, 64))


def test_axes_of_an_imagej_hyperstack(tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    pixels = np.arange(2 * 3 * 4 * 5 * 6, dtype="u2").reshape(2, 3, 4, 5, 6)
    tifffile.imwrite(path, pixels, imagej=True, metadata={"axes": "TZCYX"})
    layout = survey(path)
    assert isinstance(layout, Layout)
    assert (layout.axes, layout.leading) == (("t", "z", "c"), (2, 3, 4))


@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_one_ifd_over_many_planes(tmp_path: Path, byteorder: Literal["<", ">"]) -> None:
    spec = TiffSpec(byteorder=byteorder, trailing=9)
    layout = found(tmp_path, tiffs.imagej_hyperstack(2, 3, 2, spec=spec))
    assert (layout.axes, layout.leading, layout.page_count) == (("t", "z", "c"), (2, 3, 2), 12)
    assert len(layout.offsets) == 12


def test_one_ifd_that_promises_more_planes_than_there_are(tmp_path: Path) -> None:
    layout = found(tmp_path, tiffs.imagej_hyperstack()[:-1])
    assert layout.page_count == 1, "what is there of the others is husk"


def test_axes_of_an_ome_tiff(tmp_path: Path) -> None:
    path = tmp_path / "x.ome.tif"
    pixels = np.arange(2 * 3 * 4 * 5 * 6, dtype="u2").reshape(2, 3, 4, 5, 6)
    tifffile.imwrite(path, pixels, ome=True, metadata={"axes": "ZTCYX"})
    layout = survey(path)
    assert isinstance(layout, Layout)
    assert (layout.axes, layout.leading) == (("z", "t", "c"), (2, 3, 4))


def test_ome_xml_that_lies_costs_the_axes_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.ome.tif"
    tifffile.imwrite(path, np.zeros((3, 5, 6), "u2"), ome=True, metadata={"axes": "ZYX"})
    data = path.read_bytes().replace(b'SizeZ="3"', b'SizeZ="9"')
    assert found(tmp_path, data).axes == ("z",)


SCRIPT = """
import resource, sys, time
from pathlib import Path
from decant_batch.archive import survey
before = resource.getrusage(resource.RUSAGE_SELF)
outcome = survey(Path(sys.argv[1]))
after = resource.getrusage(resource.RUSAGE_SELF)
print(type(outcome).__name__, getattr(outcome, "reason", ""), after.ru_maxrss - before.ru_maxrss)
"""


@pytest.mark.parametrize(
    "name", [name for name in tiffs.ODD if "lying" in name or "rows" in name or "loop" in name]
)
def test_a_header_that_lies_costs_no_memory(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.tif"
    path.write_bytes(tiffs.ODD[name]())
    command = [sys.executable, "-c", SCRIPT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *_, grown_kib = done.stdout.split()
    assert int(grown_kib) < 32 * 1024, done.stdout


def test_many_ifds_cost_little_memory_each(tmp_path: Path) -> None:
    path = tmp_path / "x.tif"
    path.write_bytes(tiffs.many_ifds(20_000))
    command = [sys.executable, "-c", SCRIPT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kind, *_, grown_kib = done.stdout.split()
    assert kind == "Layout"
    assert int(grown_kib) < 20_000, "about 1 KiB for each page, while they are read"


def test_this_machine_measures_memory_in_kib() -> None:
    assert 10_000 < resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 10_000_000
