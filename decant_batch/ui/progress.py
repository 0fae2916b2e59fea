"""How a run shows where it is: a bar on a terminal, plain lines in a pipe, or nothing.

All of it is said in bytes. While the walk goes on, what was found is not the whole: until it has
ended no percentage and no remaining time is shown, because both would be made up.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TextIO

from decant_batch.batch.model import Tick
from decant_batch.ui.quantities import (
    bytes_text,
    count_text,
    duration_text,
    percent,
    printable,
    rate_text,
)
from decant_batch.ui.terminal import stop_writing

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

Watch = Callable[[Tick], None]
Clock = Callable[[], float]
Phase = Literal["looking", "packing", "finished"]

# Long enough that one large source does not make the rate jump, short enough to follow a mount
# that slows down.
_WINDOW_S = 60.0
_LEAST_S = 3.0
# A log that is read the next morning wants few lines.
_LINE_EVERY_S = 10.0
_NAMES_SHOWN = 3


class Pace:
    """Bytes per second over the last minute; fed with what a run has read so far.

    Nothing is said of the first seconds, in which one large source would make any number.

    Parameters
    ----------
    window_s
        How far back the rate looks, in seconds.
    """

    def __init__(self, window_s: float = _WINDOW_S) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, now_s: float, nbytes: int) -> None:
        """Remember that ``nbytes`` in all had been read at ``now_s``."""
        self._seen.append((now_s, nbytes))
        # The last point at or before the window's start stays: the rate spans the whole window.
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - self._window_s:
            self._seen.popleft()

    @property
    def rate(self) -> float | None:
        """Bytes per second, or None while nothing has moved or it is too early to tell."""
        if len(self._seen) < 2:
            return None
        (begin_s, before), (end_s, after) = self._seen[0], self._seen[-1]
        if end_s - begin_s < _LEAST_S or after <= before:
            return None
        return (after - before) / (end_s - begin_s)


def phase(tick: Tick) -> Phase:
    """What the run is doing: finding sources, packing what was found, or nothing any more."""
    if not tick.walk_ended:
        return "looking"
    return "finished" if _finished_count(tick) >= tick.found_count else "packing"


def position(tick: Tick) -> int:
    """Bytes that are behind the run, of ``tick.found_nbytes``; never more than those."""
    nbytes = tick.settled_nbytes + tick.done_nbytes + tick.underway_nbytes
    return min(nbytes, tick.found_nbytes)


def remaining_s(tick: Tick, rate: float | None) -> float | None:
    """Seconds to go at ``rate``, or None where saying so would be a guess."""
    nbytes = tick.found_nbytes - position(tick)
    if phase(tick) != "packing" or not rate or not nbytes:
        return None
    return nbytes / rate


def amount_text(tick: Tick) -> str:
    """How far the run is, in bytes: of all there is, or only of what was found so far."""
    amount = f"{bytes_text(position(tick))} of {bytes_text(tick.found_nbytes)}"
    return amount if tick.walk_ended else f"{amount} found so far"


def share_text(tick: Tick) -> str:
    """The percentage that is behind the run, or nothing before the walk has ended."""
    if not tick.walk_ended:
        return ""
    if phase(tick) == "finished":
        return "100 %"
    # Every byte may have been read while the last archives are still verified: that is not all.
    return f"{min(percent(position(tick), tick.found_nbytes), 99)} %"


def counts_text(tick: Tick) -> str:
    """How many sources are behind the run, and how many of them failed."""
    files = f"{_finished_count(tick):,} of {count_text(tick.found_count, 'file')}"
    if not tick.walk_ended:
        files += " so far"
    return f"{files}, {tick.failed_count:,} failed" if tick.failed_count else files


def left_text(tick: Tick, rate: float | None) -> str:
    """The remaining time, or nothing where it would be a guess."""
    seconds = remaining_s(tick, rate)
    return "" if seconds is None else f"{duration_text(seconds)} left"


def running_text(tick: Tick) -> str:
    """Some of the sources that workers have now."""
    names = ", ".join(printable(name) for name in tick.running[:_NAMES_SHOWN])
    more = len(tick.running) - _NAMES_SHOWN
    return f"{names} and {more:,} more" if more > 0 else names


def line(tick: Tick, rate: float | None, elapsed_s: float) -> str:
    """One plain line for a log."""
    parts = [
        share_text(tick),
        amount_text(tick),
        counts_text(tick),
        rate_text(rate) if rate and phase(tick) != "finished" else "",
        left_text(tick, rate),
    ]
    said = ", ".join(part for part in parts if part)
    return f"[{duration_text(elapsed_s)}] {phase(tick)}: {said}"


class Lines:
    """Plain lines for a pipe: one at each change of phase, else one every ten seconds."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._begin_s = clock()
        self._said: tuple[Phase, float] | None = None
        self._pace = Pace()

    def __call__(self, tick: Tick) -> None:
        """Say where the run is, if it is time to."""
        now_s = self._clock()
        self._pace.add(now_s, tick.done_nbytes + tick.underway_nbytes)
        if not tick.found_count and not tick.walk_ended:
            return  # nothing to say yet
        if self._said and self._said[0] == phase(tick) and now_s - self._said[1] < _LINE_EVERY_S:
            return
        self._said = (phase(tick), now_s)
        text = line(tick, self._pace.rate, now_s - self._begin_s)
        try:
            self._stream.write(f"{text}\n")
            self._stream.flush()
        except BrokenPipeError:
            # A log that went away is no reason to stop a night's work.
            stop_writing(self._stream)


