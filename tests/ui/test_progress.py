from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from decant_batch.batch.model import Tick
from decant_batch.ui import progress
from decant_batch.ui.progress import Bar, Lines, Pace, watching

MIB = 2**20
WALKING = Tick(found_count=120, found_nbytes=1000 * MIB, done_count=30, done_nbytes=300 * MIB)
PACKING = Tick(
    found_count=200,
    found_nbytes=2000 * MIB,
    walk_ended=True,
    settled_count=50,
    settled_nbytes=500 * MIB,
    done_count=30,
    done_nbytes=300 * MIB,
    failed_count=2,
    underway_nbytes=50 * MIB,
    running=("plate_07/A01 site 1.tif", "timelapse/t 03.tif"),
)
FINISHED = replace(PACKING, done_count=150, done_nbytes=1500 * MIB, underway_nbytes=0, running=())


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    """Somewhere to write to that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_pace_is_unknown_until_something_moved() -> None:
    pace = Pace()
    assert pace.rate is None
    pace.add(0.0, 0)
    assert pace.rate is None
    pace.add(1.0, 0)
    assert pace.rate is None
    pace.add(2.0, 100)
    assert pace.rate is None  # too early to tell
    pace.add(4.0, 200)
    assert pace.rate == 50.0


def test_pace_forgets_what_was_long_ago() -> None:
    pace = Pace(window_s=10.0)
    for second in range(100):
        pace.add(float(second), 1000 * second)
    for second in range(100, 120):
        pace.add(float(second), 99_000 + 10 * (second - 99))
    assert pace.rate == pytest.approx(10.0)


def test_pace_survives_a_clock_that_stands_and_bytes_that_go_back() -> None:
    pace = Pace()
    pace.add(5.0, 100)
    pace.add(5.0, 200)
    assert pace.rate is None
    pace.add(9.0, 50)
    assert pace.rate is None


def test_phases() -> None:
    assert progress.phase(WALKING) == "looking"
    assert progress.phase(PACKING) == "packing"
    assert progress.phase(FINISHED) == "finished"
    assert progress.phase(Tick(walk_ended=True)) == "finished"


def test_nothing_is_made_up_before_the_walk_has_ended() -> None:
    text = progress.line(WALKING, 30.0 * MIB, 12.0)
    assert "so far" in text
    assert "%" not in text
    assert "left" not in text
    assert progress.remaining_s(WALKING, 30.0 * MIB) is None


def test_a_line_says_where_the_run_is() -> None:
    assert progress.line(PACKING, 50.0 * MIB, 75.0) == (
        "[1 min 15 s] packing: 42 %, 850.0 MiB of 2.0 GiB, 80 of 200 files, 2 failed, "
        "50.0 MiB/s, 23 s left"
    )


def test_100_percent_is_kept_for_the_end() -> None:
    all_read = replace(PACKING, underway_nbytes=1200 * MIB)
    assert progress.share_text(all_read) == "99 %"
    assert progress.left_text(all_read, 10.0) == ""
    assert progress.share_text(FINISHED) == "100 %"


def test_position_never_passes_what_was_found() -> None:
    grown = replace(PACKING, underway_nbytes=5000 * MIB)
    assert progress.position(grown) == grown.found_nbytes


def test_many_running_sources_are_counted_not_listed() -> None:
    tick = Tick(running=tuple(f"{at}.tif" for at in range(9)))
    assert progress.running_text(tick) == "0.tif, 1.tif, 2.tif and 6 more"


def test_running_names_cannot_act_on_the_terminal() -> None:
    assert progress.running_text(Tick(running=("a\x1b[2J\udcff",))) == r"a\x1b[2J\xff"


def test_lines_come_at_each_phase_and_every_ten_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    lines = Lines(stream, clock)
    for tick, seconds in ((WALKING, 0), (WALKING, 9), (WALKING, 1), (PACKING, 1), (PACKING, 1)):
        clock.now_s += seconds
        lines(tick)
    lines(FINISHED)
    said = stream.getvalue().splitlines()
    assert [line.split("]")[1].split(":")[0].strip() for line in said] == [
        "looking",
        "looking",
        "packing",
        "finished",
    ]
    assert all(line.isprintable() for line in said)


def test_a_log_that_went_away_does_not_stop_the_run() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    clock = Clock()
    with os.fdopen(writing, "w") as stream:
        lines = Lines(stream, clock)
        lines(WALKING)
        clock.now_s += 60
        lines(WALKING)


def test_a_pipe_gets_lines_and_no_control_characters() -> None:
    stream = io.StringIO()
    with watching(stream, quiet=False) as watch:
        watch(PACKING)
    assert stream.getvalue().rstrip("\n").isprintable()
    assert "packing" in stream.getvalue()


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    stream = Terminal()
    with watching(stream, quiet=True) as watch:
        watch(PACKING)
    assert stream.getvalue() == ""
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with watching(stream, quiet=False, clock=Clock()) as watch:
        assert isinstance(watch, Bar)
        watch(PACKING)


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with watching(Terminal(), quiet=False) as watch:
        assert isinstance(watch, Lines)


@pytest.fixture
def drawn() -> Callable[[Tick], str]:
    """What the bar draws after some seconds of packing."""

    def draw(tick: Tick) -> str:
        stream, clock = io.StringIO(), Clock()
        console = Console(file=stream, width=110, force_terminal=True, color_system=None)
        bar = Bar(console, clock)
        bar(replace(tick, done_nbytes=0, underway_nbytes=0))
        clock.now_s += 10
        bar(tick)
        console.print(bar.render())
        return stream.getvalue()

    return draw


def test_the_bar_has_bytes_rate_time_failures_and_names(drawn: Callable[[Tick], str]) -> None:
    text = drawn(PACKING)
    for part in (
        "packing",
        "42 %",
        "850.0 MiB of 2.0 GiB",
        "35.0 MiB/s",
        "33 s left",
        "80 of 200 files, 2 failed",
        "plate_07/A01 site 1.tif, timelapse/t 03.tif",
    ):
        assert part in text


def test_the_bar_makes_nothing_up_while_walking(drawn: Callable[[Tick], str]) -> None:
    text = drawn(WALKING)
    assert "found so far" in text
    assert "%" not in text
    assert "left" not in text


def test_the_bar_of_an_empty_share_is_full(drawn: Callable[[Tick], str]) -> None:
    assert "100 %" in drawn(Tick(walk_ended=True))


def test_names_are_not_markup(drawn: Callable[[Tick], str]) -> None:
    assert "[red]a[/].tif" in drawn(replace(PACKING, running=("[red]a[/].tif",)))


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    console = Console(file=stream, width=110, force_terminal=True)
    bar = Bar(console, Clock())
    bar(PACKING)
    console.print(bar.render())
    assert "\x1b[31m" not in stream.getvalue()
