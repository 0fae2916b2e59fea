"""A believable share of about 30 MB to try everything on, and the proof that it comes back.

The pixels are made, not measured: photon noise over round cells on an uneven background, because
noise is what decides how well camera images compress. The same files come out every time.
"""

from __future__ import annotations

import filecmp
import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tifffile

from decant_batch.errors import Unusable, UsageError
from decant_batch.ui.quantities import count_text

SHARE, ARCHIVE, RESTORED, CONFIG = "share", "archive", "restored", "decant.yaml"

_CONFIG_TEXT = f"""\
# Written by `decant-batch demo`. Paths are relative to this file.
source: {SHARE}          # read only, always
destination: {ARCHIVE}
others: verbatim       # also keep what is not a TIFF
settle: 0s             # nobody is still writing here; the default leaves young files alone
cluster: {{kind: local, workers: 2, memory: 1GiB}}
"""
_NOTES = """\
Platte 07, 60x, 2026-03-11
A04: Kamera hing, Datei ist leer. A03 neu aufgenommen.
"""
# 2026-03-11 09:00 UTC: restored files show that dates come back.
_FIRST_NS = 1_773_219_600_000_000_000
_MINUTE_NS = 60_000_000_000
# What a camera adds to every pixel, and the noise of reading it out, in counts.
_OFFSET, _READ_NOISE = 100, 2.0
_CELLS = 30

