from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from decant_batch.archive.model import Recipe
from decant_batch.batch.config import Config
from decant_batch.batch.ledger import Ledger
from decant_batch.batch.model import Job, Outcome, Source, Trouble
from decant_batch.errors import UsageError
from decant_batch.ui import proof, report, status

MTIME_NS = 1_773_219_600_000_000_000
SHA256 = "ab" * 32


def _source(name: str, size: int) -> Source:
    return Source(relpath=name, size=size, mtime_ns=MTIME_NS, mode=0o644)


def _job(source: Source) -> Job:
    return Job(
        source=source,
        archive=f"{source.relpath}.zarr.zip",
        mode="byte-exact",
        reason=None,
        detail="",
        recipe=Recipe(),
        projected_bytes=1 << 28,
    )


def _archived(source: Source) -> Outcome:
    return Outcome(
        source=source,
        state="archived",
        archive=f"{source.relpath}.zarr.zip",
        mode="byte-exact",
        sha256=SHA256,
        archive_nbytes=source.size // 2,
        worker="node7:12",
    )


GOOD, BAD, LATER = _source("plate/a.tif", 1000), _source("b\udcff.tif", 500), _source("c.tif", 250)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config.model_validate({"source": "/mnt/s", "destination": str(tmp_path / "dst")})


@pytest.fixture
def begin(config: Config) -> Callable[[], Ledger]:
    """Begins a run on the ledger of an otherwise empty destination."""

    def call() -> Ledger:
        return Ledger.open(
            config.ledger,
            source=str(config.source),
            destination=str(config.destination),
            config="{}",
        )

    return call


@pytest.fixture
def path(begin: Callable[[], Ledger]) -> Path:
    """The ledger of a run that archived one source, failed at one and did not reach one."""
    with begin() as ledger:
        ledger.unsettled([GOOD, BAD, LATER], "verbatim")
        ledger.record_troubles(
            [Trouble(relpath="secret", failure="permanent", message="permission denied")]
        )
        ledger.begin([_job(GOOD), _job(BAD)], ["t1", "t2"])
        failed = Outcome(source=BAD, state="failed", failure="poison", message="died twice")
        ledger.record([_archived(GOOD), failed])
        ledger.walked()
        ledger.finish("the window closed")
        return ledger.path


def test_a_status_says_where_every_source_stands(path: Path, config: Config) -> None:
    text = status.status_text(status.status_of(config))
    rows = [line.split() for line in text.splitlines()]
    assert ["archived", "1", "1,000", "1000", "B", "500", "B"] in rows
    assert ["waiting", "1", "250", "250", "B", "-"] in rows
    assert ["total", "3", "1,750", "1.7", "KiB", "500", "B"] in rows
    assert "2 problems:" in text
    assert "secret: permission denied" in text
    assert r"b\xff.tif: died twice" in text
    assert "/mnt/s" in text
    assert "stopped: the window closed" in text
    assert all(line.isprintable() for line in text.splitlines())


def test_a_status_as_json(path: Path, config: Config) -> None:
    text = report.json_text(status.status_values(status.status_of(config)))
    assert text.isascii()
    values = json.loads(text)
    assert values["found"] == {"count": 3, "source_nbytes": 1750, "archive_nbytes": 500}
    assert values["states"]["changing"]["count"] == 0
    assert values["states"]["waiting"]["count"] == 1
    assert values["trouble_count"] == 2
    assert values["next_steps"].keys() == {"permanent", "poison"}
    assert values["runs"][0]["stopped"] == "the window closed"
    assert values["goes_on"] is False


def test_a_run_that_goes_on_is_said_to(
    path: Path, config: Config, begin: Callable[[], Ledger]
) -> None:
    with begin() as ledger:
        now = status.status_of(config)
        assert now.goes_on
        text = status.status_text(now)
        assert f"run {ledger.run} is at work on " in text
        assert text.splitlines()[-2].endswith("at work")
    assert not status.status_of(config).goes_on


def test_what_is_no_longer_on_the_share_is_told_apart(
    path: Path, config: Config, begin: Callable[[], Ledger]
) -> None:
    with begin() as ledger:
        ledger.unsettled([GOOD], "verbatim")
        ledger.walked()
    now = status.status_of(config)
    assert now.vanished.count == 2
    assert "vanished: 2 sources (750 B) that earlier runs met" in status.status_text(now)
    assert now.states.keys() == {"archived"}


def test_no_ledger_yet(config: Config) -> None:
    with pytest.raises(UsageError, match="there is no ledger here yet"):
        status.status_of(config)


def test_another_config_s_ledger_is_not_shown(path: Path, config: Config) -> None:
    other = config.model_copy(update={"source": Path("/mnt/other")})
    with pytest.raises(UsageError, match="belongs to /mnt/s -> "):
        status.status_of(other)


# --- proof ------------------------------------------------------------------------------------


@pytest.fixture
def archive(path: Path) -> Path:
    """Where the archive of the source that was archived stands."""
    place = path.parents[1] / "plate" / "a.tif.zarr.zip"
    place.parent.mkdir()
    place.write_bytes(bytes(GOOD.size // 2))
    os.utime(place, ns=(MTIME_NS, MTIME_NS))
    return place


def test_the_ledger_above_says_who_verified_an_archive(path: Path, archive: Path) -> None:
    found = proof.proof_of(archive, SHA256)
    assert found.ledger == str(path)
    assert found.at_ns is not None
    assert found.at_ns > MTIME_NS
    assert "node7:12" in (found.by or "")
    assert f"says {path}" in proof.proof_text(found)


def test_it_is_found_from_wherever_one_stands(
    archive: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(archive.parent)
    (tmp_path / "link").symlink_to(archive.parent)
    for way in ("a.tif.zarr.zip", "../plate/a.tif.zarr.zip", "../../link/a.tif.zarr.zip"):
        assert proof.proof_of(Path(way), SHA256).at_ns is not None


def test_an_archive_that_was_exchanged_is_not_vouched_for(archive: Path) -> None:
    found = proof.proof_of(archive, "cd" * 32)
    assert found.at_ns is None
    assert "knows other content under this name; `decant-batch verify`" in proof.proof_text(found)


def test_an_archive_that_was_written_to_is_not_vouched_for(archive: Path) -> None:
    os.utime(archive)
    assert "written to since it was verified" in proof.proof_text(proof.proof_of(archive, SHA256))
    archive.write_bytes(b"short")
    os.utime(archive, ns=(MTIME_NS, MTIME_NS))
    assert "written to since it was verified" in proof.proof_text(proof.proof_of(archive, SHA256))


def test_an_archive_that_the_ledger_never_saw(archive: Path) -> None:
    found = proof.proof_of(archive.with_name("other.zarr.zip"), SHA256)
    assert "does not know it; `decant-batch verify` proves it now" in proof.proof_text(found)


def test_a_ledger_that_cannot_be_asked_is_no_reason_to_fail(path: Path, archive: Path) -> None:
    path.write_text("not a database, whatever its name says" * 100)
    found = proof.proof_of(archive, SHA256)
    assert found.at_ns is None
    assert str(path) in proof.proof_text(found)


def test_no_ledger_beside_it(tmp_path: Path) -> None:
    text = proof.proof_text(proof.proof_of(tmp_path / "a.zarr.zip", SHA256))
    assert text == (
        "unknown: no ledger stands above it (a config may keep it elsewhere);"
        " `decant-batch verify` proves it now"
    )
