"""All of a corpus of real TIFFs through one run, and every byte of it back.

The corpus is a folder with ``index.csv`` and ``files/``, named by the environment variable
DECANT_CORPUS. Marked ``corpus``: not part of the default suite, required by .ci/run.
"""

from __future__ import annotations

import csv
import hashlib
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import ome_types
import pytest
import tifffile
import zarr
import zarr.storage

from decant_batch.archive import Layout, inspect, planes, restore, survey
from decant_batch.batch import run
from decant_batch.batch.config import load
from decant_batch.batch.ledger import Ledger
from tests.corpus import CONSOLIDATED, NESTED, Packed, pack_series
from tests.recover import recover

pytestmark = pytest.mark.corpus

# What a candidate of the index may be verbatim for: none of it can be seen as an array of bytes.
HONEST = {"sub-byte-samples", "unsupported-dtype", "page-too-large"}


def test_every_file_is_archived(packed: Packed) -> None:
    states = {state: tally.count for state, tally in packed.summary.states.items() if tally.count}
    assert states == {"archived": len(packed.files)}
    assert packed.summary.stopped is None
    assert packed.summary.troubles == ()
    sizes = sum((packed.root / relpath).stat().st_size for relpath in packed.files)
    assert packed.summary.states["archived"].source_nbytes == sizes


def test_nothing_else_stands_in_the_destination(packed: Packed) -> None:
    destination = packed.config.parent / "archive"
    expected = {packed.archive(relpath) for relpath in packed.files}
    found = {path for path in destination.rglob("*") if path.is_file()}
    assert {path for path in found - expected if ".decant-batch" not in path.parts} == set()
    assert expected <= found


def test_every_byte_comes_back(packed: Packed, tmp_path: Path) -> None:
    for relpath in packed.files:
        source = packed.root / relpath
        (path,) = restore(packed.archive(relpath), tmp_path)
        assert path == tmp_path / relpath
        assert path.read_bytes() == source.read_bytes(), relpath
        assert path.stat().st_mtime_ns == source.stat().st_mtime_ns, relpath


def test_every_byte_comes_back_without_us(packed: Packed) -> None:
    for relpath in packed.files:
        (data,) = recover(packed.archive(relpath)).values()
        assert data == (packed.root / relpath).read_bytes(), relpath


