"""A share goes in, verified archives come out, and every byte comes back: with real workers.

Starting workers takes a second, so what can be seen of one run is looked at by many tests: the
``story`` of one share over four runs is lived through once.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import sqlite3
import stat
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest
import yaml

from decant_batch.archive import inspect, restore
from decant_batch.batch import plan, run, task
from decant_batch.batch.config import load
from decant_batch.batch.ledger import Ledger
from decant_batch.batch.ledger.rows import ArchiveRow, Attempt, SourceRow
from decant_batch.batch.model import Excluded, Job, Outcome, Source, State, Summary, Tick
from decant_batch.batch.preview import Standing, preview
from decant_batch.errors import LedgerHeld, Unusable, UsageError
from tests import tiffs
from tests.recover import recover
from tests.tiffs import TiffSpec

BASE = TiffSpec(pages=3, shape=(64, 48), gap=17, trailing=30)
NO_UTF8 = os.fsdecode(b"no-utf8-\xe9\xff/\xe9.tif")
BYTE_EXACT = {
    "strips.tif": replace(BASE, rows_per_strip=10),
    "changes.tif": replace(BASE, pixels="random"),
    "plate 07/tiles.tif": replace(BASE, tile_width=16, tile_length=32, edge_padding=True),
    "plate 07/Größe Ü µm.tif": replace(BASE, big=True, byteorder=">", dtype="float32"),
    "plate 07/specials.tif": replace(BASE, dtype="float64", pixels="special"),
    "colour/rgb.tif": replace(BASE, dtype="uint8", samples=3),
    "colour/planar.tif": replace(BASE, samples=3, planar=True, rows_per_strip=9),
    "colour/phase.tif": replace(BASE, dtype="complex64"),
    "odd order/shuffled.tif": replace(BASE, rows_per_strip=7, order="shuffled", lead=40),
    "odd order/ifds-last.tif": replace(BASE, ifds="last", order="reversed"),
    "deep/er/and/deep/er/again/z.ome.tif": replace(BASE, pixels="zero"),
    "names/-rf.tif": BASE,
    "names/100 %41.tif": BASE,
    "names/line\nbreak 'and\" more.tif": BASE,
    "names/back\\slash.tif": BASE,
    "names/con.tif": BASE,
    "names/ends with a space.tif ": BASE,
    NO_UTF8: BASE,
    os.fsdecode(b"no-utf8-\xe9\xff/\xea.tif"): replace(BASE, seed=1, pixels="random"),
    "large.tif": TiffSpec(pages=24, shape=(512, 512), pixels="random"),
}
OTHERS = {
    "notes.txt": tiffs.text(),
    "empty.txt": b"",
    "names/\udcff.dat": b"\xff" * 1000,
    "large.dat": bytes(range(256)) * (5 << 12),  # more than a chunk
}
LONG = "n" * 247 + ".tif"
ONE_WORKER: dict[str, Any] = {"cluster": {"kind": "local", "workers": 1, "memory": "1GiB"}}
TAKEN = b"someone's own"
TAKEN_TOO = os.fsdecode(b"taken-\xff.tif")


def everything() -> dict[str, bytes]:
    """Content by path of a share that has all of it."""
    exact = {relpath: tiffs.build(spec) for relpath, spec in BYTE_EXACT.items()}
    odd = {f"odd/{name}.tif": build() for name, build in tiffs.ODD.items()}
    failing = dict.fromkeys(("taken.tif", TAKEN_TOO, LONG), exact["strips.tif"])
    return exact | odd | OTHERS | {"imagej.tif": tiffs.imagej_hyperstack()} | failing


def mtime_ns(number: int) -> int:
    """A time long ago, of nanoseconds that a float cannot hold; the first is from before 1970."""
    return 1_600_000_000_123_456_789 + number * 1_000_000_007 if number else -987_654_321


@dataclass(frozen=True, kw_only=True)
class Place:
    """A share, a destination and a config between them."""

    folder: Path
    destination: Path

    @property
    def share(self) -> Path:
        return self.folder / "share"

    @property
    def ledger(self) -> Path:
        return self.destination / ".decant-batch" / "ledger.sqlite"

    def write(self, contents: dict[str, bytes]) -> None:
        for number, (relpath, data) in enumerate(contents.items()):
            self.put(relpath, data, mtime_ns(number), 0o640 if number % 2 else 0o444)

    def put(self, relpath: str, data: bytes, time_ns: int, mode: int = 0o644) -> None:
        path = self.share / relpath
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
        os.utime(path, ns=(time_ns, time_ns))

    def config(self, **changes: Any) -> Path:
        values: dict[str, Any] = {
            "source": str(self.share),
            "destination": str(self.destination),
            "others": "verbatim",
            "settle": "0s",
            "archive": {"container": "zip", "threads": 1},
            "cluster": {"kind": "local", "workers": 2, "memory": "1GiB"},
        }
        path = self.folder / "decant.yaml"
        path.write_text(yaml.safe_dump(values | changes), encoding="utf-8")
        return path

    def run(self, watch: Callable[[Tick], None] = lambda _tick: None, **changes: Any) -> Summary:
        return run.execute(load(self.config(**changes)), watch=watch)

    def plan(self) -> list[Job | Standing | Outcome]:
        """What a run would do of each source."""
        items = preview(load(self.config()))
        return [item for item in items if not isinstance(item, Excluded)]

    def rows(self) -> dict[str, SourceRow]:
        """Where each file of the share stands."""
        with Ledger.read(self.ledger) as records:
            found = {relpath: records.source_of(relpath) for relpath in files(self.share)}
        return {relpath: row for relpath, row in found.items() if row is not None}


def files(folder: Path) -> list[str]:
    """Paths of the regular files below a folder."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if stat.S_ISREG(path.lstat().st_mode)
    )


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A file as it stood: it is the very same one if all of this is equal."""

    inode: int
    mtime_ns: int
    content: bytes


def kept(destination: Path) -> dict[str, Kept]:
    """What stands in a destination, without the ledger's folder."""
    found: dict[str, Kept] = {}
    for relpath in files(destination):
        seen = (destination / relpath).stat()
        if not relpath.startswith(".decant-batch/"):
            content = (destination / relpath).read_bytes()
            found[relpath] = Kept(inode=seen.st_ino, mtime_ns=seen.st_mtime_ns, content=content)
    return found