class Bar:
    """A bar on a terminal: bytes, rate, remaining time, and what workers have now."""

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._pace = Pace()
        self._tick = Tick()

    def __call__(self, tick: Tick) -> None:
        """Take over where the run is; the screen follows four times a second."""
        self._pace.add(self._clock(), tick.done_nbytes + tick.underway_nbytes)
        self._tick = tick

    def live(self) -> Live:
        """The bar's place on the screen, which is cleared when the context ends."""
        from rich.live import Live

        return Live(
            get_renderable=self.render,
            console=self._console,
            refresh_per_second=4,
            transient=True,
        )

    def render(self) -> RenderableType:
        """Two lines: the bar with its numbers, then counts and names."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        tick, rate = self._tick, self._pace.rate
        total = max(tick.found_nbytes, 1) if tick.walk_ended else None
        # An empty share is finished, not stuck at nothing.
        done = total if total and phase(tick) == "finished" else position(tick)
        bar = Table.grid(padding=(0, 2), expand=True)
        bar.add_column(no_wrap=True)
        bar.add_column(ratio=1)
        for _ in range(4):
            bar.add_column(no_wrap=True)
        bar.add_row(
            Text(phase(tick), style="bold"),
            ProgressBar(total=total, completed=done, pulse=total is None, complete_style="cyan"),
            share_text(tick),
            amount_text(tick),
            rate_text(rate),
            left_text(tick, rate),
        )
        failed = "red" if tick.failed_count else "default"
        names = running_text(tick)
        below = Text(counts_text(tick), style=failed, no_wrap=True, overflow="ellipsis")
        below.append(f"   now: {names}" if names else "", style="dim")
        return Group(bar, below)


@contextmanager
def watching(stream: TextIO, *, quiet: bool, clock: Clock = time.monotonic) -> Iterator[Watch]:
    """A function that shows each tick on ``stream`` as fits it; with ``quiet``, one that does not.

    A bar needs a terminal that can move its cursor; anything else gets plain lines without any
    control character.
    """
    if quiet:
        yield _silent
        return
    if not stream.isatty():
        yield Lines(stream, clock)
        return
    from rich.console import Console

    console = Console(file=stream)
    if console.is_dumb_terminal:
        yield Lines(stream, clock)
        return
    bar = Bar(console, clock)
    with bar.live():
        yield bar


def _silent(_tick: Tick) -> None:
    """Show nothing."""


def _finished_count(tick: Tick) -> int:
    return tick.settled_count + tick.done_count
