"""Jobs, attempts, leftovers, tallies: what a run writes and what people read of it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from decant_batch import __version__
from decant_batch.batch.ledger import Ledger
from decant_batch.batch.model import Tally, Trouble
from decant_batch.errors import NameTaken

if TYPE_CHECKING:
    from tests.batch.ledger.conftest import Make


def test_an_attempt_is_open_from_begin_to_record_and_keeps_what_was_measured(make: Make) -> None:
    source = make.source()
    with make.ledger() as ledger:
        ledger.unsettled([source], "report")
        ledger.begin([make.job(source)], [".tmp-1"])
        (attempt,) = ledger.attempts("a.tif")
        assert (attempt.outcome, attempt.ended_ns) == ("started", None)
        outcome = make.archived(source, peak_bytes=900, seconds=1.5, worker="node3")
        ledger.record([outcome])
        (attempt,) = ledger.attempts("a.tif")
    assert attempt.outcome == "archived"
    assert attempt.ended_ns is not None
    assert attempt.ended_ns >= attempt.started_ns
    assert (attempt.archive, attempt.mode, attempt.run) == ("a.tif.zarr.zip", "byte-exact", 1)
    assert (attempt.projected_bytes, attempt.peak_bytes) == (1000, 900)
    assert (attempt.seconds, attempt.worker) == (1.5, "node3")
    assert make.ask("SELECT state FROM job") == [("done",)]


def test_an_archive_tells_who_verified_it_and_when(make: Make) -> None:
    here, there = make.source("here.tif"), make.source("there.tif")
    with make.ledger() as ledger:
        ledger.record([make.archived(here), make.archived(there, worker="node3", adopted=True)])
        one, other = map(ledger.archive_of, ("here.tif.zarr.zip", "there.tif.zarr.zip"))
        assert ledger.archive_of("unknown.zarr.zip") is None
    assert one is not None
    assert other is not None
    assert one.verified_by == f"{socket.gethostname()}, decant-batch {__version__}"
    assert other.verified_by == f"node3, decant-batch {__version__}"
    assert (one.adopted, other.adopted) == (False, True)
    assert 0 < one.verified_ns <= other.verified_ns


def test_a_job_tried_again_has_an_attempt_for_each_time(make: Make) -> None:
    source = make.source()
    with make.ledger() as ledger:
        ledger.begin([make.job(source)], [".tmp-1"])
        ledger.record([make.failed(source, message="lost worker")])
        ledger.begin([make.job(source, projected_bytes=1)], [".tmp-2"])
        ledger.begin([make.job(source)], [".tmp-3"])
        ledger.record([make.archived(source)])
        outcomes = [attempt.outcome for attempt in ledger.attempts("a.tif")]
        row = ledger.source_of("a.tif")
    assert outcomes == ["failed", "lost", "archived"]
    assert row is not None
    assert (row.state, row.failure, row.message) == ("archived", None, "")
    assert make.ask("SELECT state FROM job") == [("done",)]


def test_begin_wants_a_temporary_name_for_each_job(make: Make) -> None:
    with make.ledger() as ledger:
        with pytest.raises(ValueError, match="shorter"):
            ledger.begin([make.job(make.source())], [])
        assert make.ask("SELECT * FROM job") == []


def test_what_a_dead_run_had_begun_is_left_over_until_it_is_swept(make: Make) -> None:
    done, open_, bad = (make.source(name) for name in ("done.tif", "open\udce9.tif", "bad.tif"))
    jobs = [make.job(source) for source in (done, open_, bad)]
    with make.ledger() as ledger:
        ledger.unsettled([done, open_, bad], "report")
        ledger.begin(jobs, [".tmp-done", ".tmp-\udce9", ".tmp-bad"])
        assert ledger.leftovers() == []
        ledger.record([make.archived(done), make.failed(bad)])
        assert ledger.leftovers() == [".tmp-bad"]
        make.edit("UPDATE lock SET pid = 0, process_start_s = -9")
        ledger._held = False
    with make.ledger() as ledger:
        assert sorted(ledger.leftovers()) == [".tmp-bad", ".tmp-\udce9"]
        assert [attempt.outcome for attempt in ledger.attempts("open\udce9.tif")] == ["lost"]
        assert ledger.runs()[1].states["waiting"].count == 1
        assert ledger.unsettled([done, open_, bad], "report") == [open_, bad]
        ledger.begin([make.job(open_)], [".tmp-\udce9"])
        assert ledger.leftovers() == [".tmp-bad"]
        ledger.swept([".tmp-bad", ".tmp-\udce9"])
        assert ledger.leftovers() == []
    with make.ledger() as ledger:
        assert ledger.leftovers() == [".tmp-\udce9"]


def test_two_sources_cannot_be_recorded_in_one_archive(make: Make) -> None:
    one, other, third = make.source("1.tif"), make.source("2.tif"), make.source("3.tif")
    with make.ledger() as ledger:
        ledger.record([make.archived(one, archive="x.zarr.zip")])
        with pytest.raises(NameTaken, match=r"x\.zarr\.zip.*'1\.tif'.*'2\.tif'"):
            ledger.record([make.archived(third), make.archived(other, archive="x.zarr.zip")])
        assert ledger.source_of("3.tif") is None
        row = ledger.archive_of("x.zarr.zip")
        assert row is not None
        assert row.relpath == "1.tif"


def test_names_being_made_are_taken_too(make: Make) -> None:
    one, other = make.source("1.tif"), make.source("2.tif")
    names = ["1.zarr.zip", "2.zarr.zip", "3.zarr.zip"]
    with make.ledger() as ledger:
        ledger.record([make.archived(one, archive="1.zarr.zip")])
        ledger.begin([make.job(other, archive="2.zarr.zip")], [".tmp"])
        assert ledger.taken(names) == {"1.zarr.zip": "1.tif", "2.zarr.zip": "2.tif"}
        ledger.record([make.failed(other)])
        assert ledger.taken(names) == {"1.zarr.zip": "1.tif"}


def test_the_summary_counts_bytes_by_state_mode_and_reason(make: Make) -> None:
    exact, plain, text, young, bad, late = sources = [
        make.source(f"{number}.tif", size=10 ** (number + 1)) for number in range(6)
    ]
    with make.ledger() as ledger:
        ledger.unsettled(sources, "report")
        ledger.record_troubles([Trouble(relpath="closed", failure="permanent", message="EACCES")])
        verbatim = make.archived(plain, mode="verbatim", reason="compressed", archive_nbytes=101)
        outcomes = [make.archived(exact), verbatim, make.reported(text), make.changing(young)]
        ledger.record([*outcomes, make.failed(bad, failure="permanent", message="ENOENT")])
        waiting = ledger.waiting()
        ledger.finish("interrupted")
        summary = ledger.summary(report="report.html")
    assert summary.states == {
        "archived": Tally(count=2, source_nbytes=110, archive_nbytes=106),
        "reported": Tally(count=1, source_nbytes=1000),
        "changing": Tally(count=1, source_nbytes=10_000),
        "failed": Tally(count=1, source_nbytes=100_000),
    }
    assert waiting == Tally(count=1, source_nbytes=late.size)
    assert summary.modes["verbatim"] == Tally(count=1, source_nbytes=100, archive_nbytes=101)
    assert summary.modes["byte-exact"].count == 1
    assert summary.reasons == {"compressed": 1}, "why archives are verbatim, not why none was made"
    assert summary.settled == Tally()
    assert [trouble.relpath for trouble in summary.troubles] == ["closed", "4.tif"]
    assert summary.trouble_count == 2
    assert (summary.run, summary.stopped, summary.report) == (1, "interrupted", "report.html")
    assert summary.seconds >= 0
    assert summary.ledger == str(make.path)


def test_the_next_summary_counts_what_was_settled_before(make: Make) -> None:
    old, changed, gone = (make.source(name) for name in ("old.tif", "changed.tif", "gone.tif"))
    new = make.source("changed.tif", size=12)
    with make.ledger() as ledger:
        ledger.unsettled([old, changed, gone], "report")
        ledger.record([make.archived(source) for source in (old, changed, gone)])
        ledger.walked()
    with make.ledger() as ledger:
        assert ledger.unsettled([old, new], "report") == [new]
        assert ledger.vanished().count == 0
        ledger.record([make.archived(new, archive="changed.tif.v2.zarr.zip")])
        ledger.walked()
        summary = ledger.summary()
        assert summary.settled == Tally(count=1, source_nbytes=10, archive_nbytes=5)
        assert summary.states == {
            "archived": Tally(count=2, source_nbytes=22, archive_nbytes=11),
        }
        assert ledger.vanished() == Tally(count=1, source_nbytes=10, archive_nbytes=5)
        assert ledger.standings() == summary.states
        assert ledger.runs()[1].states["archived"].count == 3


def test_a_walk_that_did_not_end_makes_nothing_vanish(make: Make) -> None:
    sources = [make.source("a.tif"), make.source("b.tif")]
    with make.ledger() as ledger:
        ledger.unsettled(sources, "report")
        ledger.walked()
    with make.ledger() as ledger:
        ledger.unsettled(sources[:1], "report")
        ledger.finish("interrupted")
    with Ledger.read(make.path) as records:
        assert records.vanished() == Tally()
        assert records.standings()["waiting"].count == 2
        assert [run.walked for run in records.runs()] == [False, True]


def test_failures_are_counted_by_class_and_listed_whole_while_they_last(make: Make) -> None:
    sources = [make.source(f"{number:04}.tif") for number in range(2003)]
    with make.ledger() as ledger:
        ledger.unsettled(sources, "report")
        ledger.record([make.failed(source, failure="permanent") for source in sources[:3]])
        ledger.record([make.failed(source) for source in sources[3:]])
        ledger.walked()
        causes = ledger.causes()
        assert {cause: tally.count for cause, tally in causes.items()} == {
            "permanent": 3,
            "transient": 2000,
        }
        assert [failure.relpath for failure in ledger.failures()] == [s.relpath for s in sources]
    with make.ledger() as ledger:
        ledger.unsettled(sources[:2], "report")
        ledger.record([make.archived(sources[0])])
        ledger.walked()
        assert [failure.relpath for failure in ledger.failures()] == ["0001.tif"]
        assert ledger.causes() == {"permanent": Tally(count=1, source_nbytes=10)}


def test_the_worst_projections_come_first(make: Make) -> None:
    with make.ledger() as ledger:
        for name, peak_bytes in (("calm", 100), ("over", 1200), ("near", 990)):
            source = make.source(name)
            ledger.begin([make.job(source)], [f".tmp-{name}"])
            ledger.record([make.archived(source, peak_bytes=peak_bytes)])
        names = [attempt.relpath for attempt in ledger.worst_memory(2)]
    assert names == ["over", "near"]


def test_an_outcome_that_does_not_say_enough_is_a_fault_of_ours(make: Make) -> None:
    with make.ledger() as ledger, pytest.raises(Exception, match="CHECK") as fault:
        ledger.record([make.failed(make.source(), failure=None)])
    assert type(fault.value).__name__ == "IntegrityError"
