"""What the members of a series have in common, seen one after the other: their grid, or why none.

Nothing of a member is kept: what is held does not grow with their number.
"""

from __future__ import annotations

from dataclasses import replace

from decant_batch.archive import axes
from decant_batch.archive.model import Grid, Layout, Refusal
from decant_batch.batch.model import Series, SeriesSurvey, Survey


class Gathering:
    """The members of a series that were seen so far."""

    def __init__(self, series: Series) -> None:
        self._series = series
        self._first: Layout | None = None
        self._largest: Survey | None = None
        self._stopper: Survey | None = None
        self._problem = series.problem
        self.is_over = False

    def add(self, survey: Survey, found: Layout | Refusal | None) -> None:
        """See one more member; ``found`` is None where it could not be read."""
        if self._largest is None:
            self._largest = survey
        if survey.moved or survey.trouble is not None:
            self._stopper, self.is_over = survey, True
        elif isinstance(found, Refusal):
            self._problem = self._problem or f"{survey.source.relpath} is {found.reason}"
        elif found is not None and self._first is None:
            self._first = found
        elif found is not None and self._first is not None and _looks(found) != _looks(self._first):
            self._problem = self._problem or (
                f"{survey.source.relpath} has {_words(found)}, others {_words(self._first)}"
            )
        self._largest = _larger(self._largest, survey)

    def survey(self) -> SeriesSurvey:
        """What the members have in common."""
        assert self._largest is not None
        return SeriesSurvey(
            grid=None if self._first is None else self._grid(self._first),
            largest=self._largest,
            problem=self._problem,
            moved=self._stopper.moved if self._stopper else "",
            trouble=self._stopper.trouble if self._stopper else None,
        )

    def _grid(self, first: Layout) -> Grid:
        inner = tuple(zip(first.axes, first.leading, strict=True)) if first.page_count > 1 else ()
        grid = axes.gridded((*self._series.own, *inner))
        is_named = "c" in grid.axes and "c" not in grid.merged and "c" in dict(self._series.own)
        return replace(grid, labels=self._series.labels if is_named else ())


def _looks(found: Layout) -> tuple[object, ...]:
    return found.geometry.shape, found.geometry.dtype, found.axes, found.leading


def _words(found: Layout) -> str:
    shape = " x ".join(map(str, found.geometry.shape))
    return f"{found.page_count} pages of {shape} {found.geometry.dtype}"


def _larger(one: Survey, other: Survey) -> Survey:
    """The most of each number that memory is computed from."""
    return replace(
        one,
        page_nbytes=max(one.page_nbytes, other.page_nbytes),
        page_count=max(one.page_count, other.page_count),
        segment_count=max(one.segment_count, other.segment_count),
        live_nbytes=max(one.live_nbytes, other.live_nbytes),
        document_nbytes=max(one.document_nbytes, other.document_nbytes),
        tiled=one.tiled or other.tiled,
    )
