"""Smaller versions of a plane for viewers: each level halves the one before in Y and X.

Derived, and never read when an original is rebuilt (spec section 3).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from decant_batch.archive.model import Method, Pyramid

Plane = npt.NDArray[np.generic]

# Sums are made in parts of so many bytes: what they take beside the level does not grow with it.
PART_NBYTES = 1 << 20


def shapes(shape: tuple[int, ...], pyramid: Pyramid | None) -> list[tuple[int, ...]]:
    """Shapes of the levels below a plane (Y, X) or (Y, X, S), largest first.

    With ``levels`` None they end where neither side is longer than ``min_size``. A level of one
    pixel is the last in any case.
    """
    found: list[tuple[int, ...]] = []
    while pyramid is not None and max(shape[:2]) > 1:
        if pyramid.levels is None and max(shape[:2]) <= pyramid.min_size:
            break
        if pyramid.levels is not None and len(found) == pyramid.levels:
            break
        shape = (*(math.ceil(length / 2) for length in shape[:2]), *shape[2:])
        found.append(shape)
    return found


def halved(plane: Plane, method: Method) -> Plane:
    """The next level of a plane: (ceil(Y / 2), ceil(X / 2)) or with S, of the same dtype.

    ``nearest`` takes the first pixel of each 2 x 2, ``mean`` their mean, of integers rounded half
    up; at an odd edge it is the mean of those that are there.
    """
    if method == "nearest":
        return np.ascontiguousarray(plane[::2, ::2])
    height, width = (math.ceil(length / 2) for length in plane.shape[:2])
    level = np.empty((height, width, *plane.shape[2:]), plane.dtype)
    step = max(1, PART_NBYTES // max(1, plane[:2].nbytes))
    for top in range(0, height, step):
        _mean(plane[2 * top : 2 * (top + step)], level[top : top + step])
    return level


def _mean(rows: Plane, out: Plane) -> None:
    odd = [(0, length % 2) for length in rows.shape[:2]]
    if any(more for _, more in odd):  # a pixel without a neighbour is its own
        rows = np.pad(rows, [*odd, *((0, 0) for _ in rows.shape[2:])], mode="edge")
    quarters = [rows[y::2, x::2] for y in (0, 1) for x in (0, 1)]
    if rows.dtype.kind in "iu":
        _integer_mean(quarters, out)
        return
    # Half precision would pass its largest number in the sum; a quarter of each never does.
    wide = np.result_type(rows.dtype, np.float32)
    with np.errstate(all="ignore"):  # NaN and infinity are pixels like others
        total = sum(quarter.astype(wide) * wide.type(0.25) for quarter in quarters)
        out[...] = np.asarray(total).astype(rows.dtype)


def _integer_mean(quarters: list[Plane], out: Plane) -> None:
    """Mean without a wider type: quotients and remainders of 4 are summed apart."""
    kind = out.dtype.type
    out[...] = 0
    rest = np.zeros(out.shape, np.uint8)
    for quarter in quarters:
        np.add(out, quarter >> kind(2), out=out)  # type: ignore[operator]  # integers, see _mean
        rest += (quarter & kind(3)).astype(np.uint8)  # type: ignore[operator]
    np.add(out, ((rest + np.uint8(2)) >> np.uint8(2)).astype(out.dtype), out=out)
