"""What a run costs beyond its floor, in processor time, measured side by side in one go.

The floor is what byte-exact, verified archives cannot do without: numcodecs encodes each plane once
and decodes it once, and sha256 goes over the bytes twice. Everything else (start of the workers,
reading, writing, the ledger, zip, dask) is what this benchmark is about:

    python benchmarks/floor.py                  2 GiB in 4 files, 2 workers
    python benchmarks/floor.py --gib 4 --files 8

Both sides run as two processes at once on the same cores; seconds are user + system time of whole
process trees, as the operating system accounts them.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numcodecs
import numcodecs.blosc
import numpy as np
import tifffile

SIDE = 2048
PLANE_NBYTES = SIDE * SIDE * 2
DISTINCT = 16
PR_SET_CHILD_SUBREAPER = 36
CODEC = {"id": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 1}


def main() -> None:
    arguments = _arguments()
    adopt_orphans()
    planes_per_file = int(arguments.gib * 2**30 / PLANE_NBYTES / arguments.files)
    with tempfile.TemporaryDirectory(dir=arguments.dir) as folder:
        root = Path(folder)
        print(f"writing {arguments.files} files of {planes_per_file} planes …", flush=True)
        write_share(root / "share", arguments.files, planes_per_file)
        (root / "c.yaml").write_text(
            "source: share\ndestination: archive\nsettle: 0s\n"
            f"cluster: {{kind: local, workers: {arguments.workers}, memory: 1GiB}}\n"
        )
        ratios = []
        for round_ in range(arguments.rounds):
            floor, parts = measure_floor(root / "share", arguments.workers)
            run = measure_run(root)
            ratios.append(run / floor)
            shutil.rmtree(root / "archive")
            print_table(round_, floor, parts, run, arguments.files * planes_per_file)
    print(f"run / floor: {min(ratios):.3f} to {max(ratios):.3f}, median {np.median(ratios):.3f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default=None, help="where to put the share (default: temporary)")
    return parser.parse_args()


def camera_planes(count: int) -> list[np.ndarray[tuple[int, int], np.dtype[np.uint16]]]:
    """Planes (Y, X) uint16: Poisson noise over cells on an uneven background."""
    noise = np.random.default_rng(0)
    y, x = np.mgrid[:SIDE, :SIDE]
    light = 120 + 40 * np.cos((x - 900) / 700) * np.cos((y - 1100) / 800)
    for cy, cx, radius in noise.integers((0, 0, 20), (SIDE, SIDE, 90), (120, 3)):
        near = np.s_[max(0, cy - 300) : cy + 300, max(0, cx - 300) : cx + 300]
        light[near] += 400 * np.exp(-((y[near] - cy) ** 2 + (x[near] - cx) ** 2) / radius**2 / 2)
    return [noise.poisson(light).astype("<u2") for _ in range(count)]


def write_share(share: Path, files: int, planes: int) -> None:
    share.mkdir()
    distinct = camera_planes(DISTINCT)
    for i in range(files):
        with tifffile.TiffWriter(share / f"stack_{i}.tif", bigtiff=True) as tiff:
            for k in range(planes):
                plane = np.roll(distinct[k % DISTINCT], (37 * k + 11 * i, 53 * k), (0, 1))
                tiff.write(plane, contiguous=False, metadata=None)


def measure_floor(share: Path, workers: int) -> tuple[float, dict[str, float]]:
    """CPU seconds of encode, decode and two sha256 over the files' pixels, and each part's."""
    files = sorted(share.iterdir())
    with ProcessPoolExecutor(workers) as pool:
        parts = list(pool.map(floor_of, files))
    total = {name: sum(part[name] for part in parts) for name in parts[0]}
    return sum(total.values()), total


def floor_of(file: Path) -> dict[str, float]:
    numcodecs.blosc.use_threads = False
    codec = numcodecs.get_codec(CODEC)
    seconds = {"encode": 0.0, "decode": 0.0, "sha256 (twice)": 0.0}
    out = np.empty((SIDE, SIDE), "<u2")
    with tifffile.TiffFile(file) as tiff:
        for page in tiff.pages:
            plane = page.asarray()
            began = _cpu()
            encoded = codec.encode(plane)
            seconds["encode"] += _cpu() - began
            began = _cpu()
            codec.decode(encoded, out=out)
            seconds["decode"] += _cpu() - began
            began = _cpu()
            same = hashlib.sha256(plane).digest() == hashlib.sha256(out).digest()
            seconds["sha256 (twice)"] += _cpu() - began
            assert same
    return seconds


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure_run(root: Path) -> float:
    """CPU seconds of ``decant-batch run`` and of every process that it starts."""
    command = [sys.executable, "-c", "from decant_batch.ui.cli import main; main()", "run"]
    process = subprocess.Popen([*command, str(root / "c.yaml"), "--quiet"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read()
    seconds = 0.0
    while True:  # the run's own process, and those that outlive it and are handed to us
        try:
            pid, status, used = os.wait4(-1, 0)
        except ChildProcessError:
            break
        seconds += used.ru_utime + used.ru_stime
        if pid == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the run ended with code {process.returncode}")
    return seconds


def adopt_orphans() -> None:
    """Have processes whose parent has ended waited for by this one, so that they are counted.

    Workers are forked from a server that is nobody's child when the run ends (prctl(2)).
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def print_table(
    round_: int, floor: float, parts: dict[str, float], run: float, planes: int
) -> None:
    mib = planes * PLANE_NBYTES / 2**20
    print(f"\nround {round_ + 1}: {planes} planes, {mib / 1024:.2f} GiB")
    for name, seconds in parts.items():
        print(f"  {name:<16} {seconds:8.2f} s  {mib / seconds:8.0f} MiB/s")
    print(f"  {'floor':<16} {floor:8.2f} s")
    print(f"  {'run':<16} {run:8.2f} s")
    print(f"  {'run / floor':<16} {run / floor:8.3f}", flush=True)


if __name__ == "__main__":
    main()