def small_place(folder: Path, destination: str = "archive") -> Place:
    """A share with one TIFF."""
    made = place(folder, destination)
    made.write({"a.tif": tiffs.build(BASE)})
    return made


def place(folder: Path, destination: str = "archive") -> Place:
    made = Place(folder=folder, destination=folder / destination)
    made.share.mkdir()
    return made


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """What was seen after a run."""

    summary: Summary
    ticks: list[Tick]
    kept: dict[str, Kept]
    rows: dict[str, SourceRow]


@dataclass(frozen=True, kw_only=True)
class Story:
    """Four runs over one share: all new, nothing new, one source changed, the ledger lost."""

    place: Place
    contents: dict[str, bytes]
    changed: bytes
    first: Chapter
    second: Chapter
    third: Chapter
    fourth: Chapter
    attempts: tuple[Attempt, ...]
    archives: dict[str, ArchiveRow | None]
    after_second: list[Attempt]


def chapter(where: Place) -> Chapter:
    ticks: list[Tick] = []
    summary = where.run(ticks.append)
    return Chapter(summary=summary, ticks=ticks, kept=kept(where.destination), rows=where.rows())


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    where = place(tmp_path_factory.mktemp("story"))
    contents = everything()
    where.write(contents)
    where.destination.mkdir()
    for relpath in ("taken.tif", TAKEN_TOO):
        (where.destination / f"{relpath}.zarr.zip").write_bytes(TAKEN)

    first = chapter(where)
    with Ledger.read(where.ledger) as records:
        attempts = records.worst_memory(10_000)
        archives = {relpath: records.archive_of(f"{relpath}.zarr.zip") for relpath in contents}

    # Had the second run a look at any of these, it would find garbage.
    for number, relpath in enumerate(contents):
        if first.rows[relpath].state == "archived":
            where.put(relpath, os.urandom(len(contents[relpath])), mtime_ns(number))
    second = chapter(where)
    with Ledger.read(where.ledger) as records:
        after_second = [
            attempt
            for relpath in contents
            for attempt in records.attempts(relpath)
            if attempt.run == second.summary.run
        ]
    where.write(contents)

    changed = tiffs.build(replace(BASE, pages=5, pixels="random", seed=7))
    where.put("changes.tif", changed, mtime_ns(10_000))
    third = chapter(where)

    where.ledger.unlink()
    fourth = chapter(where)
    return Story(
        place=where,
        contents=contents,
        changed=changed,
        first=first,
        second=second,
        third=third,
        fourth=fourth,
        attempts=attempts,
        archives=archives,
        after_second=after_second,
    )


