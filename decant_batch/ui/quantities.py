"""Numbers, times and names as people read them: pure text, no terminal."""

from __future__ import annotations

from datetime import UTC, datetime

_STEP = 1024
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def bytes_text(nbytes: float) -> str:
    """``nbytes`` with one decimal in the largest fitting unit: ``7.4 GiB``, ``999 B``."""
    if nbytes < _STEP:
        return f"{nbytes:.0f} B"
    value = float(nbytes)
    for unit in _UNITS:
        value /= _STEP
        # Compared after rounding, so that 1023.96 KiB is 1.0 MiB and never "1024.0 KiB".
        if round(value, 1) < _STEP:
            return f"{value:.1f} {unit}"
    return f"{value:.1f} {_UNITS[-1]}"


def exact_text(nbytes: int) -> str:
    """``nbytes`` to the byte, after its rounded form: ``7.4 GiB (7,945,689,497 bytes)``."""
    if nbytes < _STEP:
        return count_text(nbytes, "byte")
    return f"{bytes_text(nbytes)} ({nbytes:,} bytes)"


def rate_text(bytes_per_s: float | None) -> str:
    """``bytes_per_s`` as ``112.0 MiB/s``, or ``-`` while there is nothing to measure."""
    return "-" if not bytes_per_s else f"{bytes_text(bytes_per_s)}/s"


def duration_text(seconds: float) -> str:
    """``seconds`` in its two leading units: ``0.8 s``, ``4 min 12 s``, ``3 h 02 min``."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def date_text(time_ns: int) -> str:
    """``time_ns`` after 1970 in UTC, to the second; a time that no calendar has as its number."""
    try:
        when = datetime.fromtimestamp(time_ns // 1_000_000_000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ns} ns"
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


def percent(done: int, total: int) -> int:
    """``done`` of ``total`` in whole percent, rounded down: 100 is never said too early."""
    return 100 if total <= 0 else max(done, 0) * 100 // total


def saved_text(source_nbytes: int, archive_nbytes: int) -> str:
    """How much smaller (``41 %``) or larger (``-3 %``) the archives are than their sources."""
    if source_nbytes <= 0:
        return "-"
    if archive_nbytes > 2 * source_nbytes:  # tiny files: a percentage would only look alarming
        return "none"
    return f"{(1 - archive_nbytes / source_nbytes) * 100:.0f} %".replace("-0 %", "0 %")


def count_text(count: int, noun: str) -> str:
    """``count`` with its noun: ``1 source``, ``1,203 sources``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def printable(text: str) -> str:
    r"""``text`` with everything escaped that would not show, or would act on a terminal.

    File names may hold line breaks, escape sequences and bytes that are not UTF-8; the latter
    (surrogate-escaped by Python) come out as the byte they are: ``\xff``.
    """
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")
