"""Which series a source may be of, guessed from the digits in its name. Pure: no file is touched.

A guess is only made where a config asks for it (``series: [auto: true]``), and ``plan`` shows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from decant_batch.batch.model import Placed, SeriesLayout

_AXES = {
    "t": ("timepoint", "time", "tp", "t", "frame"),
    "z": ("slice", "z"),
    "c": ("channel", "chan", "ch", "c"),
}
_AXIS = {word: axis for axis, words in _AXES.items() for word in words}
# A word of an axis and its number; not the end of another word, and not the time of a day.
_WORDS = "|".join(sorted((word for word in _AXIS if len(word) > 1), key=len, reverse=True))
_LETTER = r"[tzc](?=[-_ ]?[0-9]{1,5}(?![0-9]))"
_TOKEN = re.compile(rf"(?<![A-Za-z])({_WORDS}|{_LETTER})[-_ ]?([0-9]+)", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]+")
_SUFFIX = re.compile(r"(\.ome)?\.tiff?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """Sources in one folder whose names differ in numbers only are taken for one series.

    Numbers after ``t``, ``time``, ``frame`` …, ``z``, ``slice``, ``c``, ``ch``, ``channel`` … are
    those axes, of two the later; where there is none, the last number is ``t``. All else in the
    name tells series apart. Only names of TIFFs are guessed at.
    """

    layout: SeriesLayout = "auto"

    def place(self, relpath: str) -> Placed | None:
        """The series that a source may belong to, and its values there."""
        folder, slash, name = relpath.rpartition("/")
        suffix = _SUFFIX.search(name)
        if suffix is None:
            return None
        spans = _spans(name[: suffix.start()])
        if not spans:
            return None
        text, end = "", 0
        for begin, after in sorted(spans.values()):
            text, end = text + name[end:begin], after
        text += name[end:]
        axes = tuple(axis for axis in _AXES if axis in spans)
        return Placed(
            stem=f"{folder}{slash}{text}",
            axes=axes,
            layout=self.layout,
            values=tuple(name[slice(*spans[axis])] for axis in axes),
            identity=(_with_places(name, spans),),
            found="guessed",
        )


def _spans(name: str) -> dict[str, tuple[int, int]]:
    """Where in a name the number of each axis stands."""
    spans = {_AXIS[token[1].lower()]: token.span(2) for token in _TOKEN.finditer(name)}
    if not spans and (numbers := list(_DIGITS.finditer(name))):
        spans["t"] = numbers[-1].span()
    return spans


def _with_places(name: str, spans: dict[str, tuple[int, int]]) -> str:
    """The name with an axis in place of each number: what members of one series share."""
    for axis, (begin, end) in sorted(spans.items(), key=lambda each: each[1], reverse=True):
        name = f"{name[:begin]}/{axis}/{name[end:]}"
    return name