FAILED = {"taken.tif", TAKEN_TOO, LONG}


# --- the first run ----------------------------------------------------------------------------


def test_every_source_is_in_exactly_one_state(story: Story) -> None:
    summary, rows = story.first.summary, story.first.rows
    assert set(rows) == set(story.contents) == set(files(story.place.share))
    assert {relpath for relpath, row in rows.items() if row.state == "failed"} == FAILED
    assert {row.state for relpath, row in rows.items() if relpath not in FAILED} == {"archived"}
    for state in get_args(State):
        tally = summary.states.get(state)
        mine = [relpath for relpath, row in rows.items() if row.state == state]
        assert (tally.count if tally else 0) == len(mine)
        nbytes = sum(len(story.contents[relpath]) for relpath in mine)
        assert (tally.source_nbytes if tally else 0) == nbytes
    assert (summary.waiting.count, summary.stopped) == (0, None)


def test_the_boxes_sum_to_what_is_on_the_share(story: Story) -> None:
    tallies = story.first.summary.states.values()
    assert sum(tally.count for tally in tallies) == len(story.contents)
    assert sum(tally.source_nbytes for tally in tallies) == sum(map(len, story.contents.values()))
    modes = story.first.summary.modes.values()
    archived = story.first.summary.states["archived"]
    assert sum(tally.count for tally in modes) == archived.count
    assert sum(tally.archive_nbytes for tally in modes) == archived.archive_nbytes
    on_disk = sum(
        len(seen.content) for name, seen in story.first.kept.items() if "taken" not in name
    )
    assert archived.archive_nbytes == on_disk


def test_what_could_not_be_archived_says_what_to_do(story: Story) -> None:
    summary = story.first.summary
    assert summary.trouble_count == len(FAILED)
    messages = {trouble.relpath: trouble for trouble in summary.troubles}
    assert set(messages) == FAILED
    assert {trouble.failure for trouble in messages.values()} == {"permanent"}
    for relpath in ("taken.tif", TAKEN_TOO):
        assert f"{relpath}.zarr.zip" in messages[relpath].message
        assert "move it away" in messages[relpath].message
    assert "shorten" in messages[LONG].message


@pytest.mark.parametrize("relpath", [*BYTE_EXACT, "imagej.tif"])
def test_what_can_be_byte_exact_is(story: Story, relpath: str) -> None:
    found = inspect(story.place.destination / f"{relpath}.zarr.zip")
    assert (found.mode, found.relpath, found.reason) == ("byte-exact", relpath, None)
    row = story.archives[relpath]
    assert row is not None
    assert (row.mode, row.sha256, row.adopted) == ("byte-exact", found.sha256, False)
    assert (row.relpath, row.size) == (relpath, len(story.contents[relpath]))


@pytest.mark.parametrize("relpath", [f"odd/{name}.tif" for name in tiffs.ODD] + list(OTHERS))
def test_what_is_odd_has_its_reason_in_ledger_and_archive(story: Story, relpath: str) -> None:
    found = inspect(story.place.destination / f"{relpath}.zarr.zip")
    row = story.archives[relpath]
    assert row is not None
    assert (row.mode, row.reason) == (found.mode, found.reason)
    assert (found.mode == "verbatim") is (found.reason is not None)