def test_index_agrees(packed: Packed, corpus: Path) -> None:
    """Each candidate is byte-exact, or its samples cannot be; the index's hashes are ours."""
    reasons: Counter[str] = Counter()
    with (corpus / "index.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            found = inspect(packed.archive(row["path"]))
            assert found.sha256 == row["sha256"], row["path"]
            if row["mode"] == "candidate" and found.mode != "byte-exact":
                assert found.reason in HONEST, (row["path"], found)
                reasons[str(found.reason)] += 1
                print(f"{found.reason:20} {row['bits']:>6} bits {row['dtype']:10} {row['path']}")
    print(dict(reasons))


def test_zarr_sees_the_pixels_that_tifffile_sees(packed: Packed) -> None:
    compared = 0
    for relpath in packed.files:
        layout = survey(packed.root / relpath)
        if not isinstance(layout, Layout):
            continue
        expected = decoded(packed.root / relpath, layout)
        with zarr.storage.ZipStore(packed.archive(relpath), read_only=True) as store:
            pixels = np.asarray(zarr.open_array(store, path="0", mode="r", zarr_format=2)[...])
        if expected is not None:
            assert pixels.shape == expected.shape, relpath
            assert pixels.tobytes() == expected.tobytes(), relpath
            compared += 1
    assert compared > 200, "the corpus has hundreds of TIFFs that are not compressed"


def decoded(path: Path, layout: Layout) -> np.ndarray[Any, Any] | None:
    """The pixels as tifffile decodes them, in canonical order and little-endian.

    None for the one kind of file that tifffile reads in part: a chain of IFDs that loops.
    """
    with tifffile.TiffFile(path, _multifile=False) as tiff:
        pixels = max(tiff.series, key=lambda series: series.nbytes).asarray()
    if pixels.nbytes != layout.pixels_nbytes:
        assert "ifd_loop" in path.name
        return None
    stacked = pixels.reshape(*layout.leading, *layout.geometry.shape)
    order = planes.canonical_order(layout.axes)
    moved = stacked.transpose(*order, *range(len(order), stacked.ndim))
    return np.ascontiguousarray(moved).astype(moved.dtype.newbyteorder("<"))


def test_a_second_run_opens_nothing(packed: Packed) -> None:
    before = digests(packed)
    summary = run.execute(load(packed.config), watch=lambda _tick: None)
    assert summary.settled.count == len(packed.files)
    with Ledger.read(Path(summary.ledger)) as ledger:
        assert all(len(ledger.attempts(relpath)) == 1 for relpath in packed.files)
    assert digests(packed) == before


def digests(packed: Packed) -> dict[str, str]:
    return {
        relpath: hashlib.sha256(packed.archive(relpath).read_bytes()).hexdigest()
        for relpath in packed.files
    }


def _told_by_others(path: Path) -> dict[str, Any]:
    """Sizes in micrometers, and channel names, as ome-types and tifffile report them."""
    # tifffile divides distances of planes by 0.
    with tifffile.TiffFile(path, _multifile=False) as tiff, np.errstate(all="ignore"):
        page = tiff.pages.first
        if tiff.is_ome and (said := _told_by_ome_types(tiff.ome_metadata, page.shape)):
            return said
        if tiff.is_lsm:
            info = tiff.lsm_metadata
            names = info["ChannelColors"]["ColorNames"]
            return {"x": info["VoxelSizeX"] * 1e6, "y": info["VoxelSizeY"] * 1e6, "names": names}
        if tiff.is_metaseries:
            plane = tiff.metaseries_metadata["PlaneInfo"]
            assert plane["spatial-calibration-units"] == "um"
            x, y = (plane[f"spatial-calibration-{axis}"] for axis in "xy")
            return {"x": x, "y": y, "names": [plane["_IllumSetting_"]]}
        if tiff.is_stk:
            assert tiff.stk_metadata["CalibrationUnits"] in ("um", "microns")
            return {axis: tiff.stk_metadata[f"{axis.upper()}Calibration"] for axis in "xy"}
        if tiff.is_imagej and "unit" in tiff.imagej_metadata:
            unit = {"unit": tiff.imagej_metadata["unit"]}
            return unit | _steps(page.get_resolution())
        if 282 in page.tags and page.tags.valueof(296, default=2) in (2, 3):
            return _steps(page.get_resolution("MICROMETER"))
    return {}


def _steps(resolution: tuple[float, float]) -> dict[str, Any]:
    return {axis: 1 / each for axis, each in zip("xy", resolution, strict=True) if each}


def _told_by_ome_types(document: str, shape: tuple[int, ...]) -> dict[str, Any]:
    with warnings.catch_warnings(action="ignore"):  # IDs that are not the schema's
        images = ome_types.from_xml(document, validate=False).images
    fitting = [each for each in images if (each.pixels.size_y, each.pixels.size_x) == shape[:2]]
    pixels = fitting[0].pixels if fitting else None
    if pixels is None or pixels.physical_size_x is None or pixels.physical_size_y is None:
        return {}
    return {
        "x": pixels.physical_size_x * _OME_UNITS[pixels.physical_size_x_unit.value],
        "y": pixels.physical_size_y * _OME_UNITS[pixels.physical_size_y_unit.value],
        "names": [channel.name for channel in pixels.channels],
    }


_OME_UNITS = {"µm": 1.0, "nm": 1e-3, "mm": 1e3}
_MICROMETERS = {
    "micrometer": 1.0,
    "nanometer": 1e-3,
    "millimeter": 1e3,
    "centimeter": 1e4,
    "inch": 25400.0,
}
# As they stand in ImageJ's description of the corpus's files, beside those of NGFF.
_IMAGEJ_UNITS = _MICROMETERS | {
    "micron": 1.0,
    "microns": 1.0,
    "um": 1.0,
    "µm": 1.0,
    "\\u00B5m": 1.0,
    "nm": 1e-3,
    "mm": 1e3,
    "cm": 1e4,
}


def test_sizes_units_and_channel_names_are_those_that_others_report(packed: Packed) -> None:
    """Checked: sizes of x and y on each byte-exact file that has them, names of the channels."""
    told: Counter[str] = Counter()
    for relpath in packed.files:
        attributes = _attributes(packed.archive(relpath))
        if "multiscales" not in attributes:
            continue
        expected = _told_by_others(packed.root / relpath)
        (multiscale,) = attributes["multiscales"]
        scale = multiscale["datasets"][0]["coordinateTransformations"][0]["scale"]
        axes = {axis["name"]: (axis.get("unit"), step)
                for axis, step in zip(multiscale["axes"], scale, strict=True)}  # fmt: skip
        for axis in "xy":
            unit, step = axes[axis]
            if axis not in expected:
                assert (unit, step) == (None, 1.0), relpath
            elif expected.get("unit") in _NO_UNITS:
                assert (unit, step) == (None, pytest.approx(expected[axis])), relpath
            else:
                factor = _IMAGEJ_UNITS[expected["unit"]] if "unit" in expected else 1.0
                assert step * _MICROMETERS[unit] == pytest.approx(expected[axis] * factor), relpath
                told[axis] += 1
        names = [each.get("label") for each in attributes.get("omero", {}).get("channels", ())]
        if names and "names" in expected:
            assert names == expected["names"], relpath
            told["names"] += 1
    assert told["x"] == told["y"] > 100
    assert told["names"] > 10


_NO_UNITS = ("pixel", "pixels", "")


def _attributes(archive: Path) -> dict[str, Any]:
    with zarr.storage.ZipStore(archive, mode="r") as store:
        return dict(zarr.open_group(store, mode="r").attrs)


# --- series -----------------------------------------------------------------------------------


def test_series_are_packed_as_what_they_are(corpus: Path, tmp_path: Path) -> None:
    root, summary = corpus / "files" / "_series", pack_series(corpus, tmp_path)
    assert summary.trouble_count == 0
    back: dict[str, bytes] = {}
    for name, (count, leading) in CONSOLIDATED.items():
        archive = tmp_path / "archive" / f"{name}.zarr.zip"
        found = inspect(archive)
        assert (len(found.members), found.axes) == (count, (*leading, "y", "x"))
        assert found.shape[:-2] == tuple(leading.values())
        with zarr.storage.ZipStore(archive, read_only=True) as store:
            pixels = np.asarray(zarr.open_array(store, path="0", mode="r", zarr_format=2)[...])
        assert pixels.reshape(-1, *pixels.shape[-2:]).tobytes() == b"".join(
            tifffile.imread(root / member, _multifile=False).astype(pixels.dtype).tobytes()
            for member in found.members
        )
        back |= recover(archive)
    with Ledger.read(Path(summary.ledger)) as ledger:
        for name, (count, why) in NESTED.items():
            archive = tmp_path / "archive" / f"{name}.zarr"
            row = ledger.archive_of(f"{name}.zarr")
            assert row is not None
            assert why in row.detail
            assert len(inspect(archive).members) == count
            back |= recover(archive)
    assert summary.modes["series"].count == len(back) == 274
    for relpath, data in back.items():
        assert data == (root / relpath).read_bytes(), relpath
