"""What this process may use of the machine it is on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """What this process may really use: whole cores, and bytes of memory."""

    cores: int
    memory_bytes: int


def usable(
    cgroup: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")
) -> Usable:
    """Cores and memory that affinity and control groups (v1 and v2) leave to this process.

    In a container or a batch job that is less than the machine has, and taking more than it is
    what gets a process killed. Memory is the limit, not what happens to be free now.
    """
    cores = float(_affinity())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for group in _groups(cgroup, mount):
        for name in ("memory.max", "memory.limit_in_bytes"):
            memory = min([memory, *_numbers(group / name)])
        quota = _numbers(group / "cpu.max") or [
            *_numbers(group / "cpu.cfs_quota_us"),
            *_numbers(group / "cpu.cfs_period_us"),
        ]
        # A quota of "max" (v2) or -1 (v1) leaves only the period: no limit.
        if len(quota) == 2:
            cores = min(cores, quota[0] / quota[1])
    return Usable(cores=max(1, int(cores)), memory_bytes=memory)


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _groups(cgroup: Path, mount: Path) -> Iterator[Path]:
    """Folders of this process's control groups and of all that hold them: each may be a limit."""
    try:
        lines = cgroup.read_text().splitlines()
    except OSError:  # no Linux, or /proc is closed: there are no limits to be seen
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        hierarchies = [*controllers.split(","), controllers] if controllers else ["", "unified"]
        inside = Path(path.strip("/"))
        for hierarchy in hierarchies:
            # A container often sees its own group as the mount's root, and no folder of that path.
            yield from (mount / hierarchy / group for group in (inside, *inside.parents))


def _numbers(file: Path) -> list[int]:
    """Positive numbers in a control file; none where there is no file or it says ``max``."""
    try:
        words = file.read_text().split()
    except OSError:
        return []
    return [int(word) for word in words if word.isdecimal() and int(word) > 0]