def test_every_archive_gives_its_source_back(story: Story, tmp_path: Path) -> None:
    back = tmp_path / "back"
    for number, (relpath, data) in enumerate(story.contents.items()):
        if relpath in FAILED:
            continue
        archive = story.place.destination / f"{relpath}.zarr.zip"
        assert restore(archive, back) == [back / relpath]
        assert (back / relpath).read_bytes() == data
        seen = (back / relpath).stat()
        assert seen.st_mtime_ns == mtime_ns(number)
        assert stat.S_IMODE(seen.st_mode) == (0o640 if number % 2 else 0o444)
        assert list(recover(archive).values()) == [data]
    assert files(back) == sorted(set(story.contents) - FAILED)


def test_nothing_but_archives_and_the_ledger_s_folder_is_in_the_destination(story: Story) -> None:
    expected = {f"{relpath}.zarr.zip" for relpath in story.contents if relpath != LONG}
    for seen in (story.first, story.second):
        assert set(seen.kept) == expected
    folders = {str(path.parent) for path in map(Path, story.contents)} - {"."}
    wanted = {str(above) for each in folders for above in (Path(each), *Path(each).parents)} - {"."}
    found = {
        str(path.relative_to(story.place.destination))
        for path in story.place.destination.rglob("*")
        if path.is_dir()
    }
    assert found == wanted | {".decant-batch"}
    ours = set(os.listdir(story.place.destination / ".decant-batch"))
    assert {name for name in ours if not name.startswith("ledger-report-")} == {"ledger.sqlite"}


def test_what_stood_at_a_name_is_untouched(story: Story) -> None:
    for seen in (story.first, story.second, story.third, story.fourth):
        for name in ("taken.tif.zarr.zip", f"{TAKEN_TOO}.zarr.zip"):
            assert seen.kept[name].content == TAKEN
            assert seen.kept[name] == story.first.kept[name]


def test_memory_stayed_below_what_was_projected(story: Story) -> None:
    assert len(story.attempts) >= len(story.contents) - len(FAILED)
    for attempt in story.attempts:
        assert 0 < attempt.peak_bytes <= attempt.projected_bytes < 1 << 30, attempt.relpath


def test_ticks_end_where_the_run_ends(story: Story) -> None:
    first, last = story.first.ticks[0], story.first.ticks[-1]
    assert not first.walk_ended or not story.contents
    assert last.walk_ended
    assert (last.found_count, last.done_count) == (len(story.contents),) * 2
    assert (last.settled_count, last.failed_count) == (0, len(FAILED))
    assert last.found_nbytes == last.done_nbytes == sum(map(len, story.contents.values()))


# --- nothing new ------------------------------------------------------------------------------


def test_a_second_run_opens_nothing_that_is_settled(story: Story) -> None:
    """Its sources hold garbage of the same size and time, and it did not notice."""
    first, second = story.first.summary, story.second.summary
    assert second.run == first.run + 1
    assert second.states == first.states
    assert second.settled.count == len(story.contents) - len(FAILED)
    assert second.settled == first.states["archived"]
    assert {attempt.relpath for attempt in story.after_second} <= FAILED
    assert story.second.kept == story.first.kept
    archived = {relpath: row for relpath, row in story.second.rows.items() if relpath not in FAILED}
    assert {row.run for row in archived.values()} == {first.run}
    last = story.second.ticks[-1]
    assert (last.settled_count, last.done_count) == (second.settled.count, len(FAILED))


# --- one changed ------------------------------------------------------------------------------


def test_a_changed_source_gives_a_second_archive(story: Story) -> None:
    third = story.third.kept
    assert set(third) - set(story.second.kept) == {"changes.tif.v2.zarr.zip"}
    assert {name: third[name] for name in story.first.kept} == story.first.kept
    archive = story.place.destination / "changes.tif.v2.zarr.zip"
    assert list(recover(archive).values()) == [story.changed]
    old = story.place.destination / "changes.tif.zarr.zip"
    assert list(recover(old).values()) == [story.contents["changes.tif"]]
    assert story.third.rows["changes.tif"].archive == "changes.tif.v2.zarr.zip"
    assert story.third.summary.settled.count == len(story.contents) - len(FAILED) - 1
    assert story.third.summary.states["archived"].count == len(story.contents) - len(FAILED)


