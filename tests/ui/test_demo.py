from __future__ import annotations

import hashlib
import os
import shlex
from pathlib import Path

import numpy as np
import pytest
import tifffile

from decant_batch.errors import Unusable, UsageError
from decant_batch.ui import demo


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config of a demo that was written and not run."""
    return demo.write(tmp_path_factory.mktemp("demo") / "new")


@pytest.fixture(scope="module")
def share(config: Path) -> Path:
    """The demo's share."""
    return config.parent / "share"


def _hashes(share: Path) -> dict[str, str]:
    return {
        path.relative_to(share).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in share.rglob("*")
        if path.is_file()
    }


def test_the_share_is_about_30_megabytes(share: Path) -> None:
    size = sum(path.stat().st_size for path in share.rglob("*") if path.is_file())
    assert 25e6 < size < 35e6


def test_the_same_files_come_out_every_time(share: Path, tmp_path: Path) -> None:
    again = demo.write(tmp_path).parent / "share"
    assert _hashes(again) == _hashes(share)
    assert {p.name: p.stat().st_mtime_ns for p in again.rglob("*.tif")} == {
        p.name: p.stat().st_mtime_ns for p in share.rglob("*.tif")
    }


def test_the_share_holds_what_real_shares_hold(share: Path) -> None:
    names = list(_hashes(share))
    assert any(" " in name for name in names)
    assert any(not name.isascii() for name in names)
    assert (share / "plate_07/A04 site 1.tif").stat().st_size == 0
    assert "Kamera" in (share / "plate_07/Notizen.txt").read_text("utf-8")


def _kind(path: Path) -> tuple[str, tuple[int, ...]]:
    with tifffile.TiffFile(path) as tiff:
        return tiff.series[0].axes, tiff.series[0].shape


def test_the_images_are_of_many_kinds(share: Path) -> None:
    assert _kind(share / "plate_07/A01 site 1.tif") == ("CYX", (4, 512, 512))
    hyperstack = share / "timelapse/Zellteilung Übersicht.tif"
    assert _kind(hyperstack) == ("TZCYX", (6, 3, 2, 256, 256))
    ome = share / "confocal 2026-03/α-tubulin 60x.ome.tif"
    assert _kind(ome) == ("CZYX", (3, 10, 256, 256))
    with tifffile.TiffFile(hyperstack) as tiff:
        assert tiff.is_imagej
    with tifffile.TiffFile(ome) as tiff:
        assert tiff.is_ome
    with tifffile.TiffFile(share / "slides/H&E section 12.tif") as tiff:
        assert tiff.is_bigtiff
        assert tiff.pages.first.is_tiled
        assert tiff.pages.first.shape == (1200, 1000, 3)
    with tifffile.TiffFile(share / "slides/overview planar.tif") as tiff:
        assert tiff.pages.first.planarconfig == 2
    with tifffile.TiffFile(share / "slides/label deflate.tif") as tiff:
        assert tiff.pages.first.compression == 8
    with tifffile.TiffFile(share / "timelapse/long run/pos 02 τ=5min.tif") as tiff:
        assert tiff.byteorder == ">"


def test_one_file_was_cut_short(share: Path) -> None:
    whole, cut = share / "plate_07/A01 site 1.tif", share / "transfer/A01 site 1 (copy).tif"
    assert 0 < cut.stat().st_size < whole.stat().st_size


def test_pixels_are_camera_like() -> None:
    rng = np.random.default_rng(0)
    first, second = demo.camera(rng, (2, 128, 128)).astype(float)
    # The scene is shared, so the difference of two planes is noise alone: photon noise, whose
    # variance is the signal above the camera's offset, and a little of the camera's own.
    noise = np.var(first - second) / 2
    signal = np.mean((first + second) / 2) - 100
    assert noise == pytest.approx(signal + 4, rel=0.1)
    assert demo.camera(rng, (3, 2, 16, 16)).dtype == np.uint16


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match="is there already"):
        demo.write(tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo").touch()
    with pytest.raises(UsageError, match="is there already"):
        demo.write(tmp_path / "demo")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unusable, match="the demo cannot be written"):
        demo.write(tmp_path / "file" / "demo")


def test_next_steps_can_be_pasted(config: Path) -> None:
    lines = demo.next_steps_text(config).splitlines()[1:]
    commands = [shlex.split(line[line.index("decant-batch") :]) for line in lines]
    assert [command[1] for command in commands] == ["plan", "run", "status", "inspect", "restore"]
    assert commands[0][2] == str(config)
    assert commands[3][2] == str(config.parent / "archive/plate_07/A01 site 1.tif.zarr.zip")


def test_what_did_not_come_back_is_named() -> None:
    all_back = demo.Comparison(count=15, differing=())
    assert demo.comparison_text(all_back).endswith("all 15 files came back byte for byte")
    one_lost = demo.Comparison(count=15, differing=("a.tif",))
    assert demo.comparison_text(one_lost).endswith("14 of 15 came back; not a.tif")
