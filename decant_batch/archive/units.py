"""Units as programs write them -> the names that NGFF 0.4 asks for (those of UDUNITS-2)."""

from __future__ import annotations

_PREFIXES = {
    "Y": "yotta", "Z": "zetta", "E": "exa", "P": "peta", "T": "tera", "G": "giga", "M": "mega",
    "k": "kilo", "h": "hecto", "": "", "d": "deci", "c": "centi", "m": "milli", "u": "micro",
    "n": "nano", "p": "pico", "f": "femto", "a": "atto", "z": "zepto", "y": "yocto",
}  # fmt: skip
_METERS = {f"{sign}m": f"{prefix}meter" for sign, prefix in _PREFIXES.items()}
_SECONDS = {f"{sign}s": f"{prefix}second" for sign, prefix in _PREFIXES.items()}
# By symbol, where capitals matter, and by word, where they do not.
_SPACE_SYMBOLS = _METERS | {"in": "inch", '"': "inch", "ft": "foot", "yd": "yard", "mi": "mile"}
_SPACE_SYMBOLS |= {"Å": "angstrom", "A": "angstrom", "pc": "parsec"}
_TIME_SYMBOLS = _SECONDS | {"sec": "second", "min": "minute", "h": "hour", "hr": "hour", "d": "day"}
_SPACE_WORDS = frozenset({*_METERS.values(), "angstrom", "inch", "foot", "yard", "mile", "parsec"})
_TIME_WORDS = frozenset({*_SECONDS.values(), "minute", "hour", "day"})
_OTHER_WORDS = {"micron": "micrometer", "inches": "inch", "feet": "foot"}


def space(text: str) -> str | None:
    """NGFF's name of a unit of length; None for what is none of them, like ``pixel``."""
    return _named(text, _SPACE_SYMBOLS, _SPACE_WORDS)


def time(text: str) -> str | None:
    """NGFF's name of a unit of time; None for what is none of them."""
    return _named(text, _TIME_SYMBOLS, _TIME_WORDS)


def _named(text: str, symbols: dict[str, str], words: frozenset[str]) -> str | None:
    # ImageJ writes the Greek letter as a backslash, u and four digits; Unicode has it twice.
    text = text.strip().replace("\\u00B5", "u").replace("\u00b5", "u").replace("\u03bc", "u")
    if text in symbols:
        return symbols[text]
    word = text.lower().replace("metre", "meter")
    word = _OTHER_WORDS.get(word.removesuffix("s"), _OTHER_WORDS.get(word, word))
    return next((each for each in (word, word.removesuffix("s")) if each in words), None)