# --- the ledger lost --------------------------------------------------------------------------


def contents_of(where: Place) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in where.destination.glob("*.zip")}


def test_an_archive_that_is_gone_is_made_again_and_a_cut_one_is_told(tmp_path: Path) -> None:
    where = small_place(tmp_path)
    where.write({f"{name}.tif": tiffs.build(replace(BASE, pixels="random")) for name in "abc"})
    where.run(**ONE_WORKER)
    before = contents_of(where)
    (where.destination / "a.tif.zarr.zip").unlink()
    cut = where.destination / "b.tif.zarr.zip"
    cut.write_bytes(cut.read_bytes()[:-100])

    assert {type(item) for item in where.plan() if item.source.relpath == "a.tif"} == {Job}
    summary = where.run(**ONE_WORKER)

    assert contents_of(where) == before | {cut.name: cut.read_bytes()}
    (trouble,) = summary.troubles
    assert trouble.relpath == "b.tif"
    assert "a damaged archive, stands at the archive's name; move it away" in trouble.message
    cut.unlink()
    assert where.run(**ONE_WORKER).trouble_count == 0
    assert contents_of(where) == before


def test_a_touched_source_keeps_its_archive(tmp_path: Path) -> None:
    where = small_place(tmp_path)
    where.run(**ONE_WORKER)
    before = kept(where.destination)
    (source,) = where.share.iterdir()
    os.utime(source, ns=(1, 1))
    (item,) = where.plan()
    assert isinstance(item, Standing)
    summary = where.run(**ONE_WORKER)
    assert (summary.adopted.count, summary.states["archived"].count) == (1, 1)
    assert kept(where.destination) == before
    assert where.run(**ONE_WORKER).settled.count == 1


def test_a_plan_sees_a_file_where_a_folder_must_go(tmp_path: Path) -> None:
    where = small_place(tmp_path)
    where.write({"sub/a.tif": tiffs.build(BASE)})
    where.destination.mkdir()
    (where.destination / "sub").write_bytes(TAKEN)
    (planned,) = [item for item in where.plan() if item.source.relpath == "sub/a.tif"]
    assert isinstance(planned, Outcome)
    (trouble,) = where.run(**ONE_WORKER).troubles
    assert planned.message == trouble.message
    assert f"{where.destination / 'sub'}: no folder" in trouble.message


def test_without_its_ledger_a_run_adopts_what_stands(story: Story) -> None:
    assert story.fourth.summary.run == 1
    assert story.fourth.kept == story.third.kept
    assert story.fourth.summary.states == story.third.summary.states
    assert story.fourth.summary.modes == story.third.summary.modes
    assert story.fourth.summary.reasons == story.third.summary.reasons
    with Ledger.read(story.place.ledger) as records:
        for relpath, row in story.fourth.rows.items():
            if relpath in FAILED:
                continue
            assert row.archive is not None
            archive = records.archive_of(row.archive)
            assert archive is not None
            assert archive.adopted
    assert story.fourth.rows["changes.tif"].archive == "changes.tif.v2.zarr.zip"


# --- the same bytes, however they are made ----------------------------------------------------


def test_archives_are_the_same_whatever_workers_and_threads(story: Story, tmp_path: Path) -> None:
    """The story's were made by two workers of one thread."""
    where = place(tmp_path)
    where.write(story.contents)
    where.run(archive={"container": "zip", "threads": 3}, **ONE_WORKER)
    here = kept(where.destination)
    for relpath in set(story.contents) - FAILED:
        name = f"{relpath}.zarr.zip"
        assert here[name].content == story.first.kept[name].content, relpath


# --- folders, a destination in the source, others reported, young files -----------------------

