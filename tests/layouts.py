"""Layouts drawn at random: segments of any length, in any order, with and without gaps."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from decant_batch.archive.model import Geometry, Layout


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """A layout of uint8 pages in which up to 5 pages' segments lie about in any order."""
    width = draw(st.integers(1, 12))
    cuts = [
        sorted(draw(st.sets(st.integers(1, width - 1), max_size=4)) if width > 1 else set())
        for _ in range(draw(st.integers(1, 5)))
    ]
    lengths = [np.diff([0, *cut, width]).tolist() for cut in cuts]
    starts = np.cumsum([0, *map(len, lengths)])
    nbytes = np.array([length for page in lengths for length in page], np.int64)
    order = draw(st.permutations(range(len(nbytes))))
    gaps = draw(st.lists(st.integers(0, 3), min_size=len(nbytes) + 1, max_size=len(nbytes) + 1))
    offsets, at = np.zeros(len(nbytes), np.int64), 0
    for segment, gap in zip(order, gaps, strict=False):
        offsets[segment] = at + gap
        at += gap + int(nbytes[segment])
    return Layout(
        size=at + gaps[-1],
        geometry=Geometry(shape=(1, width), dtype="uint8", byteorder="<", rows_per_strip=1),
        axes=("z",),
        leading=(len(cuts),),
        index=np.arange(len(cuts), dtype=np.int64),
        starts=starts.astype(np.int64),
        offsets=offsets,
        nbytes=nbytes,
    )
