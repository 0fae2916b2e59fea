"""The ledger's tables, and how a ledger of an older version is brought up to this one.

``PRAGMA user_version`` holds the schema's version, ``PRAGMA application_id`` says that the file is
a ledger at all. A column that holds a path or a message has no declared type: it is TEXT where the
name is UTF-8 and a BLOB of the file system's own bytes where it is not (``database.sql_name``).

::

    run ──< source >── archive      a source is met by a run; its newest archive, if it has one
    run ──< job ──< attempt         one archive to make in one run; each time it was tried
    run ──< trouble, tally          what a walk could not read; the states a run left behind
    archive ──< audit               each time an archive was looked at again
    source ──< warning              what of its metadata its archive does not tell
    series ──< member ── source     which sources are one archive together; the bundle a member
                                    has while a nested series is not whole
    lock                            at most one row: the run that may write
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from decant_batch.batch.ledger.database import snapshot
from decant_batch.errors import Unusable

# "dcnt": an SQLite file without it belongs to another program and is left alone.
APPLICATION_ID = 0x64636E74

# One tuple of statements for each version; a published one is never edited.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE run (
            id INTEGER PRIMARY KEY,
            started_ns INTEGER NOT NULL,
            ended_ns INTEGER,
            host TEXT NOT NULL,
            pid INTEGER NOT NULL,
            version TEXT NOT NULL,
            source NOT NULL,
            destination NOT NULL,
            config NOT NULL,
            walked INTEGER NOT NULL DEFAULT 0,
            stopped)""",
        """CREATE TABLE lock (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            run INTEGER NOT NULL REFERENCES run,
            host TEXT NOT NULL,
            pid INTEGER NOT NULL,
            process_start_s REAL NOT NULL,
            heartbeat_ns INTEGER NOT NULL)""",
        """CREATE TABLE source (
            id INTEGER PRIMARY KEY,
            relpath NOT NULL UNIQUE,
            size INTEGER NOT NULL,
            mtime_ns INTEGER NOT NULL,
            mode INTEGER NOT NULL,
            seen_run INTEGER NOT NULL REFERENCES run,
            state TEXT NOT NULL DEFAULT 'waiting' CHECK (
                state IN ('waiting', 'archived', 'reported', 'changing', 'failed')),
            run INTEGER REFERENCES run,
            settled_ns INTEGER,
            archive INTEGER REFERENCES archive,
            reason TEXT,
            detail NOT NULL DEFAULT '',
            failure TEXT,
            message NOT NULL DEFAULT '',
            CHECK ((state = 'archived') = (archive IS NOT NULL)),
            CHECK ((state = 'failed') = (failure IS NOT NULL)))""",
        "CREATE INDEX source_failed ON source (id) WHERE state = 'failed'",
        """CREATE TABLE archive (
            id INTEGER PRIMARY KEY,
            path NOT NULL,
            source INTEGER NOT NULL REFERENCES source,
            version INTEGER NOT NULL,
            size INTEGER NOT NULL,
            mtime_ns INTEGER NOT NULL,
            sha256 TEXT NOT NULL,
            mode TEXT NOT NULL,
            reason TEXT,
            detail NOT NULL DEFAULT '',
            nbytes INTEGER NOT NULL,
            adopted INTEGER NOT NULL,
            run INTEGER NOT NULL REFERENCES run,
            verified_ns INTEGER NOT NULL,
            verified_by TEXT NOT NULL)""",
        "CREATE UNIQUE INDEX archive_path ON archive (path)",
        "CREATE INDEX archive_source ON archive (source, version)",
        """CREATE TABLE job (
            id INTEGER PRIMARY KEY,
            run INTEGER NOT NULL REFERENCES run,
            source INTEGER NOT NULL REFERENCES source,
            archive NOT NULL,
            mode TEXT NOT NULL,
            state TEXT NOT NULL CHECK (state IN ('started', 'done', 'failed', 'lost')),
            UNIQUE (source, run))""",
        "CREATE INDEX job_started ON job (archive) WHERE state = 'started'",
        """CREATE TABLE attempt (
            id INTEGER PRIMARY KEY,
            job INTEGER NOT NULL REFERENCES job,
            started_ns INTEGER NOT NULL,
            ended_ns INTEGER,
            outcome TEXT NOT NULL DEFAULT 'started',
            failure TEXT,
            message NOT NULL DEFAULT '',
            worker TEXT NOT NULL DEFAULT '',
            projected_bytes INTEGER NOT NULL,
            peak_bytes INTEGER NOT NULL DEFAULT 0,
            seconds REAL NOT NULL DEFAULT 0,
            temporary)""",
        "CREATE INDEX attempt_job ON attempt (job)",
        "CREATE INDEX attempt_started ON attempt (job) WHERE outcome = 'started'",
        "CREATE INDEX attempt_temporary ON attempt (temporary) WHERE temporary IS NOT NULL",
        """CREATE TABLE trouble (
            id INTEGER PRIMARY KEY,
            run INTEGER NOT NULL REFERENCES run,
            relpath NOT NULL,
            failure TEXT NOT NULL,
            message NOT NULL)""",
        "CREATE INDEX trouble_run ON trouble (run)",
        """CREATE TABLE tally (
            run INTEGER NOT NULL REFERENCES run,
            state TEXT NOT NULL,
            count INTEGER NOT NULL,
            source_nbytes INTEGER NOT NULL,
            archive_nbytes INTEGER NOT NULL,
            PRIMARY KEY (run, state))""",
        """CREATE TABLE audit (
            id INTEGER PRIMARY KEY,
            archive INTEGER NOT NULL REFERENCES archive,
            audited_ns INTEGER NOT NULL,
            result TEXT NOT NULL,
            message NOT NULL DEFAULT '')""",
        "CREATE INDEX audit_archive ON audit (archive, audited_ns)",
    ),
    (
        """CREATE TABLE warning (
            id INTEGER PRIMARY KEY,
            run INTEGER NOT NULL REFERENCES run,
            source INTEGER NOT NULL REFERENCES source,
            message NOT NULL)""",
        "CREATE INDEX warning_source ON warning (source)",
    ),
    (
        """CREATE TABLE series (
            id INTEGER PRIMARY KEY,
            stem NOT NULL UNIQUE,
            axes TEXT NOT NULL,
            layout TEXT NOT NULL,
            staging)""",
        """CREATE TABLE member (
            source INTEGER PRIMARY KEY REFERENCES source,
            series INTEGER NOT NULL REFERENCES series,
            run INTEGER NOT NULL REFERENCES run,
            place NOT NULL,
            identity NOT NULL,
            bundle,
            size INTEGER,
            mtime_ns INTEGER,
            sha256 TEXT,
            nbytes INTEGER)""",
        "CREATE INDEX member_series ON member (series, run)",
    ),
    ("ALTER TABLE series ADD COLUMN found TEXT NOT NULL DEFAULT 'declared'",),
)