INSIDE = ("strips.tif", "plate 07/Größe Ü µm.tif", NO_UTF8)


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, Summary, Summary]:
    """A destination within the share, filled twice; folders; others are only reported."""
    where = place(tmp_path_factory.mktemp("inside"), destination="share/the archive")
    contents = {relpath: tiffs.build(BYTE_EXACT[relpath]) for relpath in INSIDE}
    where.write(contents | OTHERS | {".hidden.tif": b"II*\0", "Thumbs.db": b"litter"})
    (where.share / "young.tif").write_bytes(tiffs.build(BASE))
    (where.share / "link.tif").symlink_to("strips.tif")
    (where.share / "loop").symlink_to(".")
    os.mkfifo(where.share / "pipe.tif")
    options: dict[str, Any] = {
        "others": "report",
        "settle": "1d",
        "archive": {"container": "folder", "threads": 2},
    }
    first = where.run(**options)
    return where, first, where.run(**options)


def test_folders_are_archives_too(inside: tuple[Place, Summary, Summary], tmp_path: Path) -> None:
    where, _, _ = inside
    for relpath in INSIDE:
        data = (where.share / relpath).read_bytes()
        archive = where.destination / f"{relpath}.zarr"
        assert list(recover(archive).values()) == [data]
        (restored,) = restore(archive, tmp_path)
        assert restored.read_bytes() == data


def test_a_destination_in_the_source_is_not_walked(
    inside: tuple[Place, Summary, Summary],
) -> None:
    where, first, second = inside
    for summary in (first, second):
        assert sum(tally.count for tally in summary.states.values()) == len(INSIDE) + 4 + 1
    assert [path for path in where.rows() if path.startswith("the archive")] == []
    assert not (where.destination / "the archive").exists()


def test_others_are_reported_and_not_packed(inside: tuple[Place, Summary, Summary]) -> None:
    where, first, second = inside
    rows = where.rows()
    assert {relpath for relpath, row in rows.items() if row.state == "reported"} == set(OTHERS)
    assert rows["notes.txt"].reason == "not-a-tiff"
    for summary in (first, second):
        assert summary.states["reported"].count == len(OTHERS)
        assert summary.states["reported"].source_nbytes == sum(map(len, OTHERS.values()))
        assert summary.trouble_count == 0
    names = {path.name for path in where.destination.rglob("*")}
    assert not [name for name in names if "notes" in name or name.startswith("large")]


def test_a_young_file_is_left_for_the_next_run(inside: tuple[Place, Summary, Summary]) -> None:
    where, first, second = inside
    assert first.states["changing"].count == second.states["changing"].count == 1
    assert where.rows()["young.tif"].state == "changing"
    assert not (where.destination / "young.tif.zarr").exists()


def test_links_pipes_hidden_files_and_litter_are_left_out(
    inside: tuple[Place, Summary, Summary],
) -> None:
    where, first, _ = inside
    left_out = {"link.tif", "loop", "pipe.tif", ".hidden.tif", "Thumbs.db"}
    assert not left_out & set(where.rows())
    found = {why: tally.count for why, tally in first.left_out.items()}
    found.pop("own-folder", 0)  # it may not be there yet when the walk looks
    assert found == {"symlink": 2, "special": 1, "hidden": 1, "litter": 1}
    assert not [path for path in where.destination.rglob("*") if path.name.startswith("link")]


# --- what cannot be begun ---------------------------------------------------------------------


def test_a_missing_root_is_told_before_anything_is_made(tmp_path: Path) -> None:
    where = place(tmp_path)
    where.share.rmdir()
    with pytest.raises(UsageError) as refusal:
        where.run()
    assert str(where.share) in str(refusal.value)
    assert "mount" in str(refusal.value)
    assert not where.destination.exists()


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    where = place(tmp_path)
    where.share.rmdir()
    where.share.write_bytes(b"")
    with pytest.raises(UsageError, match="not a folder"):
        where.run()


