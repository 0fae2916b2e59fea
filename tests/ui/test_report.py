from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from decant_batch.batch.model import FailureClass, Summary, Tally, Trouble, Why
from decant_batch.errors import Unusable
from decant_batch.ui import report

SUMMARY = Summary(
    run=3,
    states={
        "archived": Tally(count=1203, source_nbytes=7_945_689_497, archive_nbytes=4_200_000_000),
        "failed": Tally(count=2, source_nbytes=1_073_741_824),
    },
    waiting=Tally(),
    modes={
        "byte-exact": Tally(count=1190, source_nbytes=7_900_000_000, archive_nbytes=4_155_000_000),
        "verbatim": Tally(count=13, source_nbytes=45_689_497, archive_nbytes=45_000_000),
    },
    reasons={"not-a-tiff": 3, "compressed": 10},
    settled=Tally(count=1100, source_nbytes=7_000_000_000, archive_nbytes=3_600_000_000),
    troubles=(
        Trouble(relpath="a\udcff.tif", failure="permanent", message="/s/a: permission denied"),
        Trouble(relpath="b.tif", failure="poison", message="its worker died twice"),
    ),
    trouble_count=2,
    seconds=252.4,
    ledger="/dst/.decant-batch/ledger.sqlite",
    report=None,
)

EXPECTED = r"""
run 3 finished in 4 min 12 s

state     sources          bytes             archives
archived    1,203  7,945,689,497    7.4 GiB   3.9 GiB
reported        0              0        0 B         -
changing        0              0        0 B         -
failed          2  1,073,741,824    1.0 GiB         -
total       1,205  9,019,431,321    8.4 GiB   3.9 GiB

of these, 1,100 (6.5 GiB) settled by earlier runs, and not opened

mode        sources          bytes            archives  saved
byte-exact    1,190  7,900,000,000   7.4 GiB   3.9 GiB   47 %
verbatim         13     45,689,497  43.6 MiB  42.9 MiB    2 %
verbatim because: compressed 10, not-a-tiff 3

2 problems:
  poison: their worker died more than once: raise cluster.memory, or exclude them
    b.tif: its worker died twice
  permanent: trying again does not help until the cause below is removed; then run again
    a\xff.tif: /s/a: permission denied

ledger  /dst/.decant-batch/ledger.sqlite
""".strip()


def test_a_summary_reads_well() -> None:
    # Blanks between columns may vary with their widths; the words and numbers may not.
    assert _words(report.summary_text(SUMMARY)) == _words(EXPECTED)


def test_columns_line_up() -> None:
    lines = report.balance_text(SUMMARY.states).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert {line.index("  ") for line in lines[1:2]} == {8}


def test_the_balance_sums_to_its_total() -> None:
    rows = [line.split() for line in report.balance_text(SUMMARY.states).splitlines()[1:]]
    numbers = [[int(cell.replace(",", "")) for cell in row[1:3]] for row in rows]
    assert [sum(column) for column in zip(*numbers[:-1], strict=True)] == numbers[-1]


def test_a_run_that_stopped_says_why() -> None:
    text = report.summary_text(replace(SUMMARY, stopped="/dst: no space left"))
    assert text.startswith("run 3 stopped after 4 min 12 s: /dst: no space left\n")


def test_a_run_with_nothing_to_say_is_short() -> None:
    empty = replace(
        SUMMARY, states={}, modes={}, reasons={}, settled=Tally(), troubles=(), trouble_count=0
    )
    text = report.summary_text(empty)
    assert "mode" not in text
    assert "problem" not in text
    assert "settled" not in text


def test_every_class_of_failure_has_a_next_step() -> None:
    assert set(report.NEXT_STEP) == set(get_args(FailureClass))


def test_many_failures_are_counted_not_listed() -> None:
    troubles = tuple(
        Trouble(relpath=f"{at}.tif", failure="transient", message="EIO") for at in range(20)
    )
    text = report.troubles_text(troubles, 1000)
    assert "1,000 problems" in text
    assert "and 15 more of these" in text
    assert "and 980 more, named in the ledger" in text
    assert len(text.splitlines()) < 10


def test_json_has_every_state_and_no_byte_that_is_not_ascii() -> None:
    text = report.json_text(report.summary_values(SUMMARY))
    assert text.isascii()
    assert "\n" not in text
    values = json.loads(text)
    assert values["states"]["changing"] == {"count": 0, "source_nbytes": 0, "archive_nbytes": 0}
    assert values["found"]["count"] == 1205
    assert values["troubles"][0]["relpath"] == "a\udcff.tif"
    assert values["seconds"] == 252.4


def test_the_report_is_written_in_one_step(tmp_path: Path) -> None:
    summary = replace(SUMMARY, ledger=str(tmp_path / "microscope3.sqlite"))
    written = report.write(summary)
    path = tmp_path / "microscope3-report-3.json"
    assert written == replace(summary, report=str(path))
    assert json.loads(path.read_text()) == json.loads(
        report.json_text(report.summary_values(written))
    )
    assert os.listdir(tmp_path) == [path.name]


def test_a_report_that_cannot_be_written_names_itself(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=r"ledger-report-3\.json: the report cannot be written"):
        report.write(replace(SUMMARY, ledger=str(tmp_path / "gone" / "ledger.sqlite")))


def test_a_report_that_cannot_be_renamed_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "ledger-report-3.json").mkdir()
    with pytest.raises(Unusable):
        report.write(replace(SUMMARY, ledger=str(tmp_path / "ledger.sqlite")))
    assert os.listdir(tmp_path) == ["ledger-report-3.json"]


def test_what_was_left_out_is_told_by_its_reason() -> None:
    left_out: dict[Why, Tally] = {
        "symlink": Tally(count=3),
        "hidden": Tally(count=1, source_nbytes=4_000_000),
        "own-folder": Tally(count=1),
    }
    text = report.summary_text(replace(SUMMARY, left_out=left_out))
    assert "\nleft out: hidden 1 (3.8 MiB), symlinks 3\n" in text


def _words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]
