"""The ledger as a file: versions, damage, full and read-only disks, readers next to a writer."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from decant_batch.batch.ledger import Ledger, schema
from decant_batch.batch.model import Trouble
from decant_batch.errors import DecantError, Unusable, UsageError

if TYPE_CHECKING:
    from tests.batch.ledger.conftest import Make

_OURS = len(schema.MIGRATIONS)


def test_a_new_ledger_has_a_version_a_rollback_journal_and_full_synchronisation(
    make: Make,
) -> None:
    with make.ledger() as ledger:
        for pragma, value in (("user_version", _OURS), ("journal_mode", "delete")):
            assert make.ask(f"PRAGMA {pragma}") == [(value,)]
        assert ledger._connection.execute("PRAGMA synchronous").fetchone() == (2,)


@pytest.mark.parametrize("read", [True, False])
def test_a_ledger_of_a_newer_version_is_refused_and_left_alone(make: Make, read: bool) -> None:
    make.ledger().__exit__(None, None, None)
    make.edit(f"PRAGMA user_version = {_OURS + 1}")
    before = make.path.read_bytes()
    with pytest.raises(Unusable, match="upgrade decant-batch") as refusal:
        Ledger.read(make.path) if read else make.ledger()
    for word in (str(make.path), f"version {_OURS + 1}", f"up to {_OURS}"):
        assert word in str(refusal.value)
    assert make.path.read_bytes() == before


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("wal", [True, False])
def test_a_database_of_another_program_is_refused_and_left_alone(
    make: Make, read: bool, wal: bool
) -> None:
    make.path.parent.mkdir()
    with closing(sqlite3.connect(make.path)) as other:
        other.execute(f"PRAGMA journal_mode = {'WAL' if wal else 'DELETE'}")
        other.execute("CREATE TABLE run (id)")
        other.commit()
    before = make.path.read_bytes()
    with pytest.raises(Unusable, match="another program"):
        Ledger.read(make.path) if read else make.ledger()
    assert make.path.read_bytes() == before


@pytest.mark.parametrize("read", [True, False])
def test_a_file_that_is_no_database_is_refused_and_left_alone(make: Make, read: bool) -> None:
    make.path.parent.mkdir()
    make.path.write_bytes(b"II*\0" * 4096)
    with pytest.raises(Unusable, match="not a ledger") as refusal:
        Ledger.read(make.path) if read else make.ledger()
    assert str(make.path) in str(refusal.value)
    assert make.path.read_bytes() == b"II*\0" * 4096


def test_a_damaged_ledger_is_named_and_the_way_out_told(make: Make) -> None:
    with make.ledger() as ledger:
        sources = [make.source(f"{number:05}.tif") for number in range(5000)]
        ledger.unsettled(sources, "report")
    pages = bytearray(make.path.read_bytes())
    pages[4096:] = b"\xff" * (len(pages) - 4096)
    make.path.write_bytes(pages)
    with pytest.raises(Unusable, match=r"damaged.*adopted") as refusal, make.ledger():
        pass
    assert str(make.path) in str(refusal.value)


def test_a_folder_at_the_ledgers_name_is_refused(make: Make) -> None:
    make.path.mkdir(parents=True)
    with pytest.raises(UsageError, match="is a folder"):
        make.ledger()


def test_a_folder_that_cannot_be_made_is_refused_by_name(make: Make) -> None:
    make.path.parent.write_text("a file stands here")
    with pytest.raises(Unusable, match="folder cannot be made") as refusal:
        make.ledger()
    assert str(make.path.parent) in str(refusal.value)


def test_reading_before_the_first_run_is_a_usage_error_and_makes_nothing(make: Make) -> None:
    with pytest.raises(UsageError, match="no ledger here yet"):
        Ledger.read(make.path)
    assert not make.path.parent.exists()


def test_two_configs_on_one_ledger_are_refused_and_both_named(make: Make) -> None:
    make.ledger().__exit__(None, None, None)
    for changes in ({"source": "/share2"}, {"destination": "/dest2"}):
        with pytest.raises(UsageError, match="two configs on one ledger") as refusal:
            make.ledger(**changes)
        for word in ("/share ->", "-> /dest", *changes.values(), "its own `ledger:`"):
            assert word in str(refusal.value)
    assert len(make.ask("SELECT * FROM run")) == 1


def test_a_full_disk_loses_the_batch_and_nothing_else(make: Make) -> None:
    sources = [make.source(f"{number:05}.tif") for number in range(5000)]
    with make.ledger() as ledger:
        ledger.unsettled(sources[:10], "report")
        (pages,) = ledger._connection.execute("PRAGMA page_count").fetchone()
        ledger._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(Unusable, match="disk is full; make room") as refusal:
            ledger.unsettled(sources, "report")
        assert str(make.path) in str(refusal.value)
        assert ledger.waiting().count == 10
        ledger._connection.execute("PRAGMA max_page_count = 1000000")
        ledger.unsettled(sources, "report")
        assert ledger.waiting().count == 5000


def test_what_ended_a_run_is_not_hidden_by_a_ledger_that_cannot_be_written(make: Make) -> None:
    ledger = make.ledger()
    ledger._connection.execute("PRAGMA query_only = 1")
    with pytest.raises(RuntimeError, match="why it ended"), ledger:
        raise RuntimeError("why it ended")


def test_migrations_start_from_an_empty_file(make: Make) -> None:
    make.path.parent.mkdir()
    make.path.touch()
    with make.ledger() as ledger:
        assert ledger.run == 1


def test_a_migration_keeps_what_is_there_and_reading_waits_for_it(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make.ledger() as ledger:
        ledger.record([make.archived(make.source())])
    more = ("ALTER TABLE source ADD COLUMN colour TEXT", "CREATE TABLE palette (id)")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, more))
    with pytest.raises(Unusable, match="next `decant-batch run`"):
        Ledger.read(make.path)
    with make.ledger() as ledger:
        assert make.ask("PRAGMA user_version") == [(_OURS + 1,)]
        assert make.ask("SELECT colour FROM source") == [(None,)]
        assert ledger.unsettled([make.source()], "report") == []


def test_a_migration_that_fails_leaves_the_older_ledger_whole(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    make.ledger().__exit__(None, None, None)
    before = make.ask("SELECT name FROM sqlite_master ORDER BY name")
    broken = ("CREATE TABLE palette (id)", "CREATE TABLE run (id)")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
        with pytest.raises(Unusable):
            make.ledger()
    assert make.ask("SELECT name FROM sqlite_master ORDER BY name") == before
    with make.ledger() as ledger:
        assert ledger.run == 2


def test_reading_goes_on_next_to_a_run_and_sees_whole_transactions(make: Make) -> None:
    source = make.source()
    with make.ledger() as ledger:
        ledger.unsettled([source], "report")
        with Ledger.read(make.path) as records:
            with ledger._writing():
                ledger._record(make.archived(source))
                assert list(ledger.standings()) == ["archived"]
                assert list(records.standings()) == ["waiting"]
            assert list(records.standings()) == ["archived"]
            assert records.run == ledger.run
            holder = records.holder()
            assert holder is not None
            assert holder.pid == os.getpid()


def test_a_reader_that_stopped_in_a_long_list_does_not_hold_up_the_writer(make: Make) -> None:
    with make.ledger() as ledger:
        ledger.record([make.failed(make.source(f"{number}.tif")) for number in range(2500)])
        with Ledger.read(make.path) as records:
            failures: Iterator[Trouble] = records.failures()
            first = list(islice(failures, 10))
            ledger._connection.execute("PRAGMA busy_timeout = 0")
            ledger.record([make.archived(make.source("0.tif"))])
            names = {trouble.relpath for trouble in [*first, *failures]}
    assert names == {f"{number}.tif" for number in range(2500)}


_DIE_IN_A_TRANSACTION = """
import os, sys
from pathlib import Path
from decant_batch.batch.ledger import Ledger
ledger = Ledger.open(Path(sys.argv[1]), source="/share", destination="/dest", config="{}")
ledger._connection.execute("PRAGMA cache_size = 5")
ledger._connection.execute("BEGIN IMMEDIATE")
ledger._connection.execute("UPDATE source SET size = 11, state = 'waiting', archive = NULL")
os._exit(0)
"""


def test_reading_after_a_writer_died_in_a_transaction_sees_what_was_before(make: Make) -> None:
    sources = [make.source(f"{number:05}.tif") for number in range(3000)]
    with make.ledger() as ledger:
        ledger.record([make.archived(source) for source in sources])
    make.run(_DIE_IN_A_TRANSACTION)
    assert make.path.with_name("ledger.sqlite-journal").stat().st_size > 0
    with Ledger.read(make.path) as records:
        tally = records.standings()["archived"]
    assert (tally.count, tally.source_nbytes) == (3000, 30_000)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that other users can reach: pytest's own are closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="decant-ledger-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def _unprivileged(path: Path, act: str) -> str:
    """Return what ``act`` says of the ledger in a process that is not root."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            said = _say(path, act)
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return pipe.read()


def _say(path: Path, act: str) -> str:
    try:
        if act == "read":
            with Ledger.read(path) as records:
                return f"{records.standings()['archived'].count} archived"
        Ledger.open(path, source="/share", destination="/dest", config="{}").close()
    except DecantError as error:
        return f"{type(error).__name__}: {error}"
    return "opened"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_ledger_that_may_not_be_written_can_be_read_and_a_run_is_refused(
    make: Make, open_folder: Path
) -> None:
    make.path = open_folder / "ledger.sqlite"
    with make.ledger() as ledger:
        ledger.record([make.archived(make.source())])
    make.path.chmod(0o444)
    open_folder.chmod(0o555)
    assert _unprivileged(make.path, "read") == "1 archived"
    refusal = _unprivileged(make.path, "open")
    assert refusal.startswith(f"Unusable: {make.path}: the ledger cannot be written")
    refusal = _unprivileged(open_folder / "sub" / "ledger.sqlite", "open")
    assert refusal.startswith(f"Unusable: {open_folder / 'sub'}: the ledger's folder cannot be")
    make.path.chmod(0o000)
    assert "cannot be opened" in _unprivileged(make.path, "read")
    open_folder.chmod(0o755)
