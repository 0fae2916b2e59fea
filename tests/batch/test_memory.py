"""The sweep against a count byte by byte, and each term of the projection."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from decant_batch.archive.model import Layout
from decant_batch.batch import memory
from decant_batch.batch.model import Source, Survey
from tests.layouts import layouts

SOURCE = Source(relpath="a.tif", size=1, mtime_ns=1, mode=0o644)


@given(layouts())
def test_sweep_equals_a_count_at_every_offset(layout: Layout) -> None:
    live = np.zeros(layout.size, int)
    for page in range(layout.page_count):
        mine = slice(layout.starts[page], layout.starts[page + 1])
        first = int(np.min(layout.offsets[mine]))
        last = int(np.max(layout.offsets[mine] + layout.nbytes[mine]))
        live[first:last] += layout.geometry.page_nbytes
    assert memory.live_nbytes(layout) == live.max()


def survey(**changes: object) -> Survey:
    values: dict[str, object] = {
        "source": SOURCE,
        "is_tiff": True,
        "mode": "byte-exact",
        "page_nbytes": 101_000_003,
        "page_count": 7,
        "segment_count": 11,
        "live_nbytes": 202_000_006,
        "pixels_nbytes": 707_000_021,
    }
    return Survey(**{**values, **changes})  # type: ignore[arg-type]  # checked by the class


def test_each_term_is_in_the_sum() -> None:
    base = memory.job_nbytes(survey(), 1)
    assert memory.job_nbytes(survey(live_nbytes=202_000_007), 1) == base + 1
    assert memory.job_nbytes(survey(page_count=8), 1) == base + memory.PAGE_RECORD_NBYTES
    assert memory.job_nbytes(survey(segment_count=12), 1) == base + memory.SEGMENT_RECORD_NBYTES
    assert memory.job_nbytes(survey(tiled=True), 1) == base + 101_000_003
    one, two, three = (memory.job_nbytes(survey(), threads) for threads in (1, 2, 3))
    assert three - two == two - one > 3 * 101_000_003


def test_size_of_the_file_is_not_in_the_sum() -> None:
    assert memory.job_nbytes(survey(), 2) == memory.job_nbytes(survey(pixels_nbytes=1 << 40), 2)


def test_verbatim_is_flat() -> None:
    small = memory.job_nbytes(survey(mode="verbatim", page_nbytes=1, live_nbytes=1), 1)
    assert memory.job_nbytes(survey(mode="verbatim"), 1) == small < 64 << 20
