"""Connections to the ledger's file: how it is opened, how a transaction ends, what an error means.

The rollback journal is used, never WAL: WAL needs memory shared between the processes that have
the file open, and network mounts have none. Every transaction of the writer is on stable storage
when it ends (``synchronous = FULL``).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from decant_batch.errors import Unusable, UsageError

# A reader holds the file for one page of rows, the writer for one batch: whoever waits this long
# waits for something else.
BUSY_S = 60.0
_CACHE_KIB = 32 * 1024
# What SQLite says, by the beginning of its code's name, and what someone can do about it.
_MEANINGS = (
    ("SQLITE_FULL", "the disk is full; make room, then run again"),
    ("SQLITE_READONLY", "the ledger cannot be written; make it and its folder writable"),
    ("SQLITE_CANTOPEN", "the ledger cannot be opened or made; check its folder's permissions"),
    ("SQLITE_PERM", "the ledger cannot be opened; check its permissions"),
    ("SQLITE_BUSY", "another program keeps the ledger locked; close it, then try again"),
    ("SQLITE_LOCKED", "another program keeps the ledger locked; close it, then try again"),
    ("SQLITE_NOTADB", "this is not a ledger; name another file under `ledger:` in the config"),
    (
        "SQLITE_CORRUPT",
        "the ledger is damaged; move it away and run again: archives are verified and adopted",
    ),
    (
        "SQLITE_IOERR",
        "the ledger's disk fails or has no file locks; name a file on another under `ledger:`",
    ),
)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite says of the ledger at ``path`` into Unusable with the next step.

    A constraint that does not hold is a fault of ours and passes through.
    """
    try:
        yield
    except sqlite3.IntegrityError:
        raise
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", None)
        # Errors of the Python module itself (a closed connection) carry no code of SQLite's.
        if name is None:
            raise
        meaning = next(
            (text for start, text in _MEANINGS if name.startswith(start)),
            "the ledger cannot be used; move it away, or name another under `ledger:`",
        )
        msg = f"{path}: {meaning} (SQLite: {error}, {name})"
        raise Unusable(msg) from error


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the writer's lock from the first statement; all of the block is kept, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        # SQLite itself ends the transaction on some errors, a full disk among them.
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Let all statements of the block see one state of the ledger, and lock the file only once."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection that may write; the file and its folder are made where missing.

    Nothing of a file that is there is changed yet: it may be another program's.
    """
    _refuse_folder(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = (
            f"{path.parent}: the ledger's folder cannot be made ({error.strerror}); make it, or "
            "name another place under `ledger:` in the config"
        )
        raise Unusable(msg) from error
    connection = _connect(path, "rwc")
    try:
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def connect_reading(path: Path) -> sqlite3.Connection:
    """Return a connection that only reads, takes no run lock and needs no writable disk.

    A writer that died in the middle of a transaction left a journal, which has to be rolled back
    before anything can be read: the one case in which reading opens the file for writing.
    """
    _refuse_folder(path)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        msg = f"{path}: there is no ledger here yet; `decant-batch run CONFIG` makes it"
        raise UsageError(msg) from error
    except OSError as error:
        msg = f"{path}: the ledger cannot be read ({error.strerror}); ask its owner for access"
        raise Unusable(msg) from error
    connection = _connect(path, "ro")
    try:
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorname != "SQLITE_READONLY_ROLLBACK":
            raise
        connection = _connect(path, "rw")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name a file under `ledger:` in the config")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # Transactions are begun and ended by us (isolation_level None), in every version of Python.
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=BUSY_S, isolation_level=None
    )


def sql_name(name: str) -> str | bytes:
    """Return a path or message as SQLite can hold it: TEXT, or a BLOB where it is not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogateescape")
    return name


def name_of(value: str | bytes) -> str:
    """Return the path or message that ``sql_name`` stored; bytes come back surrogate-escaped."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
