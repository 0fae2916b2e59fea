from __future__ import annotations

import os
import sys

import pytest

from decant_batch.ui import terminal


def test_names_that_the_encoding_cannot_hold_are_escaped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    path = os.path.join(tmp_path, "out")
    with open(path, "w", encoding="ascii") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        terminal.escape_unprintable(sys.stdout)
        assert terminal.say("Übersicht \udcff")
        monkeypatch.undo()
    with open(path, encoding="ascii") as written:
        assert written.read() == "\\xdcbersicht \\udcff\n"


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.complain("bad\nname \x1b[31m\udce4: gone")
    assert capsys.readouterr().err == "error: bad\\nname \\x1b[31m\\xe4: gone\n"


def test_nobody_listening_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert not terminal.say("anyone?")
        assert terminal.say("into nothing")
        monkeypatch.undo()


@pytest.mark.parametrize(("no_color", "coloured"), [(None, True), ("1", False)])
def test_colour_is_for_terminals_and_can_be_declined(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    no_color: str | None,
    coloured: bool,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    terminal.say("failed  2 [red]not markup[/]")
    out = capsys.readouterr().out
    assert ("\x1b[31m" in out) == coloured
    assert "[red]not markup[/]" in out


def test_long_paths_are_not_broken_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    path = "/share/" + "a very long folder name/" * 10
    terminal.say(path)
    assert path in capsys.readouterr().out
