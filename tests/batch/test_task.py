"""What runs on a worker: a source's failure is data, with a class, a path and a next step."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from decant_batch.archive import layout as layouts
from decant_batch.archive.model import ContainerKind, Recipe
from decant_batch.batch import plan, task
from decant_batch.batch.model import FailureClass, Job, Outcome, Roots, Source, State
from decant_batch.batch.plan import Terms
from decant_batch.errors import (
    ArchiveDamaged,
    DecantError,
    LedgerHeld,
    NameTaken,
    SourceChanged,
    UnknownFormat,
    Unusable,
    UsageError,
)
from tests import tiffs
from tests.recover import recover
from tests.tiffs import TiffSpec

SPEC = TiffSpec(pages=3, shape=(64, 48), pixels="random", gap=17, trailing=30)


def ignore(_nbytes: int) -> None:
    """A report that nobody reads."""


class Share:
    """A source root and a destination, with jobs planned as a run plans them."""

    def __init__(self, folder: Path, source: str = "share", destination: str = "archive") -> None:
        self.source = folder / source
        self.destination = folder / destination
        self.source.mkdir(parents=True, exist_ok=True)
        self.destination.mkdir(parents=True)
        self.roots = Roots(source=str(self.source), destination=str(self.destination))

    def write(self, data: bytes, relpath: str = "a.tif") -> Source:
        path = self.source / relpath
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        seen = path.stat()
        return Source(relpath=relpath, size=len(data), mtime_ns=seen.st_mtime_ns, mode=0o644)

    def plan(self, source: Source, recipe: Recipe | None = None) -> Job:
        (survey,) = task.survey(self.roots, (source,), ignore)
        terms = Terms(
            recipe=recipe or Recipe(),
            others="verbatim",
            allowed=1 << 40,
            reserved=task.resident_bytes(),
        )
        job = plan.job(survey, terms, 1)
        assert isinstance(job, Job), job
        return job

    def job(self, data: bytes | None = None, relpath: str = "a.tif") -> Job:
        return self.plan(self.write(tiffs.build(SPEC) if data is None else data, relpath))

    def perform(self, *jobs: Job) -> list[Outcome]:
        names = [task.temporary_name(job.archive, "1", number) for number, job in enumerate(jobs)]
        return task.perform(self.roots, jobs, names, ignore)


@pytest.fixture
def share(tmp_path: Path) -> Share:
    return Share(tmp_path)


def raising(error: BaseException) -> Callable[..., Outcome]:
    def make(*_args: object) -> Outcome:
        raise error

    return make


def failure_of(
    share: Share, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> tuple[State, FailureClass | None, str]:
    job = share.job()
    monkeypatch.setattr(task, "make", raising(error))
    (outcome,) = share.perform(job)
    assert outcome.source == job.source
    return outcome.state, outcome.failure, outcome.message


# --- what the system says ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "number",
    [
        *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY),
        *(errno.ENOTCONN, errno.ECONNRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH),
    ],
)
@pytest.mark.parametrize("place", ["source", "destination", None])
def test_a_storage_that_stumbles_is_transient(
    share: Share, number: int, place: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = {"source": share.source / "a.tif", "destination": share.destination / "a.zip"}
    name = None if place is None else str(path[place])
    error = OSError(number, os.strerror(number), name)
    state, failure, message = failure_of(share, error, monkeypatch)
    assert (state, failure) == ("failed", "transient")
    assert str(name or share.source / "a.tif") in message
    assert os.strerror(number) in message
    assert "tried again" in message


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("name", [None, "archive/a.tif.zarr.zip"])
def test_a_destination_that_takes_no_more_stops_the_run(
    share: Share, number: int, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails names no file: only what the error is can tell."""
    error = OSError(number, os.strerror(number), name)
    state, failure, message = failure_of(share, error, monkeypatch)
    assert (state, failure) == ("failed", "destination")
    assert str(share.destination) in message
    assert "run again" in message


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_source_that_may_not_be_read_is_permanent(
    share: Share, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = share.source / "a.tif"
    error = OSError(number, os.strerror(number), str(path))
    state, failure, message = failure_of(share, error, monkeypatch)
    assert (state, failure) == ("failed", "permanent")
    assert str(path) in message
    assert "permissions" in message


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("below", ["sub/.decant-1-0.partial", ""])
def test_a_destination_that_may_not_be_written_stops_the_run(
    share: Share, number: int, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = share.destination / below
    error = OSError(number, os.strerror(number), os.fsencode(path) if below else str(path))
    state, failure, message = failure_of(share, error, monkeypatch)
    assert (state, failure) == ("failed", "destination")
    assert str(path) in message
    assert "writable" in message


@pytest.mark.parametrize(
    ("source", "destination", "relpath"),
    [
        ("archive-in", "archive", "a.tif"),
        ("share", "share/archive", "archive-2019/a.tif"),
        ("share", "share/archive", "a.tif"),
    ],
)
def test_one_unreadable_source_whose_path_looks_like_the_destination_stops_nothing(
    tmp_path: Path,
    source: str,
    destination: str,
    relpath: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    share = Share(tmp_path, source, destination)
    job = share.job(relpath=relpath)
    error = PermissionError(errno.EACCES, "Permission denied", str(share.source / relpath))
    monkeypatch.setattr(task, "make", raising(error))
    (outcome,) = share.perform(job)
    assert (outcome.state, outcome.failure) == ("failed", "permanent")


def test_a_name_that_is_too_long_is_permanent(
    share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError(errno.ENAMETOOLONG, "File name too long", str(share.destination / "a.zip"))
    state, failure, message = failure_of(share, error, monkeypatch)
    assert (state, failure) == ("failed", "permanent")
    assert "shorten" in message


def test_a_version_whose_name_is_too_long_names_the_source(share: Share) -> None:
    relpath = "b" * 246
    share.perform(share.job(relpath=relpath))
    (outcome,) = share.perform(share.job(tiffs.build(replace(SPEC, seed=1)), relpath))
    assert (outcome.state, outcome.failure) == ("failed", "permanent")
    assert relpath in outcome.message
    assert "shorten" in outcome.message


# --- what the archive or the source say -------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "state", "failure"),
    [
        (SourceChanged("/s/a.tif: changed while it was read"), "changing", None),
        (NameTaken("/d/a.tif.zarr.zip: exists"), "failed", "permanent"),
        (ArchiveDamaged("/s/a.tif: does not rebuild"), "failed", "permanent"),
        (UnknownFormat("/d/a.tif.zarr.zip: format 2"), "failed", "permanent"),
        (Unusable("/d: full"), "failed", "permanent"),
        (UsageError("odd"), "failed", "permanent"),
        (LedgerHeld("odd"), "failed", "permanent"),
        (DecantError("odd"), "failed", "permanent"),
    ],
)
def test_an_error_of_ours_is_data(
    share: Share,
    error: DecantError,
    state: State,
    failure: FailureClass | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert failure_of(share, error, monkeypatch) == (state, failure, str(error))


def test_memory_that_is_not_there_is_data(share: Share, monkeypatch: pytest.MonkeyPatch) -> None:
    state, failure, message = failure_of(share, MemoryError(), monkeypatch)
    assert (state, failure) == ("failed", "permanent")
    assert str(share.source / "a.tif") in message
    assert "raise `memory`" in message


def test_a_source_that_vanished_is_changing(share: Share) -> None:
    job = share.job()
    (share.source / "a.tif").unlink()
    (outcome,) = share.perform(job)
    assert (outcome.state, outcome.failure) == ("changing", None)
    assert str(share.source / "a.tif") in outcome.message


def test_a_source_whose_folder_vanished_is_changing(share: Share) -> None:
    job = share.job(relpath="sub/a.tif")
    (share.source / "sub/a.tif").unlink()
    (share.source / "sub").rmdir()
    (outcome,) = share.perform(job)
    assert (outcome.state, outcome.failure) == ("changing", None)


def test_a_source_whose_folder_became_a_file_is_changing(share: Share) -> None:
    job = share.job(relpath="sub/a.tif")
    (share.source / "sub/a.tif").unlink()
    (share.source / "sub").rmdir()
    (share.source / "sub").write_bytes(b"no folder any more")
    (outcome,) = share.perform(job)
    assert (outcome.state, outcome.failure) == ("changing", None)


def test_a_destination_that_vanished_is_not_the_source_s_change(share: Share) -> None:
    job = share.job()
    share.destination.rmdir()
    (outcome,) = share.perform(job)
    assert outcome.state == "failed"
    assert str(share.destination) in outcome.message


@pytest.mark.parametrize("put", ["file", "dangling link"])
def test_what_stands_at_the_name_is_not_tried_again(share: Share, put: str) -> None:
    job = share.job()
    if put == "file":
        (share.destination / job.archive).write_bytes(b"someone's own")
    else:
        (share.destination / job.archive).symlink_to("not-there")
    (outcome,) = share.perform(job)
    assert (outcome.state, outcome.failure) == ("failed", "permanent")
    assert "move it away" in outcome.message


def test_a_folder_where_a_file_stands_is_permanent(share: Share) -> None:
    (share.destination / "sub").write_bytes(b"someone's own")
    outcomes = share.perform(share.job(relpath="sub/a.tif"), share.job(relpath="sub/deep/b.tif"))
    assert [(outcome.state, outcome.failure) for outcome in outcomes] == [
        ("failed", "permanent")
    ] * 2
    for outcome in outcomes:
        assert str(share.destination / "sub") in outcome.message


def test_messages_are_one_line(share: Share, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in sorted(errno.errorcode):
        error = OSError(number, os.strerror(number), str(share.source / "a.tif"))
        with monkeypatch.context() as patch:
            _state, _failure, message = failure_of(share, error, patch)
        assert message.count("\n") == 0
        assert "a.tif" in message or str(share.destination) in message


def test_an_error_without_number_or_name_is_data(
    share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, failure, message = failure_of(share, OSError("cannot send"), monkeypatch)
    assert (state, failure) == ("failed", "permanent")
    assert str(share.source / "a.tif") in message
    assert "cannot send" in message


# --- one after the other ----------------------------------------------------------------------


def test_a_bad_source_does_not_keep_the_next_ones_from_being_archived(share: Share) -> None:
    contents = {
        "a.tif": tiffs.build(SPEC),
        "gone.tif": tiffs.build(SPEC),
        "taken.tif": tiffs.build(SPEC),
        "moved.tif": tiffs.build(SPEC),
        "folder.tif": tiffs.build(SPEC),
        "empty.tif": b"",
        "z.tif": tiffs.build(replace(SPEC, seed=2)),
        **{f"odd/{name}": build() for name, build in tiffs.ODD.items()},
    }
    jobs = [share.job(data, relpath) for relpath, data in contents.items()]
    (share.source / "gone.tif").unlink()
    (share.destination / "taken.tif.zarr.zip").write_bytes(b"someone's own")
    (share.source / "moved.tif").write_bytes(b"shorter")
    (share.source / "folder.tif").unlink()
    (share.source / "folder.tif").mkdir()

    outcomes = share.perform(*jobs)

    assert [outcome.source for outcome in outcomes] == [job.source for job in jobs]
    states = {outcome.source.relpath: outcome.state for outcome in outcomes}
    bad = {"gone.tif", "moved.tif", "folder.tif", "taken.tif"}
    assert {relpath for relpath, state in states.items() if state != "archived"} == bad
    assert states["taken.tif"] == "failed"
    for relpath in contents.keys() - bad:
        archive = share.destination / f"{relpath}.zarr.zip"
        assert list(recover(archive).values()) == [contents[relpath]]
    assert (share.destination / "taken.tif.zarr.zip").read_bytes() == b"someone's own"
    assert not list(share.destination.rglob("*.partial"))


def test_what_is_no_one_s_data_passes_through(
    share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours is not a property of the file: whoever runs the tasks sees it as it is."""
    job = share.job()
    monkeypatch.setattr(task, "make", raising(ZeroDivisionError("ours")))
    with pytest.raises(ZeroDivisionError, match="ours"):
        share.perform(job)


def test_jobs_and_names_are_pairs(share: Share) -> None:
    with pytest.raises(ValueError, match="shorter"):
        task.perform(share.roots, [share.job()], [], ignore)


def test_bytes_read_are_reported(share: Share) -> None:
    jobs = [share.job(relpath="a.tif"), share.job(relpath="b.tif")]
    read: list[int] = []
    task.perform(share.roots, jobs, ["a.partial", "b.partial"], read.append)
    assert sum(read) == sum(job.source.size for job in jobs)


# --- what is measured -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["zip", "folder"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "spec",
    [
        TiffSpec(pages=24, shape=(512, 512), pixels="random"),
        TiffSpec(pages=6, shape=(512, 512), pixels="random", order="shuffled", rows_per_strip=64),
        TiffSpec(pages=4, shape=(600, 700), pixels="random", tile_width=128, tile_length=128),
    ],
    ids=["pages", "interleaved", "tiles"],
)
def test_memory_is_measured_and_never_more_than_projected(
    share: Share, kind: ContainerKind, threads: int, spec: TiffSpec
) -> None:
    source = share.write(tiffs.build(spec))
    job = share.plan(source, Recipe(container=kind, threads=threads))
    (outcome,) = share.perform(job)
    assert (outcome.state, outcome.mode) == ("archived", "byte-exact")
    assert outcome.projected_bytes == job.projected_bytes
    if sys.platform == "linux":
        assert 0 < outcome.peak_bytes <= outcome.projected_bytes


def test_a_peak_is_that_of_its_own_job(share: Share) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux lets a process forget its peak")
    hog = bytearray(os.urandom(1 << 20)) * 300
    high = task.resident_bytes()
    del hog
    (outcome,) = share.perform(share.job())
    assert 0 < outcome.peak_bytes < high - (100 << 20)


def test_where_the_peak_cannot_be_forgotten_none_is_told(
    share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "_forget_peak", lambda: False)
    (outcome,) = share.perform(share.job())
    assert (outcome.state, outcome.peak_bytes) == ("archived", 0)


@pytest.mark.parametrize("error", [None, OSError(errno.EIO, "EIO")])
def test_an_outcome_says_where_and_how_long(
    share: Share, error: OSError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = share.job()
    if error is not None:
        monkeypatch.setattr(task, "make", raising(error))
    (outcome,) = share.perform(job)
    assert outcome.worker == f"{socket.gethostname()}:{os.getpid()}"
    assert outcome.seconds > 0
    assert outcome.projected_bytes == job.projected_bytes > 0


# --- temporary names --------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["", "sub/", "a/b \udce9/c/"])
@pytest.mark.parametrize("name", ["a.tif.zarr.zip", "n" * 255, "\udce9" * 255, ".zarr"])
def test_a_temporary_name_is_short_and_hidden_and_beside_the_final_one(
    folder: str, name: str
) -> None:
    temporary = task.temporary_name(folder + name, "123_456", 10**12)
    assert temporary.startswith(folder)
    own = temporary.removeprefix(folder)
    assert "/" not in own
    assert own.startswith(".")
    assert own.endswith(".partial")
    assert len(os.fsencode(own)) < 100
    assert PurePosixPath(temporary).parent == PurePosixPath(folder + name).parent


def test_temporary_names_of_one_ledger_differ() -> None:
    names = {
        task.temporary_name("a.zip", str(run), number) for run in range(30) for number in range(30)
    }
    assert len(names) == 900


# --- survey -----------------------------------------------------------------------------------


def planned_state(share: Share, source: Source) -> tuple[str, FailureClass | None]:
    (survey,) = task.survey(share.roots, (source,), ignore)
    terms = Terms(recipe=Recipe(), others="report", allowed=1 << 40, reserved=0)
    item = plan.job(survey, terms, 1)
    assert isinstance(item, Outcome)
    return item.state, item.failure


def test_a_source_that_vanished_before_its_survey_is_changing(share: Share) -> None:
    source = share.write(tiffs.build(SPEC))
    (share.source / "a.tif").unlink()
    assert planned_state(share, source) == ("changing", None)


def test_a_source_that_became_a_folder_before_its_survey_is_changing(share: Share) -> None:
    source = share.write(tiffs.build(SPEC))
    (share.source / "a.tif").unlink()
    (share.source / "a.tif").mkdir()
    assert planned_state(share, source) == ("changing", None)


@pytest.mark.parametrize(
    ("number", "failure"),
    [(errno.EIO, "transient"), (errno.ESTALE, "transient"), (errno.EACCES, "permanent")],
)
def test_a_source_that_cannot_be_read_is_its_own_trouble(
    share: Share, number: int, failure: FailureClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = share.write(tiffs.build(SPEC), "good.tif"), share.write(b"II*\0", "bad.tif")
    found = layouts.survey

    def survey(path: Path) -> object:
        if path.name == "bad.tif":
            raise OSError(number, os.strerror(number), str(path))
        return found(path)

    monkeypatch.setattr(layouts, "survey", survey)
    surveys = task.survey(share.roots, (bad, good, bad), ignore)
    assert [each.source for each in surveys] == [bad, good, bad]
    assert surveys[1].trouble is None
    assert surveys[1].mode == "byte-exact"
    trouble = surveys[0].trouble
    assert trouble is not None
    assert (trouble.relpath, trouble.failure) == ("bad.tif", failure)
    assert str(share.source / "bad.tif") in trouble.message


@pytest.mark.parametrize("name", sorted(tiffs.ODD))
def test_an_odd_source_is_surveyed_with_its_reason(share: Share, name: str) -> None:
    (survey,) = task.survey(share.roots, (share.write(tiffs.ODD[name]()),), ignore)
    assert survey.trouble is None
    assert (survey.mode == "verbatim") is (survey.reason is not None)


@pytest.mark.parametrize(
    ("relpath", "data", "is_tiff"),
    [
        ("a.tif", tiffs.build(SPEC), True),
        ("a.dat", tiffs.build(SPEC), True),  # by its first bytes
        ("a.TIFF", b"not what its name says", True),  # by its name: never left out for being odd
        ("a.lsm", b"", True),
        ("a.txt", b"text", False),
        ("a.txt", b"", False),
    ],
)
def test_a_tiff_is_one_by_its_bytes_or_by_its_name(
    share: Share, relpath: str, data: bytes, is_tiff: bool
) -> None:
    (survey,) = task.survey(share.roots, (share.write(data, relpath),), ignore)
    assert survey.is_tiff is is_tiff
