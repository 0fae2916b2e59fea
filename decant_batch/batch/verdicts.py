"""Outcomes that no worker gives: of what is left alone for now, of what killed its worker."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from decant_batch.batch.model import FailureClass, Outcome, SeriesOutcome, Source

# So many workers may die of a piece of work before it is blamed.
MOST_DEATHS = 2


def is_young(source: Source, settle_s: float) -> bool:
    """True where the file may still be written to. One from the future is not young: its clock is
    wrong, and the size and time are compared again after the read anyway.
    """
    return abs(time.time() - source.mtime_ns / 1e9) < settle_s


def young(source: Source) -> Outcome:
    """Outcome of a source that is left alone for now."""
    return Outcome(source=source, state="changing", message="younger than `settle`")


def blamed(source: Source, error: BaseException | None, *, lost: bool) -> Outcome:
    """Outcome of a source whose work ended without one; ``lost`` says that its worker died."""
    failure: FailureClass = "poison" if lost else "permanent"
    message = (
        f"{source.relpath}: its worker died {MOST_DEATHS} times; raise `memory`, or exclude it"
        if lost
        else f"{source.relpath}: {type(error).__name__}: {error};"
        " this is a fault of decant-batch, please report it"
    )
    return Outcome(source=source, state="failed", failure=failure, message=message)


def of_members(result: SeriesOutcome) -> Iterator[Outcome]:
    """Outcome of each member of a series: that of the series. The first has what was measured."""
    first = result.outcome
    rest = replace(first, peak_bytes=0, projected_bytes=0, seconds=0.0, warnings=())
    yield first
    for source in result.series.members[1:]:
        yield replace(rest, source=source)


def total_nbytes(sources: Iterable[Source]) -> int:
    """Bytes of sources together."""
    return sum(source.size for source in sources)
