"""Archives as readers see them that others wrote: pixels compared, not only exit codes.

The readers are in the folder that the environment variable DECANT_READERS names; ``.ci/readers``
makes it. Marked ``readers``: skipped where that variable is not set, required by .ci/run.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest
import tifffile

from decant_batch.archive import Member, Pyramid, Recipe, Stamp, inspect, pack, pack_series, verify
from decant_batch.archive.axes import gridded
from decant_batch.archive.container import open_container
from decant_batch.archive.model import ContainerKind
from tests.corpus import CONSOLIDATED, NESTED, Packed
from tests.corpus import pack_series as pack_corpus_series

pytestmark = pytest.mark.readers

Pixels = npt.NDArray[Any]
PIXEL_READERS = ("tensorstore", "zarr", "zarr2", "ngff_zarr", "ome_zarr", "bioio")
VALIDATORS = ("ngff_schema", "ome_zarr_models", "yaozarrs")
CONTAINERS: tuple[ContainerKind, ...] = ("zip", "folder")
SUFFIXES = {"zip": ".zarr.zip", "folder": ".zarr"}
COLORS = {"red": -16776961, "green": 16711935, "blue": 65535}  # RGBA as signed 32 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """The folder that ``.ci/readers`` makes."""

    folder: Path

    def said(self, reader: str, archives: list[Path], out: Path) -> list[str]:
        """What a reader complains of, of each archive; pixels are in ``out``/<number>.npy."""
        environment = "zarr2" if reader == "zarr2" else "python"
        command: list[str | Path] = [
            self.folder / environment / "bin" / "python", Path(__file__).with_name("read.py"),
            reader, out, *archives,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said: list[str] = json.loads(done.stdout.splitlines()[-1])
        assert len(said) == len(archives)
        return said

    def node(self, script: str, *arguments: str | Path) -> str:
        """What a script of ours in Node prints."""
        command = ["node", self.folder / "node" / script, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def served(self, root: Path) -> Iterator[tuple[str, Path]]:
        """Address of ``root`` on a server that answers range requests, and its log."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        python, log = self.folder / "python" / "bin" / "python", root / "requests.log"
        with log.open("w") as file:
            server = subprocess.Popen(
                [python, "-m", "RangeHTTPServer", "-b", "127.0.0.1", str(port)],
                cwd=root, stdout=file, stderr=file,
            )  # fmt: skip
        try:
            for _ in range(200):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}", log
        finally:
            server.terminate()
            server.wait()


@pytest.fixture(scope="module")
def readers() -> Readers:
    folder = os.environ.get("DECANT_READERS")
    if folder is None:
        pytest.skip("needs other people's readers: .ci/readers FOLDER, then DECANT_READERS=FOLDER")
    if not Path(folder, "node", "bundle.js").is_file():
        pytest.fail("DECANT_READERS must name the folder that .ci/readers makes")
    return Readers(folder=Path(folder))


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Archives by their path, each with the pixels that went into its sources."""

    root: Path
    pixels: Mapping[Path, Pixels]

    @property
    def plain(self) -> list[Path]:
        """Those whose samples are not interleaved."""
        return [path for path in self.pixels if not path.name.startswith("rgb")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A byte-exact, a consolidated and an RGB archive, as zip and as folder."""
    root = tmp_path_factory.mktemp("made")
    noise = np.random.default_rng(7)
    stack = noise.integers(0, 65536, (2, 3, 4, 96, 130), dtype=np.uint16)
    rgb = noise.integers(0, 256, (60, 70, 3), dtype=np.uint8)
    _write_stack(root / "stack.ome.tif", stack)
    tifffile.imwrite(root / "rgb.tif", rgb, photometric="rgb")
    series = noise.integers(0, 4000, (2, 3, 48, 80), dtype=np.uint16)
    members = _write_members(root / "members", series)
    pixels: dict[Path, Pixels] = {}
    for kind in CONTAINERS:
        recipe = Recipe(container=kind, pyramid=Pyramid(min_size=32))
        for name, values in (("stack.ome", stack), ("rgb", rgb[np.newaxis])):
            archive = root / f"{name}{SUFFIXES[kind]}"
            pack(root / f"{name}.tif", archive, recipe=recipe)
            pixels[archive] = values
        archive = root / f"series{SUFFIXES[kind]}"
        pack_series(members, archive, grid=gridded((("t", 2), ("c", 3))), recipe=recipe)
        pixels[archive] = series
    return Made(root=root, pixels=pixels)


