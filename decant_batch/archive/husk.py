"""The husk, and the walk: a source seen as a row of segments and gaps in file-offset order.

::

    offset 0                                                              size
    | header, IFD | strip 0 | strip 1 | pad | strip 2 | trailing metadata |
      gap           page 0    page 0    gap   page 1    gap

Segments go to their pages, gaps to the husk (spec section 4); together they tile the source, so
packing and restoring are one pass over this row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decant_batch.archive.model import Int64s, Layout

HUSK_BLOCK_NBYTES = 1 << 20
GAP = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Walk:
    """Steps in file-offset order that tile the source: four int64 arrays of one length.

    ``page`` is the page's place in the layout, or GAP for husk bytes; ``position`` the step's
    place within the page's serialized bytes. Neighbours that are adjacent in both are one step.
    """

    offset: Int64s
    nbytes: Int64s
    page: Int64s
    position: Int64s


def walk(layout: Layout) -> Walk:
    """The walk over a source whose segments are inside it and disjoint (checked by layout)."""
    page = np.repeat(np.arange(layout.page_count, dtype=np.int64), np.diff(layout.starts))
    position = _positions(layout, page)
    order = np.argsort(layout.offsets, kind="stable")
    order = order[layout.nbytes[order] > 0]
    segments = Walk(
        offset=layout.offsets[order],
        nbytes=layout.nbytes[order],
        page=page[order],
        position=position[order],
    )
    return _with_gaps(_joined(segments), layout.size)


def _positions(layout: Layout, page: Int64s) -> Int64s:
    """Where each segment begins within its page's serialized bytes."""
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(layout.nbytes)))
    return before[:-1] - before[layout.starts[:-1]][page]


def _joined(steps: Walk) -> Walk:
    """The same steps with neighbours joined that follow each other in the file and in the page."""
    if len(steps.offset) == 0:
        return steps
    ends, tails = steps.offset + steps.nbytes, steps.position + steps.nbytes
    apart = (
        (steps.page[1:] != steps.page[:-1])
        | (steps.offset[1:] != ends[:-1])
        | (steps.position[1:] != tails[:-1])
    )
    first = np.concatenate((np.zeros(1, np.int64), np.flatnonzero(apart) + 1))
    return Walk(
        offset=steps.offset[first],
        nbytes=np.add.reduceat(steps.nbytes, first),
        page=steps.page[first],
        position=steps.position[first],
    )


def _with_gaps(steps: Walk, size: int) -> Walk:
    """The steps and the gaps between, before and after them."""
    ends = steps.offset + steps.nbytes
    gap_start = np.concatenate((np.zeros(1, np.int64), ends))
    gap_nbytes = np.concatenate((steps.offset, np.array([size], np.int64))) - gap_start
    is_gap = gap_nbytes > 0
    filler = np.full(int(is_gap.sum()), GAP, np.int64)
    offset = np.concatenate((steps.offset, gap_start[is_gap]))
    order = np.argsort(offset, kind="stable")
    return Walk(
        offset=offset[order],
        nbytes=np.concatenate((steps.nbytes, gap_nbytes[is_gap]))[order],
        page=np.concatenate((steps.page, filler))[order],
        position=np.concatenate((steps.position, filler))[order],
    )
