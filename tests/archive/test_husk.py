"""The walk: segments and gaps tile the source, whatever their order."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from decant_batch.archive import husk
from decant_batch.archive.husk import GAP
from decant_batch.archive.model import Layout
from tests.layouts import layouts


@given(layouts())
def test_steps_tile_the_source(layout: Layout) -> None:
    walk = husk.walk(layout)
    assert walk.offset[0] == 0
    assert (walk.offset[1:] == walk.offset[:-1] + walk.nbytes[:-1]).all()
    assert walk.offset[-1] + walk.nbytes[-1] == layout.size
    assert (walk.nbytes > 0).all()


@given(layouts())
def test_steps_are_the_segments_and_the_husk_is_the_rest(layout: Layout) -> None:
    owner = np.full(layout.size, GAP)
    place = np.full(layout.size, GAP)
    for page in range(layout.page_count):
        position = 0
        for i in range(layout.starts[page], layout.starts[page + 1]):
            offset, nbytes = int(layout.offsets[i]), int(layout.nbytes[i])
            owner[offset : offset + nbytes] = page
            place[offset : offset + nbytes] = np.arange(position, position + nbytes)
            position += nbytes
    walk = husk.walk(layout)
    assert (np.repeat(walk.page, walk.nbytes) == owner).all()
    pixels = walk.page != GAP
    for step in np.flatnonzero(pixels):
        begin, nbytes = walk.offset[step], walk.nbytes[step]
        assert (place[begin : begin + nbytes] == walk.position[step] + np.arange(nbytes)).all()
    assert walk.nbytes[~pixels].sum() == layout.husk_nbytes


@given(layouts())
def test_neighbours_are_joined(layout: Layout) -> None:
    walk = husk.walk(layout)
    for a, b in zip(range(len(walk.page)), range(1, len(walk.page)), strict=False):
        follows = walk.position[b] == walk.position[a] + walk.nbytes[a]
        assert walk.page[a] != walk.page[b] or (walk.page[a] != GAP and not follows)
