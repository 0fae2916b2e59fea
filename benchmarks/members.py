"""What one more member costs a series, in memory and in time: many small series against one.

The same members of 64 KiB are packed by ``decant-batch run`` on one worker, once as series of a
hundred members each and once as one series, whose times are compared; for memory there is a run of
one series of a hundred, too: the highest of the worker and of the driver, as the kernel has it
(VmHWM), read while the run goes on:

    python benchmarks/members.py                     10 000 members, consolidated
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
        write_share(root / "share", arguments.members)
        small = measure(root, arguments.members, arguments.layout, together=100)
        whole = measure(root, arguments.members, arguments.layout, together=arguments.members)
        shutil.rmtree(root / "share")
        write_share(root / "share", 100)
        alone = measure(root, 100, arguments.layout, together=100)
    for name, run in (("100 alone", alone), ("series of 100", small), ("one series", whole)):
        print(
            f"{name:14} {run.seconds:7.2f} s  worker {run.worker / 2**20:6.1f} MiB"
            f"  driver {run.driver / 2**20:6.1f} MiB"
        )
    print(
        f"{arguments.layout}, {arguments.members} against 100: worker x"
        f" {whole.worker / alone.worker:.3f}, driver x {whole.driver / alone.driver:.3f}, time per"
        f" member x {whole.seconds / small.seconds:.2f}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--layout", choices=("consolidated", "nested"), default="consolidated")
    parser.add_argument("--members", type=int, default=10_000)
    parser.add_argument("--dir", default=None, help="where to put the share (default: temporary)")
    return parser.parse_args()


def measure(root: Path, count: int, layout: str, *, together: int) -> Measured:
    """Pack ``count`` members as series of ``together`` each."""
    digits = len(str(together - 1))
    (root / "c.yaml").write_text(
        "source: share\ndestination: archive\nsettle: 0s\n"
        "cluster: {kind: local, workers: 1, memory: 1GiB}\n"
        "series:\n"
        rf"  - {{match: 'a(?P<s>\d+)(?P<t>\d{{{digits}}})\.tif', archive: 'a{{s}}',"
        f" layout: {layout}}}"
    )
    measured = _run(root)
    made = len(list((root / "archive").glob("*.zarr*")))
    if made != count // together:
        raise SystemExit(f"{made} series were made, not {count // together}")
    shutil.rmtree(root / "archive")
    return measured


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
    share.mkdir()
    noise = np.random.default_rng(0)
    plane = noise.poisson(200, (SIDE, SIDE)).astype("<u2")
    for i in range(count):
        tifffile.imwrite(share / f"a0{i:05}.tif", np.roll(plane, 37 * i), metadata=None)


if __name__ == "__main__":
    main()
