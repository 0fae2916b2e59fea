"""Memory that does not grow with the file: peaks of fresh processes, measured by the kernel."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tifffile

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="peaks are read from /proc, which only Linux has"
)
SIDE = 2048

# Prints reserved, projected and peak bytes of one operation in a process of its own.
SCRIPT = """
import sys
from pathlib import Path
from decant_batch.archive import Pyramid, Recipe, pack, restore, verify
from decant_batch.batch import memory, task
from decant_batch.batch.model import Roots, Source

operation, source, archive, threads = sys.argv[1:4] + [int(sys.argv[4])]
status = Path(source).stat()
met = Source(relpath=source, size=status.st_size, mtime_ns=status.st_mtime_ns, mode=0o644)
reserved = task.resident_bytes()
(survey,) = task.survey(Roots(source="/", destination="/"), [met], None)
if operation == "pack":
    pack(Path(source), Path(archive), recipe=Recipe(threads=threads))
elif operation == "pyramid":
    recipe = Recipe(threads=threads, pyramid=Pyramid())
    pack(Path(source), Path(archive + ".zip"), recipe=recipe)
elif operation == "verify":
    assert verify(Path(archive), threads=threads)[0].problem is None
else:
    restore(Path(archive), Path(archive).parent / "back", threads=threads)
lines = Path("/proc/self/status").read_text().splitlines()
peak = memory.peak_bytes(dict(line.split(":", 1) for line in lines))
if operation in ("pack", "pyramid"):
    projected = memory.pack_nbytes(survey, threads, pyramid=operation == "pyramid")
else:
    projected = memory.rebuild_nbytes(survey, threads)
print(reserved, reserved + projected, peak)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Bytes of one operation in a fresh process."""

    reserved: int
    projected: int
    peak: int


def write_stack(path: Path, gib: int) -> None:
    """Pages of 2048 x 2048 uint16 with photon noise over structure."""
    noise = np.random.default_rng(0)
    y, x = np.mgrid[:SIDE, :SIDE]
    light = 200 + 300 * np.exp(-((y - 900) ** 2 + (x - 1100) ** 2) / 2e5)
    planes = [noise.poisson(light).astype("u2") for _ in range(4)]
    with tifffile.TiffWriter(path, bigtiff=True) as tiff:
        for i in range(gib * 2**30 // planes[0].nbytes):
            tiff.write(planes[i % len(planes)], contiguous=False, metadata=None)


def measure(operation: str, source: Path, archive: Path, threads: int) -> Measured:
    command = [sys.executable, "-c", SCRIPT, operation, str(source), str(archive), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    reserved, projected, peak = map(int, done.stdout.split())
    return Measured(reserved=reserved, projected=projected, peak=peak)


def measure_all(folder: Path, gib: int, threads: int) -> dict[str, Measured]:
    """Each operation on a stack of ``gib`` GiB; the files are removed again."""
    source, archive = folder / f"{gib}.tif", folder / f"{gib}.zarr.zip"
    write_stack(source, gib)
    found = {}
    for operation in ("pack", "pyramid", "verify", "restore"):
        found[operation] = measured = measure(operation, source, archive, threads)
        print(
            f"{gib} GiB, {threads} threads, {operation:8} reserved {measured.reserved / 2**20:6.1f}"
            f"  projected {measured.projected / 2**20:6.1f}  peak {measured.peak / 2**20:6.1f} MiB"
            f"  projected / peak {measured.projected / measured.peak:.2f}"
        )
    for path in (source, archive, Path(f"{archive}.zip"), folder / "back" / source.name):
        path.unlink()
    return found


def check(found: dict[str, Measured]) -> None:
    for operation, measured in found.items():
        assert measured.peak <= measured.projected <= 1.5 * measured.peak, (operation, measured)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_gib_peaks_below_its_projection(tmp_path: Path, threads: int) -> None:
    check(measure_all(tmp_path, 1, threads))


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_eight_gib_peak_like_one(tmp_path: Path, threads: int) -> None:
    one, eight = measure_all(tmp_path, 1, threads), measure_all(tmp_path, 8, threads)
    check(eight)
    for operation, measured in eight.items():
        assert measured.peak == pytest.approx(one[operation].peak, rel=0.05), operation
