"""Sources packed, proved and given back, byte for byte; and what must not change by accident."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
import zarr.storage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decant_batch.archive import (
    Layout,
    Recipe,
    Refusal,
    Stamp,
    inspect,
    pack,
    planes,
    restore,
    survey,
    verify,
)
from decant_batch.archive.container import open_container
from decant_batch.archive.husk import HUSK_BLOCK_NBYTES
from decant_batch.archive.model import ContainerKind
from decant_batch.archive.pack import VERBATIM_CHUNK_NBYTES
from decant_batch.errors import ArchiveDamaged, NameTaken, SourceChanged
from tests import tiffs
from tests.recover import recover
from tests.tiffs import TiffSpec

anywhere = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def round_trip(folder: Path, data: bytes, recipe: Recipe | None = None) -> Path:
    """Archive of a source with these bytes, after it gave them back in every way there is."""
    source, archive = folder / "x.tif", folder / "x.zarr"
    source.write_bytes(data)
    remove(archive)
    packed = pack(source, archive, recipe=recipe)
    (proved,) = verify(archive)
    assert proved.problem is None
    assert (proved.sha256, proved.nbytes) == (packed.sha256, len(data))
    (path,) = restore(archive, folder / "back", force=True)
    assert path.read_bytes() == data
    assert recover(archive) == {"x.tif": data}
    assert inspect(archive).archive_nbytes == packed.archive_nbytes
    return archive


def remove(archive: Path) -> None:
    if archive.is_dir():
        for path in sorted(archive.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        archive.rmdir()
    archive.unlink(missing_ok=True)


def pixels_of(archive: Path) -> np.ndarray[Any, Any]:
    kind = zarr.storage.LocalStore if archive.is_dir() else zarr.storage.ZipStore
    with kind(archive, read_only=True) as store:
        return np.asarray(zarr.open_array(store, path="0", mode="r", zarr_format=2)[...])


@given(
    spec=tiffs.tiff_specs(),
    kind=st.sampled_from(["zip", "folder"]),
    threads=st.sampled_from([1, 3]),
)
@anywhere
def test_round_trip(tmp_path: Path, spec: TiffSpec, kind: ContainerKind, threads: int) -> None:
    archive = round_trip(tmp_path, tiffs.build(spec), Recipe(container=kind, threads=threads))
    assert inspect(archive).mode == "byte-exact"
    true = tiffs.planes(spec)  # (pages, Y, X, S)
    if spec.planar and spec.samples > 1:
        true = np.moveaxis(true, -1, 0)  # canonical: channel before space
    assert pixels_of(archive).tobytes() == true.astype(true.dtype.newbyteorder("<")).tobytes()


@pytest.mark.parametrize("kind", ["zip", "folder"])
@pytest.mark.parametrize("name", tiffs.ODD)
def test_odd_files_come_back(tmp_path: Path, name: str, kind: ContainerKind) -> None:
    round_trip(tmp_path, tiffs.ODD[name](), Recipe(container=kind))


@pytest.mark.parametrize(
    "nbytes", [0, 1, VERBATIM_CHUNK_NBYTES - 1, VERBATIM_CHUNK_NBYTES, 9 << 20]
)
def test_verbatim_of_any_length(tmp_path: Path, nbytes: int) -> None:
    archive = round_trip(tmp_path, os.urandom(nbytes), Recipe(threads=2))
    assert inspect(archive).reason in ("not-a-tiff", "empty-file")


@pytest.mark.parametrize("more", [0, 1, -1])
def test_a_husk_of_several_blocks(tmp_path: Path, more: int) -> None:
    spec = TiffSpec(trailing=0)
    data = tiffs.build(spec)
    pixels = tiffs.planes(spec).nbytes
    padding = 2 * HUSK_BLOCK_NBYTES - (len(data) - pixels) + more
    archive = round_trip(tmp_path, data + os.urandom(padding))
    assert inspect(archive).husk_nbytes == 2 * HUSK_BLOCK_NBYTES + more


@pytest.mark.parametrize(
    ("compressor", "filters"),
    [
        (None, ()),
        ({"id": "zstd", "level": 3}, ()),
        ({"id": "zlib", "level": 1}, ({"id": "delta", "dtype": "<u2"},)),
        ({"id": "lz4", "acceleration": 1}, ({"id": "shuffle", "elementsize": 2},)),
        ({"id": "blosc", "cname": "lz4", "clevel": 9, "shuffle": 2}, ()),
        (None, ({"id": "delta", "dtype": "<u2"},)),
    ],
)
def test_any_codec(tmp_path: Path, compressor: Any, filters: Any) -> None:
    recipe = Recipe(compressor=compressor, filters=filters, threads=2)
    archive = round_trip(tmp_path, tiffs.build(TiffSpec(pages=6, shape=(33, 21))), recipe)
    assert inspect(archive).mode == "byte-exact"


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("order", ["in-order", "shuffled"])
def test_the_bytes_do_not_depend_on_threads_or_the_day(
    tmp_path: Path,
    threads: int,
    order: Any,
) -> None:
    spec = TiffSpec(pages=9, shape=(40, 30), rows_per_strip=7, order=order, gap=3)
    source = tmp_path / "x.tif"
    source.write_bytes(tiffs.build(spec))
    stamp = Stamp(relpath="a/x.tif", mtime_ns=5, mode=0o640)
    for name, count in (("one", 1), ("many", threads)):
        pack(source, tmp_path / name, recipe=Recipe(threads=count), stamp=stamp)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "many").read_bytes()


def test_every_chunk_is_written_and_the_separator_is_a_slash(tmp_path: Path) -> None:
    archive = round_trip(tmp_path, tiffs.build(TiffSpec(pages=3, pixels="zero")))
    with open_container(archive) as container:
        assert {f"0/{i}/0/0" for i in range(3)} <= set(container.list())
        document = json.loads(container.get("0/.zarray"))
    assert document["dimension_separator"] == "/"
    assert document["dtype"] == "<u2"


def test_interleaved_pages_are_held_until_they_are_whole(tmp_path: Path) -> None:
    spec = TiffSpec(pages=4, shape=(32, 16), rows_per_strip=1, order="shuffled", gap=1)
    assert inspect(round_trip(tmp_path, tiffs.build(spec), Recipe(threads=3))).page_count == 4


def test_dates_and_permissions_come_back(tmp_path: Path) -> None:
    source = tmp_path / "x.tif"
    source.write_bytes(tiffs.build(TiffSpec()))
    source.chmod(0o440)
    os.utime(source, ns=(1_500_000_000_123_456_789, 1_500_000_000_123_456_789))
    pack(source, tmp_path / "a")
    (path,) = restore(tmp_path / "a", tmp_path / "back")
    assert path.stat().st_mtime_ns == 1_500_000_000_123_456_789
    assert path.stat().st_mode & 0o777 == 0o440


@pytest.mark.parametrize(
    "name", ["a b µ.tif", "C:x.tif", "back\\slash.tif", "%41.tif", "a\udcff\n.tif"]
)
def test_any_name_comes_back(tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    source.write_bytes(tiffs.build(TiffSpec()))
    for stamp in (None, Stamp(relpath=f"plate 1/{name}")):
        archive = tmp_path / "archive"
        archive.unlink(missing_ok=True)
        pack(source, archive, stamp=stamp)
        (path,) = restore(archive, tmp_path / "back")
        assert os.fsencode(path.name) == os.fsencode(name)
        assert path.read_bytes() == source.read_bytes()
        assert len(recover(archive)) == 1


@pytest.mark.parametrize("kind", ["zip", "folder"])
def test_a_source_that_grows_while_it_is_read_is_not_sealed(
    tmp_path: Path, kind: ContainerKind
) -> None:
    source, archive = tmp_path / "x.tif", tmp_path / "a"
    source.write_bytes(tiffs.build(TiffSpec(trailing=3 << 20)))

    def grow(_nbytes: int) -> None:
        with source.open("ab") as file:
            file.write(b"more")

    with pytest.raises(SourceChanged):
        pack(source, archive, recipe=Recipe(container=kind), report=grow)
    assert not archive.exists()


def test_a_source_that_is_cut_while_it_is_read_is_not_sealed(tmp_path: Path) -> None:
    source, archive = tmp_path / "x.tif", tmp_path / "a"
    source.write_bytes(tiffs.build(TiffSpec(trailing=3 << 20)))
    with pytest.raises(SourceChanged):
        pack(source, archive, report=lambda _nbytes: os.truncate(source, 1 << 20))
    assert not archive.exists()


def test_an_existing_archive_is_never_overwritten(tmp_path: Path) -> None:
    source, archive = tmp_path / "x.tif", tmp_path / "a"
    source.write_bytes(tiffs.build(TiffSpec()))
    archive.write_bytes(b"foreign")
    with pytest.raises(NameTaken, match="a: exists"):
        pack(source, archive)
    assert archive.read_bytes() == b"foreign"


def test_restore_never_overwrites_without_force(tmp_path: Path) -> None:
    source, archive = tmp_path / "x.tif", tmp_path / "a"
    source.write_bytes(tiffs.build(TiffSpec()))
    pack(source, archive)
    with pytest.raises(NameTaken, match="--force"):
        restore(archive, tmp_path)
    source.write_bytes(b"other")
    restore(archive, tmp_path, force=True)
    assert source.read_bytes() == tiffs.build(TiffSpec())


@pytest.mark.parametrize("mode", ["byte-exact", "verbatim"])
def test_any_flipped_byte_of_a_chunk_is_told(tmp_path: Path, mode: str) -> None:
    source, archive = tmp_path / "x.tif", tmp_path / "a"
    source.write_bytes(tiffs.build(TiffSpec(shape=(40, 40), pixels="random")))
    pack(
        source,
        archive,
        found=None if mode == "byte-exact" else Refusal(reason="predictor", detail=""),
    )
    data = bytearray(archive.read_bytes())
    data[len(data) // 3] ^= 0x10
    archive.write_bytes(data)
    (proved,) = verify(archive)
    assert proved.problem is not None
    with pytest.raises(ArchiveDamaged, match="a: "):
        restore(archive, tmp_path / "back")
    assert list((tmp_path / "back").glob("*")) == []


def test_the_survey_can_be_handed_over(tmp_path: Path) -> None:
    source = tmp_path / "x.tif"
    source.write_bytes(tiffs.build(TiffSpec()))
    found = survey(source)
    assert isinstance(found, Layout)
    pack(source, tmp_path / "a", found=found)
    pack(source, tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@given(st.permutations(["t", "c", "z"]), st.lists(st.integers(1, 5), min_size=3, max_size=3))
def test_page_and_coordinate_are_a_bijection(axes: list[str], leading: list[int]) -> None:
    count = int(np.prod(leading))
    shape = planes.canonical_shape(axes, leading)
    seen = {planes.coordinate(i, axes, leading) for i in range(count)}
    assert seen == set(np.ndindex(*shape))
    assert planes.storage_shape(axes, shape) == tuple(leading)
    assert [axes[i] for i in planes.canonical_order(axes)] == ["t", "c", "z"]