def test_an_empty_root_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    """An empty folder is what a mount point looks like when nothing is mounted."""
    where = place(tmp_path)
    said = ""
    try:
        summary = where.run(**ONE_WORKER)
    except UsageError as error:
        said = str(error)
    else:
        said = " ".join([summary.stopped or "", *(each.message for each in summary.troubles)])
    assert str(where.share) in said


@pytest.mark.parametrize("below", ["", "/sub", "/sub/deeper"])
def test_a_destination_that_cannot_be_a_folder_is_refused(tmp_path: Path, below: str) -> None:
    where = small_place(tmp_path, destination=f"archive{below}")
    (tmp_path / "archive").write_bytes(TAKEN)
    for act in (where.run, where.plan):
        with pytest.raises(UsageError) as refusal:
            act()
        assert f"{tmp_path / 'archive'}: is no folder" in str(refusal.value)
    assert (tmp_path / "archive").read_bytes() == TAKEN


def test_a_destination_that_cannot_be_written_is_unusable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = small_place(tmp_path)

    def refuse(**_options: object) -> object:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(Unusable, match="Read-only file system") as refusal:
        where.run()
    assert str(where.destination) in str(refusal.value)


@pytest.mark.parametrize("content", [b"not a database", b"SQLite format 3\0" + bytes(200)])
def test_a_ledger_that_is_none_is_left_alone(tmp_path: Path, content: bytes) -> None:
    where = small_place(tmp_path)
    where.ledger.parent.mkdir(parents=True)
    where.ledger.write_bytes(content)
    with pytest.raises(Unusable) as refusal:
        where.run()
    assert str(where.ledger) in str(refusal.value)
    assert where.ledger.read_bytes() == content


