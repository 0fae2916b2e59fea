"""Series: members packed into one archive, each given back; and where each plane is."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
import zarr.storage
from hypothesis import given, settings
from hypothesis import strategies as st

from decant_batch.archive import (
    Grid,
    Member,
    Pyramid,
    Recipe,
    Stamp,
    axes,
    close_series,
    inspect,
    pack,
    pack_series,
    restore,
    verify,
)
from decant_batch.archive.container import open_container
from decant_batch.archive.model import ContainerKind, Parts
from decant_batch.errors import ArchiveDamaged, SourceChanged
from tests import tiffs
from tests.recover import recover
from tests.tiffs import TiffSpec

anywhere = settings(deadline=None, max_examples=40)
STAMP = Stamp(mtime_ns=1_700_000_000_000_000_000, mode=0o640)


def write(folder: Path, specs: Sequence[TiffSpec]) -> list[Member]:
    members = []
    for number, spec in enumerate(specs):
        path = folder / "share" / f"T{number % 3}" / f"a{number}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tiffs.build(spec))
        relpath = path.relative_to(folder / "share").as_posix()
        members.append(Member(path=path, stamp=replace(STAMP, relpath=relpath)))
    return members


def sources(members: Sequence[Member]) -> dict[str, bytes]:
    return {str(member.stamp.relpath): member.path.read_bytes() for member in members}


def check(archive: Path, members: Sequence[Member], folder: Path) -> None:
    """All come back, by restore and by the independent reader, each at its own path."""
    assert [each.problem for each in verify(archive, threads=2)] == [None] * len(members)
    expected = sources(members)
    assert recover(archive) == expected
    written = restore(archive, folder / "back", force=True)
    found = {path.relative_to(folder / "back").as_posix(): path.read_bytes() for path in written}
    assert found == expected
    assert {path.stat().st_mtime_ns for path in written} == {STAMP.mtime_ns}
    assert inspect(archive).members == tuple(expected)


def pixels_of(archive: Path, name: str = "0") -> np.ndarray[Any, Any]:
    kind = zarr.storage.LocalStore if archive.is_dir() else zarr.storage.ZipStore
    with kind(archive, read_only=True) as store:
        return np.asarray(zarr.open_array(store, path=name, mode="r", zarr_format=2)[...])


@st.composite
def grids(draw: st.DrawFn) -> tuple[Parts, int, list[TiffSpec]]:
    """Axes of a series with their lengths, pages of a member, members that look alike."""
    names = draw(st.lists(st.sampled_from(["t", "c", "z", "p", "q"]), max_size=3, unique=True))
    outer = tuple((name, draw(st.integers(1, 3))) for name in names)
    pages = draw(st.integers(1, 3))
    base = draw(tiffs.tiff_specs())
    specs = []
    for number in range(math.prod(length for _, length in outer)):
        own = draw(tiffs.tiff_specs())
        alike: dict[str, Any] = {
            "dtype": base.dtype,
            "shape": base.shape,
            "samples": 1,
            "planar": False,
        }
        specs.append(replace(own, **alike, pages=pages, pixels="random", seed=number))
    return outer, pages, specs


@given(case=grids(), kind=st.sampled_from(["zip", "folder"]), threads=st.sampled_from([1, 3]))
@anywhere
def test_page_member_and_coordinate_invert(
    tmp_path_factory: pytest.TempPathFactory,
    case: tuple[Parts, int, list[TiffSpec]],
    kind: ContainerKind,
    threads: int,
) -> None:
    outer, pages, specs = case
    folder = tmp_path_factory.mktemp("series")
    members = write(folder, specs)
    grid = axes.gridded((*outer, ("z", pages)))
    assert math.prod(grid.leading) == len(specs) * pages
    archive = folder / "x.zarr"
    packed, hashes = pack_series(
        members, archive, grid=grid, recipe=Recipe(container=kind, threads=threads)
    )
    check(archive, members, folder)
    assert [each.sha256 for each in verify(archive)] == list(hashes)
    assert packed.archive_nbytes == inspect(archive).archive_nbytes
    # Where the metadata says that a plane is: unmerge by the lengths, put in canonical order.
    stored = pixels_of(archive)
    canonical = sorted(grid.axes, key=lambda axis: {"t": 0, "z": 2}.get(axis, 1))
    back = stored.transpose(*(canonical.index(axis) for axis in grid.axes), *(-2, -1))
    flat = back.reshape(len(specs), pages, *stored.shape[-2:])
    for number, spec in enumerate(specs):
        true = tiffs.planes(spec)[..., 0]
        assert flat[number].tobytes() == np.ascontiguousarray(true).tobytes()


def test_an_archive_does_not_depend_on_threads(tmp_path: Path) -> None:
    members = write(tmp_path, [TiffSpec(pages=2, seed=i, pixels="random") for i in range(5)])
    grid = axes.gridded((("t", 5), ("z", 2)))
    found = set()
    for threads in (1, 2, 4):
        archive = tmp_path / f"{threads}.zarr.zip"
        recipe = Recipe(threads=threads, pyramid=Pyramid(levels=1))
        pack_series(members, archive, grid=grid, recipe=recipe)
        found.add(archive.read_bytes().replace(b'"original_name":"%d"' % threads, b""))
    assert len({len(each) for each in found}) == 1
    check(archive, members, tmp_path)
    assert pixels_of(archive, "1").shape == (5, 2, 3, 4)


def test_pages_go_where_the_member_says(tmp_path: Path) -> None:
    """OME sets name the place of each plane: here every second one in each of two files."""
    specs = [TiffSpec(pages=3, seed=i, pixels="random") for i in range(2)]
    members = [
        replace(member, index=tuple(range(number, 6, 2)))
        for number, member in enumerate(write(tmp_path, specs))
    ]
    archive = tmp_path / "x.zarr.zip"
    pack_series(members, archive, grid=Grid(axes=("z",), leading=(6,)))
    check(archive, members, tmp_path)
    stored = pixels_of(archive)
    for number, spec in enumerate(specs):
        np.testing.assert_array_equal(stored[number::2], tiffs.planes(spec)[..., 0])


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("name", ["shape", "pages", "compressed"])
def test_a_member_that_is_no_longer_alike_ends_the_series(
    tmp_path: Path, name: str, number: int
) -> None:
    members = write(tmp_path, [TiffSpec(seed=i) for i in range(3)])
    changed = {
        "shape": tiffs.build(TiffSpec(shape=(9, 9))),
        "pages": tiffs.build(TiffSpec(pages=2)),
        "compressed": tiffs.compressed(),
    }
    members[number].path.write_bytes(changed[name])
    archive = tmp_path / "x.zarr.zip"
    with pytest.raises(SourceChanged, match=rf"a{number}\.tif"):
        pack_series(members, archive, grid=axes.gridded((("t", 3),)))
    assert not archive.exists()


def test_a_nested_series_of_unlike_members(tmp_path: Path) -> None:
    members = write(tmp_path, [TiffSpec(pages=2), TiffSpec(shape=(2, 2)), TiffSpec()])
    members[1].path.write_bytes(tiffs.compressed())
    members[2].path.write_bytes(b"")
    folder = tmp_path / "x.zarr"
    folder.mkdir()
    bundles = []
    for number, member in enumerate(members):
        packed = pack(member.path, folder / f"m{number}.zarr.zip", stamp=member.stamp)
        bundles.append((member, packed.source_nbytes, packed.sha256))
    close_series(folder, "x", bundles)
    check(folder, members, tmp_path)
    (folder / "m1.zarr.zip").unlink()
    problems = [each.problem for each in verify(folder)]
    assert [problem is None for problem in problems] == [True, False, True]


def test_one_member_or_some(tmp_path: Path) -> None:
    members = write(tmp_path, [TiffSpec(seed=i, pixels="random") for i in range(4)])
    archive = tmp_path / "x.zarr.zip"
    pack_series(members, archive, grid=axes.gridded((("t", 4),)))
    (one,) = restore(archive, tmp_path / "one", members=["T1/a1.tif"])
    assert one.read_bytes() == members[1].path.read_bytes()
    some = restore(archive, tmp_path / "some", members=["T0/*"])
    assert {path.name for path in some} == {"a0.tif", "a3.tif"}


@pytest.mark.parametrize("name", [b"\xff.tif", "ä%:.tif".encode()])
def test_names_of_any_bytes_come_back(tmp_path: Path, name: bytes) -> None:
    (member,) = write(tmp_path, [TiffSpec()])
    path = member.path.rename(tmp_path / os.fsdecode(name))
    odd = Member(path=path, stamp=replace(STAMP, relpath=os.fsdecode(name)))
    archive = tmp_path / "x.zarr.zip"
    pack_series([odd], archive, grid=axes.gridded(()))
    (back,) = restore(archive, tmp_path / "back")
    assert os.fsencode(back.name) == name
    assert back.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("hostile", ["../up.tif", "/abs.tif", "a/../../up.tif"])
def test_recorded_paths_that_leave_the_folder_are_refused(tmp_path: Path, hostile: str) -> None:
    members = write(tmp_path, [TiffSpec(), TiffSpec(seed=1)])
    archive = tmp_path / "x.zarr"
    pack_series(members, archive, grid=axes.gridded((("t", 2),)), recipe=Recipe(container="folder"))
    stamps = json.loads((archive / ".decant/members.json").read_text())
    stamps[1]["relpath"] = hostile
    (archive / ".decant/members.json").write_text(json.dumps(stamps))
    with pytest.raises(ArchiveDamaged, match="leave the output folder"):
        restore(archive, tmp_path / "back")
    assert not (tmp_path / "up.tif").exists()


def test_axes_of_a_series() -> None:
    def made(*names: str) -> tuple[tuple[str, ...], dict[str, Parts]]:
        grid = axes.gridded(tuple((name, 2) for name in names))
        assert math.prod(grid.leading) == 2 ** len(names) or not names
        assert len(set(grid.axes)) == len(grid.axes) <= 3
        return grid.axes, dict(grid.merged)

    assert made("t", "c", "z") == (("t", "c", "z"), {})
    assert made("z", "t") == (("z", "t"), {})
    assert made("well", "t") == (("well", "t"), {})
    assert made("t", "z", "z") == (("t", "z"), {"z": (("z", 2), ("z", 2))})
    assert made("pos", "c", "z") == (("c", "z"), {"c": (("pos", 2), ("c", 2))})
    assert made("t", "pos", "c") == (("t", "c"), {"t": (("t", 2), ("pos", 2))})
    for names in itertools.permutations(("t", "z", "c", "p", "q")):
        made(*names)


def test_parts_of_a_value_are_one_entry(tmp_path: Path) -> None:
    from decant_batch.archive.container import create

    kinds: list[ContainerKind] = ["zip", "folder"]
    for kind in kinds:
        path = tmp_path / kind
        with create(path, kind) as container:
            container.set("a", b"1")
            container.set_parts("b/c", iter([b"x" * 100, b"", b"y" * 70_000]))
            container.set("d", b"2")
        with open_container(path) as container:
            assert container.get("b/c") == b"x" * 100 + b"y" * 70_000
            assert (container.get("a"), container.get("d")) == (b"1", b"2")
            with pytest.raises(ValueError, match="reading"):
                container.set_parts("e", [b""])