def _write_stack(path: Path, stack: Pixels) -> None:
    channels = {"Name": list(COLORS), "Color": list(COLORS.values())}
    size = {f"PhysicalSize{axis}": 0.1 for axis in "XY"}
    unit = {f"PhysicalSize{axis}Unit": "µm" for axis in "XY"}
    tifffile.imwrite(
        path,
        stack,
        byteorder=">",
        photometric="minisblack",
        metadata={"axes": "TCZYX", "Channel": channels} | size | unit,
    )


def _write_members(folder: Path, series: Pixels) -> list[Member]:
    folder.mkdir()
    members = []
    for number, plane in enumerate(series.reshape(-1, *series.shape[-2:])):
        path = folder / f"{number}.tif"
        tifffile.imwrite(path, plane, byteorder="<>"[number % 2], metadata=None)
        members.append(Member(path=path, stamp=Stamp(relpath=path.name)))
    return members


@pytest.mark.parametrize("reader", PIXEL_READERS)
def test_a_reader_sees_the_pixels(
    readers: Readers, made: Made, reader: str, tmp_path: Path
) -> None:
    archives = list(made.pixels)
    assert readers.said(reader, archives, tmp_path) == [""] * len(archives)
    for number, archive in enumerate(archives):
        found, wanted = np.load(tmp_path / f"{number}.npy"), made.pixels[archive]
        assert (found.shape, found.dtype.newbyteorder("=")) == (wanted.shape, wanted.dtype)
        assert (found == wanted).all(), archive.name


@pytest.mark.parametrize("reader", VALIDATORS)
def test_a_validator_has_no_complaint_but_of_interleaved_samples(
    readers: Readers, made: Made, reader: str, tmp_path: Path
) -> None:
    said = dict(zip(made.pixels, readers.said(reader, list(made.pixels), tmp_path), strict=True))
    assert [said[archive] for archive in made.plain] == [""] * len(made.plain)
    for archive in made.pixels.keys() - made.plain:
        assert is_about_the_axes_alone(reader, said[archive]), said[archive]


def is_about_the_axes_alone(reader: str, complaint: str) -> bool:
    """True for the one complaint that design and spec accept: samples stand behind space."""
    expected = {
        "ngff_schema": "['properties']['axes']",
        "ome_zarr_models": "1 validation error for ImageAttrs\nmultiscales.0.axes\n",
        "yaozarrs": "\nimage.multiscales.0.axes\n",
    }
    is_one = reader == "ngff_schema" or "1 validation error" in complaint
    return is_one and expected[reader] in complaint


def test_zarrita_reads_zips_by_range_requests(readers: Readers, made: Made, tmp_path: Path) -> None:
    names = [path.name for path in made.pixels]
    with readers.served(made.root) as (address, log):
        urls = [f"{address}/{name}" for name in names]
        said = json.loads(readers.node("zarrita.mjs", tmp_path, *urls))
    for number, (archive, about) in enumerate(zip(made.pixels, said, strict=True)):
        wanted = made.pixels[archive]
        assert (tuple(about["shape"]), about["dtype"]) == (wanted.shape, wanted.dtype.name)
        raw = (tmp_path / f"{number}.raw").read_bytes()
        assert raw == wanted.tobytes(), archive.name
    requests = log.read_text().splitlines()
    for name in names:
        statuses = {line.split()[-2] for line in requests if f"GET /{name} " in line}
        assert statuses == ({"206"} if name.endswith(".zip") else set()), name


