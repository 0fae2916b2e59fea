"""Series from end to end: rules in the config, archives at the destination, rows in the ledger."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from decant_batch.archive import inspect, restore
from decant_batch.batch import run, steps
from decant_batch.batch.config import load
from decant_batch.batch.ledger import Ledger, Records
from decant_batch.batch.model import Outcome, Summary
from decant_batch.ui.proof import proof_of
from tests.recover import recover

RULE = r"""
series:
  - match: '(?P<name>.+)_t(?P<t>\d+)_z(?P<z>\d+)\.tif'
    archive: '{name}'
"""


class Share:
    """A share with a config of one worker."""

    def __init__(self, folder: Path) -> None:
        self.source, self.destination = folder / "share", folder / "archives"
        self.source.mkdir()
        self.config = folder / "c.yaml"
        self.write(RULE)

    def write(self, more: str) -> None:
        head = f"source: {self.source}\ndestination: {self.destination}\nsettle: 0s\n"
        self.config.write_text(
            f"{head}cluster: {{workers: 1, memory: 1GiB}}\narchive: {{threads: 1}}\n{more}"
        )

    def add(self, relpath: str, seed: int = 0, **kwargs: Any) -> Path:
        path = self.source / relpath
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = kwargs.pop("shape", (16, 24))
        pixels = np.random.default_rng(seed).integers(0, 4000, shape, np.uint16)
        tifffile.imwrite(path, pixels, photometric="minisblack", **kwargs)
        return path

    def grid(self, name: str, times: int = 3, slices: int = 2) -> None:
        for t in range(times):
            for z in range(slices):
                self.add(f"{name}_t{t:03}_z{z}.tif", seed=10 * t + z)

    def run(self) -> Summary:
        return run.execute(load(self.config), watch=lambda _tick: None)

    def archives(self) -> list[str]:
        found = self.destination.rglob("*.zarr*")
        inner = {path for path in found if path.parent.suffix == ".zarr"}
        return sorted(
            path.relative_to(self.destination).as_posix()
            for path in self.destination.rglob("*.zarr*")
            if path not in inner and path.parent.suffix != ".staged"
        )

    def check(self, *archives: str) -> None:
        """Each source comes back from one of the archives, by our reader and by the other one."""
        assert self.archives() == sorted(archives)
        expected = {
            path.relative_to(self.source).as_posix(): path.read_bytes()
            for path in self.source.rglob("*")
            if path.is_file()
        }
        found: dict[str, bytes] = {}
        for name in archives:
            archive, back = self.destination / name, self.destination.parent / "back" / name
            for path in restore(archive, back):
                relpath = path.relative_to(back).as_posix()
                assert relpath not in found
                found[relpath] = path.read_bytes()
            if inspect(archive).mode == "series":
                assert recover(archive) == {
                    relpath: expected[relpath] for relpath in inspect(archive).members
                }
        assert found == expected

    def ledger(self) -> Records:
        return Ledger.read(self.destination / ".decant-batch" / "ledger.sqlite")


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Share]:
    yield Share(tmp_path)
    assert not [path for path in tmp_path.rglob("*.staged") if path.is_dir()]


def test_a_full_grid_is_consolidated(share: Share) -> None:
    share.grid("day 1/a")
    share.grid("b", times=1)
    share.add("single.tif")
    summary = share.run()
    share.check("day 1/a.zarr.zip", "b.zarr.zip", "single.tif.zarr.zip")
    found = inspect(share.destination / "day 1/a.zarr.zip")
    assert (found.shape, found.axes) == ((3, 2, 16, 24), ("t", "z", "y", "x"))
    assert summary.states["archived"].count == 9
    assert summary.modes["series"].count == 8
    sizes = sum((share.destination / name).stat().st_size for name in share.archives())
    assert summary.states["archived"].archive_nbytes == sizes
    again = share.run()
    assert again.settled.count == 9
    with share.ledger() as ledger:
        row = ledger.source_of("day 1/a_t001_z1.tif")
        assert row is not None
        assert (row.state, row.archive) == ("archived", "day 1/a.zarr.zip")
        assert len(ledger.attempts("day 1/a_t000_z0.tif")) == 1


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("gap", "nothing between 1 and 3"),
        ("hole", "6 places, 5 members"),
        ("compressed", "a_t001_z1.tif is compressed"),
        ("empty", "a_t001_z1.tif is empty-file"),
        ("shape", "1 pages of 8 x 8 uint16, others 1 pages of 16 x 24"),
        ("twice", "one place on axis t"),
        ("pages", "2 pages of 16 x 24"),
    ],
)
def test_what_does_not_fill_a_grid_is_nested(share: Share, what: str, reason: str) -> None:
    share.grid("a", times=4 if what == "gap" else 3)
    odd = share.source / "a_t001_z1.tif"
    if what == "gap":
        for z in range(2):
            (share.source / f"a_t002_z{z}.tif").unlink()
    elif what == "hole":
        odd.unlink()
    elif what == "compressed":
        share.add(odd.name, compression="zlib")
    elif what == "empty":
        odd.write_bytes(b"")
    elif what == "shape":
        share.add(odd.name, shape=(8, 8))
    elif what == "pages":
        share.add(odd.name, shape=(2, 16, 24))
    elif what == "twice":
        share.add("a_t1_z1.tif")
    share.run()
    share.check("a.zarr")
    found = inspect(share.destination / "a.zarr")
    assert not found.shape
    with share.ledger() as ledger:
        row = ledger.archive_of("a.zarr")
        assert row is not None
        assert reason in row.detail
    before = share.destination.stat().st_mtime_ns
    assert share.run().settled.count == len(found.members)
    assert share.destination.stat().st_mtime_ns == before


def test_a_series_is_called_by_its_name_and_its_bytes_depend_on_nothing_else(share: Share) -> None:
    share.grid("day 1/a")
    share.run()
    archive = share.destination / "day 1/a.zarr.zip"
    assert inspect(archive).original_name == "a"
    attributes = json.loads(zipfile.ZipFile(archive).read(".zattrs"))
    assert attributes["multiscales"][0]["name"] == "a"
    before = archive.read_bytes()
    shutil.rmtree(share.destination)
    share.run()
    assert archive.read_bytes() == before


def test_the_ledger_vouches_for_series_and_not_for_what_was_written_later(share: Share) -> None:
    share.grid("a")
    share.grid("b")
    (share.source / "b_t001_z1.tif").write_bytes(b"")
    share.run()
    for name in ("a.zarr.zip", "b.zarr"):
        archive = share.destination / name
        proof = proof_of(archive, inspect(archive).sha256)
        assert (proof.problem, proof.at_ns is None) == (None, False)
    with archive.parent.joinpath("a.zarr.zip").open("ab") as file:
        file.write(b"x")
    assert "written to since" in str(proof_of(share.destination / "a.zarr.zip", "").problem)


def test_same_names_under_two_folders_are_two_series(share: Share) -> None:
    share.grid("one/a")
    share.grid("two/a")
    share.run()
    share.check("one/a.zarr.zip", "two/a.zarr.zip")


def test_axes_across_folders(share: Share) -> None:
    share.write(
        r"series: [{match: '(?P<p>.+)/TimePoint_(?P<t>\d+)/(?P<w>\w+)_(?P<c>\w+)\.tif',"
        r" archive: '{p}/{w}'}]"
    )
    for t in (1, 2, 3):
        for c in ("DAPI", "FITC"):
            share.add(f"plate/TimePoint_{t}/C07_{c}.tif", seed=t)
    share.run()
    share.check("plate/C07.zarr.zip")
    archive = share.destination / "plate/C07.zarr.zip"
    assert inspect(archive).axes == ("t", "c", "y", "x")
    assert list(inspect(archive).members)[:2] == [
        "plate/TimePoint_1/C07_DAPI.tif",
        "plate/TimePoint_1/C07_FITC.tif",
    ]


def test_consolidated_that_cannot_be_had_is_refused_and_says_why(share: Share) -> None:
    share.write(RULE + "    layout: consolidated\n")
    share.grid("a")
    share.add("a_t001_z1.tif", compression="zlib")
    summary = share.run()
    assert share.archives() == []
    assert summary.states["failed"].count == 6
    assert "cannot be consolidated: a_t001_z1.tif is compressed" in summary.troubles[0].message
    share.write(RULE + "    layout: nested\n")
    assert share.run().states["archived"].count == 6
    share.check("a.zarr")


def test_two_series_with_one_archive_are_refused(share: Share) -> None:
    share.write(RULE.replace("(?P<name>.+)_t", r"(?P<name>.+)_(?P<w>\w)_t"))
    share.grid("a_x")
    share.grid("a_y")
    summary = share.run()
    assert summary.states["failed"].count == 12
    assert "name all identity groups" in summary.troubles[0].message


def test_a_member_that_is_still_written_holds_the_series_back(share: Share) -> None:
    share.config.write_text(share.config.read_text().replace("settle: 0s", "settle: 1h"))
    share.grid("a")
    for path in share.source.iterdir():
        os.utime(path, (1e9, 1e9))
    os.utime(share.source / "a_t001_z1.tif")
    assert share.run().states["changing"].count == 6
    assert share.archives() == []
    os.utime(share.source / "a_t001_z1.tif", (1e9, 1e9))
    assert share.run().states["archived"].count == 6
    share.check("a.zarr.zip")


def test_a_new_member_gives_a_further_version(share: Share) -> None:
    share.grid("a", times=2)
    share.run()
    share.grid("a", times=3)
    share.run()
    assert share.archives() == ["a.v2.zarr.zip", "a.zarr.zip"]
    newest = share.destination / "a.v2.zarr.zip"
    assert recover(newest) == {path.name: path.read_bytes() for path in share.source.iterdir()}


def test_a_lost_ledger_adopts_what_stands(share: Share) -> None:
    share.grid("a")
    share.grid("b")
    (share.source / "b_t001_z1.tif").write_bytes(b"not a tiff")
    share.run()
    before = {path: path.stat().st_mtime_ns for path in share.destination.glob("*.zarr*")}
    (share.destination / ".decant-batch" / "ledger.sqlite").unlink()
    summary = share.run()
    assert summary.adopted.count == 12
    assert {path: path.stat().st_mtime_ns for path in share.destination.glob("*.zarr*")} == before
    share.check("a.zarr.zip", "b.zarr")


def leave_bundles(share: Share, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the bundles of a nested series, and keep it from being closed."""
    share.write(RULE + "    layout: nested\n")
    share.grid("a")
    with monkeypatch.context() as patched:
        patched.setattr(steps.Steps, "_closed", lambda *_: None)
        share.run()


