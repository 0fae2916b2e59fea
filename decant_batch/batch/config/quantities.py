"""Sizes and durations as people write them: text in, exact numbers out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

# A bare "G" may mean either: it is asked about, not guessed.
_SIZE_UNITS = {"b": 1} | {
    f"{letter}{binary}b": (1024 if binary else 1000) ** power
    for power, letter in enumerate("kmgtp", start=1)
    for binary in ("", "i")
}
_DURATION_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_QUANTITY = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([A-Za-z]*)\s*")


def size(raw: object) -> int:
    """Bytes from ``8GiB``, ``1.5 GB``, ``500MB`` or a plain number of bytes.

    Raises
    ------
    ValueError
        With what to write instead.
    """
    return int(_quantity(raw, _SIZE_UNITS, "a size", "8GiB, 500MB or a number of bytes"))


def duration(raw: object) -> float:
    """Seconds from ``30s``, ``15m``, ``2h``, ``1d`` or a plain number of seconds.

    Raises
    ------
    ValueError
        With what to write instead.
    """
    return float(_quantity(raw, _DURATION_UNITS, "a duration", "30s, 15m, 2h or 1d"))


def _quantity(raw: object, units: Mapping[str, int], what: str, examples: str) -> Fraction:
    text = str(raw) if isinstance(raw, int | str) else ""
    found = _QUANTITY.fullmatch(text)
    unit = found[2].lower() if found else ""
    # Without a unit only whole numbers are plain: "1.5" of what?
    if found is None or (unit not in units if unit else "." in found[1]):
        raise ValueError(f"{raw!r} is not {what}; write it like {examples}")
    amount = Fraction(found[1]) * units.get(unit, 1)
    if amount >= 1 << 63:
        raise ValueError(f"{raw!r} is too large to be {what}; write it like {examples}")
    return amount
