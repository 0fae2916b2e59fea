"""Buffers of one size that are used again and again.

Memory fresh from the system costs a page fault for every 4 KiB, which takes longer than hashing
them; and what a process holds at its peak then hangs on the allocator's mood. Used again, the
buffers of a job are as many as the job's projection says, whatever the size of its file.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Buffers:
    """A stock of uint8 buffers of ``nbytes``; threads may take and give at once."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._stock: list[npt.NDArray[np.uint8]] = []

    def take(self) -> npt.NDArray[np.uint8]:
        """A buffer with any content."""
        try:
            return self._stock.pop()  # atomic: no other thread gets the same
        except IndexError:
            return np.empty(self._nbytes, np.uint8)

    def give(self, buffer: npt.NDArray[np.uint8]) -> None:
        """Put back a buffer that nobody looks at any more."""
        self._stock.append(buffer)
