"""Which sources are one series, and which place each member has in it. Pure: no file is touched."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from decant_batch.batch.guess import Guess
from decant_batch.batch.model import Arranged, Placed, SeriesLayout

# The order in which axes stand where a rule does not say: slowest first.
_USUAL = ("t", "c", "z")
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One entry of ``series`` in the config, compiled.

    ``axes`` are the groups of ``match`` that are axes, slowest first; ``archive`` is a template, or
    None for the path without what the axes' groups matched.
    """

    match: re.Pattern[str]
    axes: tuple[str, ...]
    archive: str | None
    layout: SeriesLayout

    def place(self, relpath: str) -> Placed | None:
        """The series that a source belongs to by this rule, and its values there."""
        found = self.match.fullmatch(relpath)
        if found is None or any(found[axis] is None for axis in self.axes):
            return None
        groups = self.match.groupindex
        return Placed(
            stem=_stem(found, self),
            axes=self.axes,
            layout=self.layout,
            values=tuple(found[axis] for axis in self.axes),
            identity=tuple(found[name] or "" for name in groups if name not in self.axes),
        )


def rule(match: str, axes: Sequence[str] | None, archive: str | None, layout: SeriesLayout) -> Rule:
    """A rule from what a config says.

    Raises
    ------
    ValueError
        Where the pattern is none, has no axis, or the template names what is no identity group.
    """
    try:
        pattern = re.compile(match, re.DOTALL)
    except re.error as error:
        raise ValueError(f"{match!r} is no regular expression: {error}") from error
    groups = tuple(pattern.groupindex)
    chosen = tuple(axes) if axes is not None else tuple(each for each in _USUAL if each in groups)
    if not chosen:
        raise ValueError(f"{match!r} has no group t, c or z; name its axes in `axes`")
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"axes {list(chosen)} has an axis twice")
    for axis in chosen:
        if axis not in groups:
            raise ValueError(f"axis {axis!r} is no group of {match!r}; write (?P<{axis}>...) in it")
        if axis in ("x", "y", "s"):
            raise ValueError(f"axis {axis!r} is one of the pages' own; name the group otherwise")
    for name in _FIELD.findall(archive or ""):
        if name not in groups or name in chosen:
            raise ValueError(f"{{{name}}} in {archive!r} is no identity group of {match!r}")
    return Rule(match=pattern, axes=chosen, archive=archive, layout=layout)


def place(relpath: str, rules: Sequence[Rule | Guess]) -> Placed | None:
    """The series that a source belongs to by the first rule that matches, and its values there."""
    return next(filter(None, (each.place(relpath) for each in rules)), None)


def _stem(found: re.Match[str], each: Rule) -> str:
    """Path of the series' archive below the destination, without suffix."""
    if each.archive is not None:
        return _below(_FIELD.sub(lambda field: found[field[1]] or "", each.archive))
    spans = sorted(found.span(axis) for axis in each.axes)
    text, whole = "", found.string
    for (_, end), (begin, _) in pairwise([(0, 0), *spans, (len(whole), 0)]):
        text += whole[end:begin]
    return _below(text)


def _below(path: str) -> str:
    """A path that cannot leave the destination, whatever a template makes of a name."""
    return "/".join(part for part in path.split("/") if part not in ("", ".", "..")) or "series"


def arrange(axes: Sequence[str], values: Sequence[tuple[str, ...]]) -> Arranged:
    """The members in the order of the grid, slowest axis first; or what is wrong with the grid.

    Values of an axis that are all numbers are ordered as numbers, and stand at equal distances;
    others by their text, with the numbers in it as numbers, and are the labels of the axis.
    """
    columns = [sorted({row[i] for row in values}, key=_natural) for i in range(len(axes))]
    problem = ""
    ranks: list[dict[str, int]] = []
    for axis, column in zip(axes, columns, strict=True):
        ranks.append({value: rank for rank, value in enumerate(column)})
        if all(value.isdecimal() for value in column):
            numbers = [int(value) for value in column]
            steps = {after - before for before, after in pairwise(numbers)}
            if 0 in steps:
                problem = problem or f"two members have one place on axis {axis}"
            elif len(steps) > 1:
                problem = problem or f"axis {axis} has a gap: {_gap(numbers)}"
    places = np.array(
        [[rank[row[i]] for row in values] for i, rank in enumerate(ranks)], np.int32
    )  # (axes, members)
    order = np.lexsort(places[::-1])
    ordered = places[:, order]
    count = math.prod(map(len, columns))
    if (ordered[:, 1:] == ordered[:, :-1]).all(axis=0).any():
        problem = problem or "two members have one place in the grid"
    elif len(values) != count:
        problem = problem or f"the grid has {count} places, {len(values)} members are there"
    return Arranged(
        order=tuple(order.tolist()),
        lengths=tuple(len(column) for column in columns),
        labels=_labels(axes, columns),
        problem=problem,
    )


def _gap(numbers: Sequence[int]) -> str:
    step = min(after - before for before, after in pairwise(numbers))
    before, after = next(
        (before, after) for before, after in pairwise(numbers) if after - before != step
    )
    return f"nothing between {before} and {after}"


def _labels(axes: Sequence[str], columns: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Names of the channels, where those are not only numbers."""
    for axis, column in zip(axes, columns, strict=True):
        if axis == "c" and not all(value.isdecimal() for value in column):
            return tuple(column)
    return ()


def _natural(value: str) -> tuple[tuple[int, int, str], ...]:
    """Order of texts in which the numbers count as numbers; equal only for equal texts."""
    parts = re.findall(r"\d+|\D+", value)
    return (
        *((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts),
        (2, 0, value),
    )
