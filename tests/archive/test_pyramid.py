"""Levels for viewers: what each pixel of them is, and where NGFF is told that it lies."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import zarr
import zarr.storage
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from decant_batch.archive import Pyramid, Recipe, inspect, pack, pyramid, verify
from tests.recover import recover

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
sides = hnp.array_shapes(min_dims=2, max_dims=3, max_side=7)


@given(st.sampled_from(INTEGERS).flatmap(lambda kind: hnp.arrays(kind, sides)))
def test_a_mean_is_rounded_half_up_and_exact(plane: np.ndarray[Any, Any]) -> None:
    level = pyramid.halved(plane, "mean")
    assert level.dtype == plane.dtype
    for y, x in np.ndindex(*(math.ceil(length / 2) for length in plane.shape[:2])):
        block = plane[2 * y : 2 * y + 2, 2 * x : 2 * x + 2]
        for sample in np.ndindex(plane.shape[2:]):
            values = [int(value) for value in block[..., *sample].flat]
            mean = (2 * sum(values) + len(values)) // (2 * len(values))
            assert int(level[(y, x, *sample)]) == mean


@given(st.sampled_from(INTEGERS).flatmap(lambda kind: hnp.arrays(kind, sides)))
def test_nearest_takes_pixels_that_are_there(plane: np.ndarray[Any, Any]) -> None:
    np.testing.assert_array_equal(pyramid.halved(plane, "nearest"), plane[::2, ::2])


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "complex64", "complex128"])
def test_the_mean_of_the_largest_floats_is_no_infinity(kind: str) -> None:
    largest = np.finfo(kind).max
    level = pyramid.halved(np.full((4, 4), largest, kind), "mean")
    np.testing.assert_array_equal(level, np.full((2, 2), largest, kind))
    odd = np.array([[1, np.nan], [np.inf, 2]], kind)
    assert not np.isfinite(pyramid.halved(odd, "mean")).any()


def test_parts_of_a_large_plane_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = np.random.default_rng(0).integers(0, 65536, (101, 33), np.uint16)
    whole = pyramid.halved(plane, "mean")
    monkeypatch.setattr(pyramid, "PART_NBYTES", 1)
    np.testing.assert_array_equal(pyramid.halved(plane, "mean"), whole)


@pytest.mark.parametrize(
    ("shape", "wanted", "found"),
    [
        ((1000, 700), Pyramid(min_size=256), [(500, 350), (250, 175)]),
        ((256, 256), Pyramid(min_size=256), []),
        ((257, 1, 3), Pyramid(min_size=256), [(129, 1, 3)]),
        ((5, 7), Pyramid(levels=2), [(3, 4), (2, 2)]),
        ((3, 1), Pyramid(levels=9), [(2, 1), (1, 1)]),
        ((1, 1), Pyramid(levels=9), []),
        ((5, 7), None, []),
    ],
)
def test_how_many_levels(
    shape: tuple[int, ...], wanted: Pyramid | None, found: list[tuple[int, ...]]
) -> None:
    assert pyramid.shapes(shape, wanted) == found


@pytest.mark.parametrize("method", ["mean", "nearest"])
def test_levels_of_an_archive(tmp_path: Path, method: Any) -> None:
    """A ramp is its own scale: where NGFF says that a pixel lies is what its value must be."""
    source, archive = tmp_path / "a.tif", tmp_path / "a.zarr.zip"
    x = np.arange(64, dtype=np.float32) * 2
    y = np.arange(32, dtype=np.float32)[:, None] * 300
    stack = np.stack([(x + y) + 100_000 * z for z in range(3)])
    tifffile.imwrite(
        source,
        stack,
        photometric="minisblack",
        resolution=(1e4 / 2, 1e4 / 300),
        resolutionunit="CENTIMETER",
    )
    pack(source, archive, recipe=Recipe(pyramid=Pyramid(levels=3, method=method), threads=2))
    assert [each.problem for each in verify(archive)] == [None]
    assert recover(archive) == {"a.tif": source.read_bytes()}
    assert inspect(archive).shape == (3, 32, 64)
    with zarr.storage.ZipStore(archive, mode="r") as store:
        group = zarr.open_group(store, mode="r")
        (multiscale,) = group.attrs["multiscales"]
        assert group.attrs["decant"]["derived"] == ["1", "2", "3"]
        assert multiscale["type"] == method
        assert [each["path"] for each in multiscale["datasets"]] == ["0", "1", "2", "3"]
        for dataset in multiscale["datasets"]:
            pixels = np.asarray(group[dataset["path"]][:])
            told = {
                each["type"]: each[each["type"]] for each in dataset["coordinateTransformations"]
            }
            start = told.get("translation", [0, 0, 0])
            at = [
                first + step * np.arange(length)
                for first, step, length in zip(start, told["scale"], pixels.shape, strict=True)
            ]
            expected = at[0][:, None, None] * 100_000 + at[1][:, None] + at[2]
            # The sizes that resolution tags can hold are fractions.
            np.testing.assert_allclose(pixels, expected, rtol=1e-5)


def test_levels_do_not_depend_on_threads_and_no_pyramid_changes_nothing(tmp_path: Path) -> None:
    source = tmp_path / "a.tif"
    pixels = np.random.default_rng(1).integers(0, 255, (9, 61, 43, 3), np.uint8)
    tifffile.imwrite(source, pixels, photometric="rgb")
    found = set()
    for threads in (1, 3):
        archive = tmp_path / f"{threads}.zarr.zip"
        pack(source, archive, recipe=Recipe(pyramid=Pyramid(min_size=20), threads=threads))
        found.add(archive.read_bytes())
    assert len(found) == 1
    with zipfile.ZipFile(archive) as opened:
        levels = {name[0] for name in opened.namelist() if name.endswith("/.zarray")}
    assert levels == {"0", "1", "2", "h"}