def version_of(path: Path, connection: sqlite3.Connection) -> int:
    """Return the schema version of the ledger at ``path``; 0 for a file that holds nothing yet.

    Raises
    ------
    Unusable
        The file is another program's database, or a ledger of a newer decant-batch.
    """
    # One snapshot: another run may be making the ledger at this instant.
    with snapshot(connection):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if not tables and not version:
        return 0
    if application != APPLICATION_ID:
        msg = (
            f"{path}: this is a database of another program, not a ledger of decant-batch; "
            "name another file under `ledger:` in the config"
        )
        raise Unusable(msg)
    if version > len(MIGRATIONS):
        msg = (
            f"{path}: this ledger has version {version}, this decant-batch knows versions up to "
            f"{len(MIGRATIONS)}; upgrade decant-batch (pip install -U decant-batch)"
        )
        raise Unusable(msg)
    return int(version)


def refuse_older(path: Path, version: int) -> None:
    """Refuse to read a ledger that a run would migrate first: reading never writes.

    Raises
    ------
    Unusable
        ``version`` is older than this decant-batch's.
    """
    if version < len(MIGRATIONS):
        msg = (
            f"{path}: this ledger has version {version}, this decant-batch reads version "
            f"{len(MIGRATIONS)}; the next `decant-batch run` brings it up to date"
        )
        raise Unusable(msg)


def migrate(connection: sqlite3.Connection, version: int) -> None:
    """Bring a ledger of schema ``version`` to this one, inside the caller's transaction.

    Both pragmas are part of that transaction, so a crash leaves the older ledger, never half of
    the newer one.
    """
    for number, statements in enumerate(MIGRATIONS[version:], start=version + 1):
        for statement in statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number}")
    if version == 0:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
