"""What one more member costs a series, in memory and in time: few members against many.

A series of N members of 64 KiB is packed by ``decant-batch run`` on one worker, once with few
members and once with many; the highest resident memory of the worker and of the driver are read
from the kernel (VmHWM) while the run goes on, and the run's time is divided by its members, without
a run of one member (the fastest of three, where members are few):

    python benchmarks/members.py                     consolidated, 100 against 10 000 members
    python benchmarks/members.py --layout nested
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import tifffile

SIDE = 180  # 64 800 bytes of uint16, and a header
RUN = [sys.executable, "-c", "from decant_batch.ui.cli import main; main()", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run: seconds, and the peaks in bytes of its own process and of its largest worker."""

    seconds: float
    driver: int
    worker: int


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(dir=arguments.dir) as folder:
        root = Path(folder)
        few, many = arguments.members
        start = measure(root / "one", 1, arguments.layout, rounds=3).seconds
        one = measure(root / "few", few, arguments.layout, rounds=3)
        other = measure(root / "many", many, arguments.layout, rounds=1)
    for count, run in ((few, one), (many, other)):
        each = (run.seconds - start) / (count - 1)
        print(
            f"{count:6} members  {run.seconds:7.2f} s  {1000 * each:6.2f} ms each"
            f"  worker {run.worker / 2**20:6.1f} MiB  driver {run.driver / 2**20:6.1f} MiB"
        )
    each = [(run.seconds - start) / (count - 1) for count, run in ((few, one), (many, other))]
    print(
        f"{arguments.layout}, {many} against {few}: worker x {other.worker / one.worker:.3f},"
        f" driver x {other.driver / one.driver:.3f}, time per member x {each[1] / each[0]:.2f}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--layout", choices=("consolidated", "nested"), default="consolidated")
    parser.add_argument("--members", type=int, nargs=2, default=(100, 10_000))
    parser.add_argument("--dir", default=None, help="where to put the share (default: temporary)")
    return parser.parse_args()


def measure(root: Path, count: int, layout: str, *, rounds: int) -> Measured:
    """Pack a series of ``count`` members below ``root``; the fastest round, the highest peaks."""
    write_share(root / "share", count)
    (root / "c.yaml").write_text(
        "source: share\ndestination: archive\nsettle: 0s\n"
        "cluster: {kind: local, workers: 1, memory: 1GiB}\n"
        "series:\n"
        rf"  - {{match: 'a_t(?P<t>\d+)\.tif', archive: a, layout: {layout}}}" + "\n"
    )
    runs = []
    for _ in range(rounds):
        runs.append(_run(root))
        shutil.rmtree(root / "archive")
    return Measured(
        seconds=min(run.seconds for run in runs),
        driver=max(run.driver for run in runs),
        worker=max(run.worker for run in runs),
    )


def _run(root: Path) -> Measured:
    """Run once, and read the peaks from the outside."""
    began = time.monotonic()
    process = subprocess.Popen([*RUN, str(root / "c.yaml"), "--quiet"], stdout=subprocess.DEVNULL)
    peaks: dict[int, int] = {}
    while process.poll() is None:
        _sample(psutil.Process(process.pid), peaks)
        time.sleep(0.02)
    seconds = time.monotonic() - began
    if process.returncode:
        raise SystemExit(f"the run ended with code {process.returncode}")
    driver = peaks.pop(process.pid)
    return Measured(seconds=seconds, driver=driver, worker=max(peaks.values(), default=0))


def _sample(driver: psutil.Process, peaks: dict[int, int]) -> None:
    """Raise each process' peak; a worker sets its own back between jobs."""
    try:
        found = [driver, *driver.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for each in found:
        try:
            lines = Path(f"/proc/{each.pid}/status").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = dict(line.split(":", 1) for line in lines)
        if "VmHWM" in fields:  # one that has just ended has none
            peak = int(fields["VmHWM"].split()[0]) * 1024
            peaks[each.pid] = max(peak, peaks.get(each.pid, 0))


def write_share(share: Path, count: int) -> None:
    share.mkdir(parents=True)
    noise = np.random.default_rng(0)
    plane = noise.poisson(200, (SIDE, SIDE)).astype("<u2")
    for i in range(count):
        tifffile.imwrite(share / f"a_t{i:05}.tif", np.roll(plane, 37 * i), metadata=None)


if __name__ == "__main__":
    main()
