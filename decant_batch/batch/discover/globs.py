"""Patterns like ``raw/**`` as regular expressions; those of gitignore, without negation.

- ``*``, ``?``, ``[abc]`` and ``[!abc]`` match within one name, ``**`` across folders, in the case
  they are written in;
- a pattern without ``/`` matches a name anywhere; one with ``/`` the path from the root on (a
  leading ``/`` says just that);
- ``name/`` matches folders only;
- a pattern that matches a folder holds for everything in it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

# A bracket holds at least one character, of which "]" may be the first; else "[" is itself.
_TOKEN = re.compile(
    r"(?P<stars>\*+)|(?P<any>\?)|\[(?P<negated>!|(?!!))(?P<chars>\]?[^\]]+|\])\]|(?P<one>.)",
    re.DOTALL,
)
_RANGE = re.compile(r"(.)-(.)|(.)", re.DOTALL)
_NEVER = r"(?!)"


def glob_regex(patterns: Sequence[str], *, ignore_case: bool = False) -> re.Pattern[str]:
    """One regex of all patterns, for ``matches``."""
    return _any_of([_glob_text(pattern) for pattern in patterns], ignore_case=ignore_case)


def reach_regex(patterns: Sequence[str]) -> re.Pattern[str]:
    """One regex, for ``matches``, of the folders in which one of the patterns may match."""
    return _any_of([_reach_text(pattern) for pattern in patterns], ignore_case=False)


def matches(regex: re.Pattern[str], relpath: str, *, is_folder: bool) -> bool:
    """Whether one of the patterns matches the file or folder, or all that is in the folder."""
    # macOS stores an umlaut as two characters, an editor writes it as one.
    path = relpath if relpath.isascii() else unicodedata.normalize("NFC", relpath)
    if regex.fullmatch(path):
        return True
    # As ``path/``, a folder is matched by ``name/`` and by ``name/**``.
    return is_folder and regex.fullmatch(f"{path}/") is not None


def _any_of(texts: Sequence[str], *, ignore_case: bool) -> re.Pattern[str]:
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else re.NOFLAG)
    return re.compile("|".join(f"(?:{text})" for text in texts) or _NEVER, flags)


def _parts(pattern: str) -> list[str]:
    """Names and ``**`` of a pattern, from the root on."""
    composed = unicodedata.normalize("NFC", pattern)
    parts = composed.strip("/").split("/")
    return parts if "/" in composed.removesuffix("/") else ["**", *parts]


def _glob_text(pattern: str) -> str:
    *folders, last = _parts(pattern)
    text = "".join("(?:.*/)?" if part == "**" else f"{_name_text(part)}/" for part in folders)
    text += ".*" if last == "**" else _name_text(last)
    return f"{text}/" if pattern.endswith("/") else text


def _reach_text(pattern: str) -> str:
    """Regex of the folders above a match: those of ``a/b/*.tif`` are ``a`` and ``a/b``."""
    text = _NEVER
    for part in reversed(_parts(pattern)[:-1]):
        if part == "**":
            text = ".*"
        else:
            name = _name_text(part)
            text = name if text == _NEVER else f"{name}(?:/{text})?"
    return text


def _name_text(part: str) -> str:
    # No name is empty: ``a/*`` is not to match the folder ``a/`` itself.
    return "".join(_token_texts(part)) if part.strip("*") else "[^/]+"


def _token_texts(part: str) -> Iterator[str]:
    for token in _TOKEN.finditer(part):
        if token["stars"]:
            yield "[^/]*"
        elif token["any"]:
            yield "[^/]"
        elif token["chars"]:
            yield _bracket_text(token["chars"], negated=bool(token["negated"]))
        else:
            yield re.escape(token["one"])


def _bracket_text(chars: str, *, negated: bool) -> str:
    ranges = [
        f"{re.escape(low)}-{re.escape(high)}" if low else re.escape(one)
        for low, high, one in _RANGE.findall(chars)
        if low <= high  # a range that runs backwards holds nothing
    ]
    if negated:
        return f"[^/{''.join(ranges)}]"
    return f"(?!/)[{''.join(ranges)}]" if ranges else _NEVER
