"""What a job will take of a worker's memory, computed from the layout before a pixel is read.

The four words: *allowed* is what a worker may use, *reserved* what it takes when it is idle,
*projected* what it will have taken at a job's worst moment, *peak* what was measured afterwards.
A job packs and then verifies, so its projection is reserved + the larger of the two::

    pack    live pages + threads x (page [x 2 if tiled] + 2 x encoded bound)
            + threads x (levels + 2 x encoded bound, a third of a page's) with a pyramid
            + husk blocks alike + one I/O block + the layout + the source's text, parsed
    verify  live pages + threads x (page [x 2 if tiled] + 2 x encoded bound)
            + one husk block + the layout, as read from the manifest

An encoded chunk counts twice: numcodecs' output buffer, and the piece it cuts from it. Up to 32 MiB
it comes from a thread's heap, where the hole that it leaves is not always the one that the next one
needs: it counts once more. Incompressible pixels need all of this, camera images about two thirds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from decant_batch.archive import husk
from decant_batch.archive.codecs import encoded_bound
from decant_batch.archive.encoding import IO_BLOCK_NBYTES
from decant_batch.archive.husk import GAP, HUSK_BLOCK_NBYTES
from decant_batch.archive.model import Layout
from decant_batch.archive.pack import VERBATIM_CHUNK_NBYTES
from decant_batch.archive.pyramid import PART_NBYTES
from decant_batch.batch.model import Survey

# What an idle worker has more after hundreds of sources than after one: heap with holes, caches of
# the libraries (measured: 11 MiB after the 639 files of a corpus).
CREEP_NBYTES = 12 << 20
# A page's record and a segment's, at their largest: as pydantic's objects while a manifest is read,
# beside its JSON (measured on 100 000 pages of one segment and 2 000 pages of 1 000 segments).
PAGE_RECORD_NBYTES = 3700
SEGMENT_RECORD_NBYTES = 340
# OME-XML and its like while it is read, for each of its bytes (measured: 6 at 1.4 MB of 10 000
# planes, 4.3 at 13 MB).
DOCUMENT_FACTOR = 6
# A member of a consolidated series: its path, the records of its keys, its own (measured: 930 with
# 10 000 members of one page whose names are short; benchmarks/members.py).
MEMBER_NBYTES = 1500
# zstd's contexts, threads' stacks, the source's and the archive's open files.
FIXED_NBYTES = 7 << 20
THREAD_NBYTES = 1 << 20
# While a part of a level is summed: the part padded; a quarter shifted, its remainder, their sums.
_PARTS = 2
# Larger buffers are mapped one by one and go back when they are freed (glibc, mallopt(3)).
HEAP_NBYTES = 32 << 20


def live_nbytes(layout: Layout) -> int:
    """Exact maximum, over all offsets of the source, of bytes of pages begun and not finished.

    A page is live from its first step of the walk to its last, both included.
    """
    page = husk.walk(layout).page
    page = page[page != GAP]
    places = np.arange(len(page))
    first, last = np.full(layout.page_count, len(page)), np.full(layout.page_count, -1)
    np.minimum.at(first, page, places)
    np.maximum.at(last, page, places)
    change = np.bincount(first, minlength=len(page) + 2)
    change[: len(page) + 1] -= np.bincount(last + 1, minlength=len(page) + 1)[: len(page) + 1]
    live = np.cumsum(change[: len(page)])
    return int(np.max(live)) * layout.geometry.page_nbytes if len(live) else 0


def job_nbytes(survey: Survey, threads: int, *, pyramid: bool = False) -> int:
    """Bytes that packing and then verifying one source take beside what is reserved."""
    return max(pack_nbytes(survey, threads, pyramid=pyramid), rebuild_nbytes(survey, threads))


def pack_nbytes(survey: Survey, threads: int, *, pyramid: bool = False) -> int:
    """Bytes that packing one source takes; ``pyramid`` says that levels are derived."""
    if survey.mode == "verbatim":
        return _shared(threads) + _blocks(VERBATIM_CHUNK_NBYTES, threads)
    pages = _pages(survey, threads) + threads * _encoding(survey.page_nbytes)
    if pyramid:
        pages += threads * _levels(survey.page_nbytes)
    documents = DOCUMENT_FACTOR * survey.document_nbytes + _layout(survey)
    return _shared(threads) + pages + _blocks(HUSK_BLOCK_NBYTES, threads) + documents


def series_nbytes(largest: Survey, threads: int, *, members: int, pyramid: bool = False) -> int:
    """Bytes that packing and then verifying a consolidated series takes.

    It is what the member that takes most does, and a record of each.
    """
    return job_nbytes(largest, threads, pyramid=pyramid) + members * MEMBER_NBYTES


def rebuild_nbytes(survey: Survey, threads: int) -> int:
    """Bytes that verifying or restoring one source takes; an encoded chunk is read with a copy."""
    if survey.mode == "verbatim":
        return _shared(threads) + VERBATIM_CHUNK_NBYTES + 2 * encoded_bound(VERBATIM_CHUNK_NBYTES)
    pages = _pages(survey, threads) + threads * 2 * encoded_bound(survey.page_nbytes)
    husk_nbytes = HUSK_BLOCK_NBYTES + 2 * encoded_bound(HUSK_BLOCK_NBYTES)
    return _shared(threads) + pages + husk_nbytes + _layout(survey)


def _shared(threads: int) -> int:
    return FIXED_NBYTES + threads * THREAD_NBYTES + IO_BLOCK_NBYTES


def _pages(survey: Survey, threads: int) -> int:
    """Pages that are live, and those in threads' hands; tiles are moved into a second buffer."""
    return survey.live_nbytes + threads * survey.page_nbytes * (2 if survey.tiled else 1)


def _levels(page_nbytes: int) -> int:
    """What a thread takes to derive levels: they add up to a third of a page at the most."""
    third = page_nbytes // 3
    return third + 2 * encoded_bound(third) + _PARTS * PART_NBYTES


def _layout(survey: Survey) -> int:
    return survey.page_count * PAGE_RECORD_NBYTES + survey.segment_count * SEGMENT_RECORD_NBYTES


def _blocks(nbytes: int, threads: int) -> int:
    """A block being filled, and one encoded by each thread."""
    return nbytes + threads * (nbytes + _encoding(nbytes))


def _encoding(nbytes: int) -> int:
    """What a thread takes beside the chunk that it encodes."""
    bound = encoded_bound(nbytes)
    return (3 if bound <= HEAP_NBYTES else 2) * bound


def peak_bytes(status: Mapping[str, str]) -> int:
    """Peak resident bytes of a process from its ``/proc/PID/status`` fields (VmHWM, in kB)."""
    return int(status["VmHWM"].split()[0]) * 1024
