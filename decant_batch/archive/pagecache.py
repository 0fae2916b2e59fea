"""Pages that the system keeps of files, let go behind whoever goes through a file once.

What is written or read once is of no use in the cache: it pushes other people's files out, and
fresh memory for it costs more processor time than the copy does (measured on a virtual machine:
1.3 s for 560 MiB written into memory never used before, 0.15 s with this). Advice only: bytes are
the same without it, and not every system takes it (posix_fadvise(2); macOS and Windows have none).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

KEPT_NBYTES = 16 << 20

_Advise = Callable[[int, int, int, int], None]


def forget(handle: int, end: int = 0) -> None:
    """Have the system forget the cached pages of an open file before offset ``end`` (0: all).

    Linux begins to write those that are not on the disk yet, and forgets them the next time.
    """
    advise: _Advise | None = getattr(os, "posix_fadvise", None)
    if advise is not None:
        advise(handle, 0, end, os.POSIX_FADV_DONTNEED)


def forget_file(path: Path) -> None:
    """Have the system forget all cached pages of a file, so that the next read is from the disk."""
    with path.open("rb") as file:
        forget(file.fileno())


class Trail:
    """What has passed of one open file; ``KEPT_NBYTES`` of it may stay in the cache."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._nbytes = 0

    def passed(self, nbytes: int, end: int = 0) -> None:
        """``nbytes`` more were read or written; what lies before ``end`` is not needed again."""
        self._nbytes += nbytes
        if self._nbytes >= KEPT_NBYTES:
            self._nbytes = 0
            forget(self._handle, end)
