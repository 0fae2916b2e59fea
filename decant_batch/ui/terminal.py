"""Writing to people's screens and pipes without ever failing because of what is written."""

from __future__ import annotations

import io
import os
import sys
from typing import TextIO

from decant_batch.ui.quantities import printable

# Colour only repeats what the words say: in a pipe nothing is lost.
_STYLES = (
    (r"(?m)^(state|mode|      ) +sources.*$", "bold"),
    (r"(?m)^run +began.*$", "bold"),
    (r"(?m)^total .*$", "bold"),
    (r"(?m)^(archived|ok|restored) ", "green"),
    (r"(?m)^(changing|waiting) +[1-9].*$", "yellow"),
    (r"(?m)^failed +[1-9].*$", "red"),
    (r"(?m)^  (transient|poison|permanent|destination): ", "red"),
    (r"(?m)^(ledger|report|source|destination)(?= +/)", "bold"),
)


def say(text: str) -> bool:
    """Whether ``text`` and a line end could be written to stdout: false once nobody listens.

    A reader that went away (``| head``) is no failure of the work that was done.
    """
    try:
        if sys.stdout.isatty():
            _say_in_colour(text)
        else:
            sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        stop_writing(sys.stdout)
        return False
    return True


def complain(message: str) -> None:
    """Write one line ``error: ...`` to stderr, whatever ``message`` holds."""
    try:
        sys.stderr.write(f"error: {printable(message)}\n")
        sys.stderr.flush()
    except BrokenPipeError:
        stop_writing(sys.stderr)


def escape_unprintable(*streams: TextIO) -> None:
    """Have ``streams`` escape what their encoding cannot hold, such as half a surrogate pair."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def stop_writing(stream: TextIO) -> None:
    """Send what else ``stream`` gets to nowhere, also what the interpreter flushes as it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _say_in_colour(text: str) -> None:
    from rich.console import Console
    from rich.text import Text

    coloured = Text(text)
    for pattern, style in _STYLES:
        coloured.highlight_regex(pattern, style)
    # Soft-wrapped: the terminal breaks long paths, so that they can be copied whole.
    Console(file=sys.stdout).print(coloured, soft_wrap=True)