def test_a_ledger_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    where = small_place(tmp_path)
    Ledger.open(
        where.ledger, source=str(where.share), destination=str(where.destination), config="{}"
    ).__exit__(None, None, None)
    with closing(sqlite3.connect(where.ledger)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = where.ledger.read_bytes()
    with pytest.raises(Unusable) as refusal:
        where.run()
    assert str(where.ledger) in str(refusal.value)
    assert where.ledger.read_bytes() == before


@pytest.mark.parametrize("changes", [{"source": "other"}, {"destination": "elsewhere"}])
def test_two_configs_on_one_ledger_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    where = small_place(tmp_path)
    shutil.copytree(where.share, tmp_path / "other")
    Ledger.open(
        where.ledger, source=str(where.share), destination=str(where.destination), config="{}"
    ).__exit__(None, None, None)
    with pytest.raises(UsageError, match="two configs on one ledger") as refusal:
        where.run(ledger=str(where.ledger), **changes)
    assert str(where.ledger) in str(refusal.value)


def test_a_ledger_that_is_held_is_refused(tmp_path: Path) -> None:
    where = small_place(tmp_path)
    with (
        Ledger.open(
            where.ledger, source=str(where.share), destination=str(where.destination), config="{}"
        ),
        pytest.raises(LedgerHeld, match=str(os.getpid())),
    ):
        where.run()
    assert kept(where.destination) == {}


def test_a_worker_too_small_for_itself_is_refused(tmp_path: Path) -> None:
    where = small_place(tmp_path)
    with pytest.raises(UsageError, match=r"cluster\.memory"):
        where.run(cluster=ONE_WORKER["cluster"] | {"memory": "64MiB"})
    assert not where.ledger.exists()


def test_a_run_needs_no_port_of_its_own(tmp_path: Path) -> None:
    """Of two runs on one machine both work: dask's usual port is taken here."""
    where = small_place(tmp_path)
    with closing(socket.socket()) as taken:
        with suppress(OSError):  # or it is taken already, which is as good
            taken.bind(("", 8787))
            taken.listen()
        assert where.run(**ONE_WORKER).states["archived"].count == 1


# --- what ends before its end -----------------------------------------------------------------


def test_an_interrupted_run_keeps_what_it_has_and_the_next_goes_on(tmp_path: Path) -> None:
    where = place(tmp_path)
    contents = {
        f"{number:02}.tif": tiffs.build(replace(BASE, seed=number, pixels="random"))
        for number in range(20)
    } | {"large.tif": tiffs.build(BYTE_EXACT["large.tif"])}
    where.write(contents)

    def interrupt(tick: Tick) -> None:
        if tick.done_count:
            raise KeyboardInterrupt

    stopped = where.run(interrupt)
    assert stopped.stopped == "interrupted"
    assert stopped.states["archived"].count >= 1
    assert not list(where.destination.rglob("*.partial"))
    before = kept(where.destination)
    with Ledger.read(where.ledger) as records:
        (past,) = records.runs()
        assert past.stopped == "interrupted"
        assert past.ended_ns is not None
        assert records.holder() is None

    summary = where.run()
    assert summary.states["archived"].count == len(contents)
    after = kept(where.destination)
    assert {name: after[name] for name in before} == before
    for relpath, data in contents.items():
        assert list(recover(where.destination / f"{relpath}.zarr.zip").values()) == [data]


def test_what_a_dead_run_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    where = place(tmp_path)
    where.write({"sub/a.tif": tiffs.build(BASE)})
    (where.destination / "sub").mkdir(parents=True)
    theirs = where.destination / "sub/.decant-of-someone-else.partial"
    theirs.write_bytes(b"not in the ledger")
    _die_with(where, "sub/.decant-1-7.partial")
    ours = where.destination / "sub/.decant-1-7.partial"
    shutil.copytree(where.folder / "share", ours)  # a folder archive, half written
    summary = where.run()
    assert summary.states["archived"].count == 1
    assert not ours.exists()
    assert theirs.read_bytes() == b"not in the ledger"
    theirs.unlink()


def _die_with(where: Place, temporary: str) -> None:
    """A run that ended in the middle of an attempt."""
    with Ledger.open(
        where.ledger, source=str(where.share), destination=str(where.destination), config="{}"
    ) as ledger:
        job = _job(where)
        ledger.unsettled([job.source], "verbatim")
        ledger.begin([job], [temporary])
        ledger.finish("died")


def _job(where: Place) -> Job:
    """The job for the first source, as a run would plan it."""
    config = load(where.config())
    (found, *_rest) = [each for each in run.walk(config) if isinstance(each, Source)]
    (survey,) = task.survey(run.roots_of(config), (found,), lambda _nbytes: None)
    job = plan.job(survey, run.terms_of(config, 0), 1)
    assert isinstance(job, Job)
    return job


def test_a_leftover_that_cannot_be_removed_does_not_end_the_run(tmp_path: Path) -> None:
    where = small_place(tmp_path)
    where.destination.mkdir()
    _die_with(where, "sub/.decant-1-7.partial")
    (where.destination / "sub").write_bytes(b"a file where a folder was")
    summary = where.run()
    assert summary.states["archived"].count == 1


def test_a_leftover_that_may_not_be_removed_waits_for_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A destination that became read-only keeps what failed there; the run has to end in order."""
    where = small_place(tmp_path)
    where.destination.mkdir()
    _die_with(where, ".decant-1-7.partial")
    leftover = where.destination / ".decant-1-7.partial"
    leftover.write_bytes(b"half")
    unlink = os.unlink

    def refuse(path: Any, **options: Any) -> None:
        if os.fspath(path) == str(leftover):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        unlink(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        assert where.run(**ONE_WORKER).states["archived"].count == 1
    assert leftover.exists()
    assert where.run(**ONE_WORKER).states["archived"].count == 1
    assert not leftover.exists()


def test_a_run_leaves_no_worker_behind(tmp_path: Path) -> None:
    where = small_place(tmp_path)
    seen: set[int] = set()

    def watch(_tick: Tick) -> None:
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if "resource_tracker" not in " ".join(child.cmdline()):
                    seen.add(child.pid)

    summary = where.run(watch)
    assert summary.states["archived"].count == 1
    assert seen
    with Ledger.read(where.ledger) as records:
        (attempt,) = records.attempts("a.tif")
    pid = int(attempt.worker.rpartition(":")[2])
    assert pid in seen
    assert not psutil.pid_exists(pid)