def test_a_nested_series_goes_on_where_it_was_interrupted(
    share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The closing is kept from happening; then a bundle is lost, and only that is made again."""
    leave_bundles(share, monkeypatch)
    (staging,) = share.destination.glob(".*.staged")
    made = {path.name: path.stat().st_mtime_ns for path in staging.iterdir()}
    assert sorted(made) == [f"m{k}.zarr.zip" for k in range(6)]
    (staging / "m2.zarr.zip").unlink()
    share.run()
    share.check("a.zarr")
    now = {path.name: path.stat().st_mtime_ns for path in (share.destination / "a.zarr").glob("m*")}
    assert {name for name in made if made[name] == now[name]} == set(made) - {"m2.zarr.zip"}
    with share.ledger() as ledger:
        tries = [len(ledger.attempts(f"a_t{t:03}_z{z}.tif")) for t in range(3) for z in range(2)]
    assert tries == [1, 1, 2, 1, 1, 1]


def test_a_member_that_fails_keeps_the_others_bundles(
    share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker says of one member is replaced by a failure."""
    share.write(RULE + "    layout: nested\n")
    share.grid("a")
    whole = steps.Steps.bundled

    def failing(self: steps.Steps, outcome: Outcome) -> steps.Step | None:
        if outcome.source.relpath == "a_t001_z1.tif":
            outcome = replace(outcome, state="failed", failure="permanent", message="no way")
        return whole(self, outcome)

    with monkeypatch.context() as patched:
        patched.setattr(steps.Steps, "bundled", failing)
        summary = share.run()
    assert summary.states["failed"].count == 6
    assert "not whole without a_t001_z1.tif: no way" in summary.troubles[0].message
    assert share.archives() == []
    assert len(list(share.destination.glob(".*.staged/*"))) == 6
    assert share.run().states["archived"].count == 6
    share.check("a.zarr")


def test_bundles_of_a_series_that_is_gone_are_removed(
    share: Share, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_bundles(share, monkeypatch)
    assert list(share.destination.glob(".*.staged"))
    for path in share.source.iterdir():
        path.unlink()
    share.add("other.tif")
    share.run()
    assert not list(share.destination.glob(".*.staged"))


def test_channel_names_are_told(share: Share) -> None:
    share.write(r"series: [{match: '(?P<n>.+)_(?P<c>\D+)\.tif', archive: '{n}'}]")
    for c in ("FITC", "DAPI"):
        share.add(f"a_{c}.tif")
    share.run()
    archive = share.destination / "a.zarr.zip"
    attributes = json.loads(zipfile.ZipFile(archive).read(".zattrs"))
    assert [each["label"] for each in attributes["omero"]["channels"]] == ["DAPI", "FITC"]


AUTO = "series: [{auto: true}]\n"


def test_series_are_guessed_where_the_config_asks_for_it(share: Share) -> None:
    share.grid("day 1/a")
    share.add("plate_9.tif")
    share.add("notes.tif")
    share.write(AUTO)
    summary = share.run()
    share.check("day 1/a_t_z.tif.zarr.zip", "plate_9.tif.zarr.zip", "notes.tif.zarr.zip")
    assert inspect(share.destination / "day 1/a_t_z.tif.zarr.zip").axes == ("t", "z", "y", "x")
    assert summary.states["archived"].count == 8
    assert share.run().settled.count == 8


def test_a_guess_is_off_unless_asked_for(share: Share) -> None:
    share.grid("a", times=2, slices=1)
    share.write("")
    share.run()
    share.check("a_t000_z0.tif.zarr.zip", "a_t001_z0.tif.zarr.zip")


def test_what_was_alone_becomes_a_series_with_its_second_member(share: Share) -> None:
    share.add("a_1.tif")
    share.write(AUTO)
    share.run()
    share.check("a_1.tif.zarr.zip")
    share.add("a_2.tif", seed=1)
    share.run()
    assert share.archives() == ["a_.tif.zarr.zip", "a_1.tif.zarr.zip"]
    assert inspect(share.destination / "a_.tif.zarr.zip").members == ("a_1.tif", "a_2.tif")


def test_a_young_member_holds_a_guessed_series_back(share: Share) -> None:
    share.grid("a", times=2, slices=1)
    share.add("single_7.tif")
    share.write(AUTO)
    share.config.write_text(share.config.read_text().replace("settle: 0s", "settle: 1h"))
    for path in share.source.iterdir():
        os.utime(path, (1e9, 1e9))
    (share.source / "a_t001_z0.tif").touch()
    assert share.run().states["changing"].count == 2
    assert share.archives() == ["single_7.tif.zarr.zip"]