def test_a_browser_shows_the_picture(readers: Readers, made: Made, tmp_path: Path) -> None:
    """ome-zarr.js in Chromium: the middle plane in the channels' colours, within their windows.

    It knows no samples: of RGB it shows the first, in grey.
    """
    if shutil.which("chromium") is None:
        pytest.fail("needs chromium; .ci/readers installs it")
    shutil.copy(readers.folder / "node" / "bundle.js", made.root)
    page = '<!doctype html><meta charset="utf-8"><script src="bundle.js"></script>'
    (made.root / "page.html").write_text(page)
    shown = [path for path in made.pixels if not path.name.startswith("series")]
    with readers.served(made.root) as (address, _log):
        urls = [f"{address}/{path.name}" for path in shown]
        readers.node(
            "picture.mjs", str(shutil.which("chromium")), tmp_path, f"{address}/page.html", *urls
        )
    for number, archive in enumerate(shown):
        picture = imagecodecs.png_decode((tmp_path / f"{number}.png").read_bytes())
        pixels = made.pixels[archive]
        if archive.name.startswith("rgb"):
            wanted = np.repeat(pixels[0, :, :, :1], 3, axis=2)
        else:
            wanted = np.moveaxis(pixels[1, :, 2], 0, -1) / 65535 * 255
        assert picture.shape == (*wanted.shape[:2], 4)
        assert np.abs(picture[..., :3].astype(float) - wanted).max() <= 1.5, archive.name


# --- the corpus -------------------------------------------------------------------------------


def _pixels_of(archive: Path) -> Pixels:
    """Level 0 as zarr-python reads it, which other tests compare with tifffile."""
    import zarr

    with zarr.storage.ZipStore(archive, read_only=True) as store:
        return np.asarray(zarr.open_array(store, path="0", mode="r", zarr_format=2)[...])


@pytest.mark.corpus
def test_validators_pass_the_corpus(readers: Readers, packed: Packed, tmp_path: Path) -> None:
    """All byte-exact archives; of interleaved samples the axes are the one complaint."""
    archives = [packed.archive(relpath) for relpath in packed.files]
    archives = [archive for archive in archives if inspect(archive).mode == "byte-exact"]
    assert len(archives) == 271
    for reader in VALIDATORS:
        said = readers.said(reader, archives, tmp_path)
        for archive, complaint in zip(archives, said, strict=True):
            if inspect(archive).axes[-1:] == ("s",):
                assert is_about_the_axes_alone(reader, complaint), (archive, complaint)
            else:
                assert complaint == "", (archive, complaint)


@pytest.mark.corpus
def test_readers_see_the_corpus_series(readers: Readers, corpus: Path, tmp_path: Path) -> None:
    """Consolidated archives, and each byte-exact bundle of the nested ones."""
    summary = pack_corpus_series(corpus, tmp_path)
    assert summary.trouble_count == 0
    archives = [tmp_path / "archive" / f"{name}.zarr.zip" for name in CONSOLIDATED]
    for name in NESTED:
        bundles = sorted((tmp_path / "archive" / f"{name}.zarr").glob("*.zarr.zip"))
        archives += [path for path in bundles if inspect(path).mode == "byte-exact"]
    assert len(archives) > len(CONSOLIDATED)
    assert all(found.problem is None for archive in archives for found in verify(archive))
    for reader in PIXEL_READERS:
        out = tmp_path / reader
        out.mkdir()
        assert readers.said(reader, archives, out) == [""] * len(archives), reader
        for number, archive in enumerate(archives):
            found, wanted = np.load(out / f"{number}.npy"), _pixels_of(archive)
            assert found.shape == wanted.shape, (reader, archive)
            assert found.astype(wanted.dtype).tobytes() == wanted.tobytes(), (reader, archive)


def test_a_separator_is_always_named(made: Made) -> None:
    """Without it some readers see zeros, and validators see nothing wrong."""
    for archive in made.pixels:
        with open_container(archive) as container:
            documents = [key for key in container.list() if key.endswith(".zarray")]
            assert documents
            for key in documents:
                assert json.loads(container.get(key))["dimension_separator"] == "/"
