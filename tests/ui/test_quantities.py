from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decant_batch.ui.quantities import (
    bytes_text,
    count_text,
    date_text,
    duration_text,
    exact_text,
    percent,
    printable,
    rate_text,
    saved_text,
)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1024 * 1024 - 1, "1.0 MiB"),  # not "1024.0 KiB"
        (7_945_689_497, "7.4 GiB"),
        (3 * 2**50, "3.0 PiB"),
        (5000 * 2**60, "5000.0 EiB"),
    ],
)
def test_bytes(nbytes: int, text: str) -> None:
    assert bytes_text(nbytes) == text


@given(st.integers(0, 2**69))
def test_bytes_stay_short(nbytes: int) -> None:
    assert len(bytes_text(nbytes)) <= 10


def test_exact_bytes_are_there_to_the_byte() -> None:
    assert exact_text(1) == "1 byte"
    assert exact_text(0) == "0 bytes"
    assert exact_text(7_945_689_497) == "7.4 GiB (7,945,689,497 bytes)"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0.84, "0.8 s"),
        (9.96, "10.0 s"),
        (42.4, "42 s"),
        (59.7, "1 min 00 s"),
        (252, "4 min 12 s"),
        (3599.9, "1 h 00 min"),
        (3 * 3600 + 125, "3 h 02 min"),
        (2 * 86400 + 4 * 3600, "2 d 4 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_rate_that_is_not_known_is_not_made_up() -> None:
    assert rate_text(None) == "-"
    assert rate_text(0.0) == "-"
    assert rate_text(112 * 2**20) == "112.0 MiB/s"


@given(st.integers(0, 2**60), st.integers(1, 2**60))
def test_percent_reaches_100_only_at_the_end(done: int, total: int) -> None:
    done = min(done, total)
    assert (percent(done, total) == 100) == (done == total)


def test_percent_of_nothing_is_all_of_it() -> None:
    assert percent(0, 0) == 100


@pytest.mark.parametrize(
    ("source", "archive", "text"),
    [(100, 59, "41 %"), (100, 103, "-3 %"), (1000, 1001, "0 %"), (0, 400, "-")],
)
def test_saved(source: int, archive: int, text: str) -> None:
    assert saved_text(source, archive) == text


def test_dates_are_utc_and_never_fail() -> None:
    assert date_text(1_773_219_600_000_000_000) == "2026-03-11 09:00:00 UTC"
    assert date_text(-1) == "1969-12-31 23:59:59 UTC"
    assert date_text(2**63 - 1) == "2262-04-11 23:47:16 UTC"
    assert date_text(-(2**80)).endswith(" ns")


def test_counts() -> None:
    assert count_text(1, "source") == "1 source"
    assert count_text(1203, "source") == "1,203 sources"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Übersicht τ=5min.tif", "Übersicht τ=5min.tif"),
        ("two\nlines", r"two\nlines"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        (b"latin-\xe4.tif".decode("utf-8", "surrogateescape"), r"latin-\xe4.tif"),
        ("\u202egnp.tif", r"\u202egnp.tif"),  # right-to-left override
        ("\ud800", r"\ud800"),
    ],
)
def test_names_cannot_act_on_a_terminal(name: str, text: str) -> None:
    assert printable(name) == text


@given(st.text(st.characters()))
def test_printable_text_can_always_be_encoded(text: str) -> None:
    assert printable(text).encode("utf-8").decode("utf-8").isprintable()