Pixels = npt.NDArray[np.uint16]
_Maker = Callable[[Path, np.random.Generator], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How many files of the share were looked at, and which did not come back as they were."""

    count: int
    differing: tuple[str, ...]


def write(folder: Path) -> Path:
    """The path of the demo's config, with the share beside it.

    Raises
    ------
    UsageError
        ``folder`` is there already and holds something.
    Unusable
        ``folder`` cannot be written.
    """
    try:
        _claim(folder)
        for at, (relpath, make) in enumerate(_files()):
            path = folder / SHARE / relpath
            path.parent.mkdir(parents=True, exist_ok=True)
            make(path, np.random.default_rng(at))
            os.utime(path, ns=(_FIRST_NS + at * _MINUTE_NS,) * 2)
        config = folder / CONFIG
        config.write_text(_CONFIG_TEXT, encoding="utf-8")
    except OSError as error:
        raise Unusable(
            f"{folder}: the demo cannot be written ({error.strerror}); name a folder with 100 MB "
            "of room that you may write"
        ) from error
    return config


def restore_all(folder: Path) -> Comparison:
    """Every archive of the demo in ``folder`` restored beside it, compared with the share.

    Raises
    ------
    DecantError
        An archive cannot be restored.
    """
    from decant_batch.archive import restore

    for archive in sorted((folder / ARCHIVE).rglob("*.zarr.zip")):
        restore(archive, folder / RESTORED)
    names = sorted(_names(folder / SHARE))
    differing = [
        name for name in names if not _same(folder / SHARE / name, folder / RESTORED / name)
    ]
    return Comparison(count=len(names), differing=tuple(differing))


def written_text(config: Path) -> str:
    """What was written, in one line."""
    files = [path for path in (config.parent / SHARE).rglob("*") if path.is_file()]
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    return f"wrote {count_text(len(files), 'file')}, {megabytes:.0f} MB, and {config}"


def comparison_text(comparison: Comparison) -> str:
    """Whether the share came back."""
    same = comparison.count - len(comparison.differing)
    if same == comparison.count:
        return f"restored and compared: all {same} files came back byte for byte"
    names = ", ".join(comparison.differing)
    return f"restored and compared: {same} of {comparison.count} came back; not {names}"


def next_steps_text(config: Path) -> str:
    """The commands to try next; each can be pasted into a shell."""
    folder = config.parent
    archive = folder / ARCHIVE / f"{_FIRST_STACK}.zarr.zip"
    steps = (
        ("what a run would do", "plan", config),
        ("run again: opens nothing twice", "run", config),
        ("where every source stands", "status", config),
        ("what an archive holds", "inspect", archive),
        ("get an original back", "restore", archive, "-o", folder / "again"),
    )
    lines = [f"  {what:<32}decant-batch {shlex.join(map(str, words))}" for what, *words in steps]
    return "\n".join(["next:", *lines])


def camera(rng: np.random.Generator, shape: tuple[int, ...], photons: float = 400.0) -> Pixels:
    """Images of ``shape`` (..., Y, X) as a camera gives them, uint16.

    ``photons`` is the brightest signal of a cell; planes share the scene, not the noise.
    """
    scene = _scene(rng, shape[-2], shape[-1]) * photons
    counts = rng.poisson(np.broadcast_to(scene, shape)) + _OFFSET
    read = rng.normal(0.0, _READ_NOISE, shape)
    return np.clip(np.rint(counts + read), 0, 65535).astype(np.uint16)


def _scene(rng: np.random.Generator, height: int, width: int) -> npt.NDArray[np.float64]:
    """Cells on uneven light, (Y, X), between 0 and about 1."""
    y, x = np.mgrid[0:height, 0:width]
    scene = 0.05 + 0.04 * np.cos(y / height * 2) * np.cos(x / width * 2)
    for _ in range(_CELLS):
        centre = rng.uniform(0, (height, width))
        radius = rng.uniform(0.02, 0.06) * min(height, width)
        reach = int(3 * radius)
        rows = slice(max(int(centre[0]) - reach, 0), int(centre[0]) + reach)
        columns = slice(max(int(centre[1]) - reach, 0), int(centre[1]) + reach)
        squared = (y[rows, columns] - centre[0]) ** 2 + (x[rows, columns] - centre[1]) ** 2
        scene[rows, columns] += rng.uniform(0.2, 0.9) * np.exp(-squared / (2 * radius**2))
    return np.asarray(np.minimum(scene, 1.0), np.float64)


_FIRST_STACK = "plate_07/A01 site 1.tif"


def _files() -> Iterator[tuple[str, _Maker]]:
    """Relative path and maker of each file of the share, in the order they were 'acquired'."""
    yield _FIRST_STACK, _camera_stack
    for site in (2, 3):
        yield f"plate_07/A01 site {site}.tif", _camera_stack
    for well in ("A02", "A03"):
        yield f"plate_07/{well} site 1.tif", _camera_stack
    yield "plate_07/A04 site 1.tif", _nothing
    yield "plate_07/Notizen.txt", _notes
    yield "timelapse/Zellteilung Übersicht.tif", _hyperstack
    yield "timelapse/long run/pos 02 τ=5min.tif", _big_endian
    yield "confocal 2026-03/α-tubulin 60x.ome.tif", _ome
    yield "confocal 2026-03/ratio FRET.tif", _ratio
    yield "slides/H&E section 12.tif", _tiled_rgb
    yield "slides/overview planar.tif", _planar_rgb
    yield "slides/label deflate.tif", _compressed
    yield "transfer/A01 site 1 (copy).tif", _cut_short


def _camera_stack(path: Path, rng: np.random.Generator) -> None:
    pixels = camera(rng, (4, 512, 512))
    tifffile.imwrite(path, pixels, photometric="minisblack", metadata={"axes": "CYX"})


def _hyperstack(path: Path, rng: np.random.Generator) -> None:
    metadata = {"axes": "TZCYX", "unit": "um", "spacing": 0.5, "finterval": 30.0, "fps": 1 / 30}
    pixels = camera(rng, (6, 3, 2, 256, 256), photons=250)
    tifffile.imwrite(path, pixels, imagej=True, resolution=(9.2, 9.2), metadata=metadata)


def _big_endian(path: Path, rng: np.random.Generator) -> None:
    pixels = camera(rng, (24, 256, 256), photons=120)
    tifffile.imwrite(
        path, pixels, byteorder=">", photometric="minisblack", metadata={"axes": "TYX"}
    )


def _ome(path: Path, rng: np.random.Generator) -> None:
    metadata = {
        "axes": "CZYX",
        # Else a random one is written, and the share would differ each time.
        "UUID": "7d0a3f1e-5b0c-4c57-9a54-0f5d3c6a7e07",
        "Channel": {"Name": ["DAPI", "α-tubulin", "actin"]},
        "PhysicalSizeX": 0.108,
        "PhysicalSizeY": 0.108,
        "PhysicalSizeZ": 0.3,
    }
    pixels = camera(rng, (3, 10, 256, 256), photons=900)
    tifffile.imwrite(path, pixels, ome=True, photometric="minisblack", metadata=metadata)


def _ratio(path: Path, rng: np.random.Generator) -> None:
    above, below = camera(rng, (2, 512, 512)).astype(np.float32) - _OFFSET
    ratio = above / np.maximum(below, 1)
    tifffile.imwrite(path, ratio, photometric="minisblack")


def _tiled_rgb(path: Path, rng: np.random.Generator) -> None:
    # 1200 x 1000 is no multiple of the tile, as on real slides: edge tiles are padded.
    pixels = np.moveaxis(_stain(rng, 1200, 1000), 0, -1)
    tifffile.imwrite(path, pixels, bigtiff=True, tile=(256, 256), photometric="rgb")


def _planar_rgb(path: Path, rng: np.random.Generator) -> None:
    pixels = _stain(rng, 700, 900)
    tifffile.imwrite(path, pixels, planarconfig="separate", photometric="rgb")


def _compressed(path: Path, rng: np.random.Generator) -> None:
    # Already compressed by its maker: kept as it is, never decoded.
    tifffile.imwrite(path, _stain(rng, 400, 400)[0], compression="zlib", photometric="minisblack")


def _cut_short(path: Path, rng: np.random.Generator) -> None:
    _camera_stack(path, rng)
    # In the middle of the first image, as a copy that was broken off.
    os.truncate(path, path.stat().st_size // 5)


def _notes(path: Path, _rng: np.random.Generator) -> None:
    path.write_text(_NOTES, encoding="utf-8")


def _nothing(path: Path, _rng: np.random.Generator) -> None:
    path.touch()


def _stain(rng: np.random.Generator, height: int, width: int) -> npt.NDArray[np.uint8]:
    """A stained section, (3, Y, X): bright glass, purple where there is tissue."""
    scene = _scene(rng, height, width)
    absorbed = np.multiply.outer((90.0, 140.0, 60.0), scene)
    noisy = 235 - absorbed + rng.normal(0.0, 2.5, absorbed.shape)
    return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)


def _claim(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder}: is there already; name a folder that does not exist or is empty"
        )
    folder.mkdir(parents=True, exist_ok=True)


def _names(folder: Path) -> Iterator[str]:
    return (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _same(original: Path, restored: Path) -> bool:
    return restored.is_file() and filecmp.cmp(original, restored, shallow=False)
