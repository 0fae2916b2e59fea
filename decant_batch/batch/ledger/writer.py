"""The ledger of a run that goes on: the driver is its only writer.

Each method that writes is one transaction, checks that the run lock is still ours and refreshes
its heartbeat. Callers hand over lists: one transaction costs a few writes to stable storage,
whatever its length.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from decant_batch import __version__
from decant_batch.archive.model import Mode
from decant_batch.batch.ledger import lock, queries
from decant_batch.batch.ledger.database import (
    connect,
    explained,
    name_of,
    sql_name,
    transaction,
)
from decant_batch.batch.ledger.records import (
    Others,
    Records,
    Stands,
    enrolled,
    met,
    refuse_other_binding,
)
from decant_batch.batch.ledger.schema import migrate, version_of
from decant_batch.batch.model import Job, Outcome, Placed, SeriesJob, Source, Trouble
from decant_batch.errors import DecantError, LedgerHeld, NameTaken


class Ledger(Records):
    """The ledger, held by this run until the ``with`` block ends; ``run`` is this run's number.

    Leaving the block ends the run, if ``finish`` did not, and closes the connection.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, run: int) -> None:
        super().__init__(path, connection, run)
        self._held = True

    @classmethod
    def open(cls, path: Path, *, source: str, destination: str, config: str) -> Ledger:
        """Return the ledger at ``path`` with a new run begun in it, made or migrated as needed.

        A dead run's lock is taken over, its open attempts are lost (``leftovers``). All in one
        transaction: of two runs that start at the same instant, one gets the ledger.

        Parameters
        ----------
        path
            The database; its folder is made where missing.
        source, destination
            Roots, resolved; the first run binds the ledger to them.
        config
            The whole config as resolved, as JSON: kept with the run.

        Raises
        ------
        LedgerHeld
            Another run that lives holds it.
        UsageError
            The ledger belongs to another source or destination.
        Unusable
            It cannot be made, read or written, is not a ledger, or is of a newer version.
        """
        with explained(path):
            connection = connect(path)
            try:
                version_of(path, connection)
                connection.execute("PRAGMA journal_mode = DELETE")
                with transaction(connection):
                    run = _begin_run(path, connection, source, destination, config)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection, run)

    def __exit__(self, *error: object) -> None:
        raised = error[1]
        try:
            if self._held:
                self.finish(None if raised is None else f"{type(raised).__name__}: {raised}")
        except DecantError:
            # What ended the block says more than that the end could not be written down.
            if raised is None:
                raise
        finally:
            self.close()

    def unsettled(
        self, sources: Sequence[Source], others: Others, stands: Stands = lambda *_: True
    ) -> list[Source]:
        """Return those of ``sources`` that have work left, and record that this run met all."""
        unsettled = super().unsettled(sources, others, stands)
        with self._writing():
            write = self._connection.executemany
            write(queries.FORGET, map(met, unsettled))
            write(queries.MEET, (met(source) | {"run": self.run} for source in sources))
        return unsettled

    def begin(self, jobs: Sequence[Job], temporaries: Sequence[str]) -> None:
        """Record an attempt at each of ``jobs``, handed to a worker now.

        Parameters
        ----------
        jobs
            A job begun a second time in one run is a further attempt; the one before, where no
            outcome was recorded, is lost.
        temporaries
            The temporary name of each, relative to the destination: what ``leftovers`` returns if
            the attempt does not end well.
        """
        with self._writing():
            for job, temporary in zip(jobs, temporaries, strict=True):
                self._begin(job.source, job.archive, job.mode, job.projected_bytes, temporary)

    def record(self, outcomes: Sequence[Outcome]) -> None:
        """Record what became of sources; those never begun (reported, too young) have no attempt.

        Raises
        ------
        NameTaken
            An archive is recorded already, of another source. Nothing of ``outcomes`` is kept.
        """
        with self._writing():
            for outcome in outcomes:
                self._record(outcome)

    def record_troubles(self, troubles: Iterable[Trouble]) -> None:
        """Record folders that the walk could not read."""
        with self._writing():
            self._connection.executemany(
                queries.TROUBLE,
                (
                    {
                        "run": self.run,
                        "relpath": sql_name(trouble.relpath),
                        "failure": trouble.failure,
                        "message": sql_name(trouble.message),
                    }
                    for trouble in troubles
                ),
            )

    def walked(self) -> None:
        """Record that the walk reached its end: what this run did not meet is not there."""
        with self._writing():
            self._connection.execute("UPDATE run SET walked = 1 WHERE id = ?", (self.run,))

    def leftovers(self) -> list[str]:
        """Return the temporary names that lost or failed attempts may have left behind.

        Relative to the destination. A name that an open attempt uses again is not among them.
        """
        return [name_of(row[0]) for row in self._all(queries.LEFTOVERS)]

    def swept(self, temporaries: Iterable[str]) -> None:
        """Record that nothing stands at these temporary names any more."""
        with self._writing():
            self._connection.executemany(
                queries.SWEEP, ((sql_name(temporary),) for temporary in temporaries)
            )

    def enroll(self, members: Sequence[tuple[Source, Placed]]) -> None:
        """Record which series sources belong to that this run met; others are forgotten."""
        with self._writing():
            for source, placed in members:
                parameters = enrolled(source, placed) | {"run": self.run}
                self._connection.execute(queries.ENROLL_SERIES, parameters)
                self._connection.execute(queries.ENROLL, parameters)

    def begin_series(self, job: SeriesJob, temporary: str) -> None:
        """Record an attempt at a consolidated series, under its first member; see ``begin``."""
        with self._writing():
            first, archive = job.series.members[0], job.archives[0][0]
            self._begin(first, archive, "series", job.projected_bytes, temporary)

    def stage(self, stem: str, staging: str | None) -> None:
        """Record where a nested series gathers its bundles, or that it no longer does."""
        with self._writing():
            parameters = {"stem": sql_name(stem), "staging": staging and sql_name(staging)}
            self._connection.execute(queries.STAGE, parameters)

    def unstaged(self, stagings: Iterable[str]) -> None:
        """Record that nothing is gathered in these folders any more."""
        with self._writing():
            self._connection.executemany(
                queries.UNSTAGE, ((sql_name(staging),) for staging in stagings)
            )

    def bundle(self, outcomes: Sequence[Outcome]) -> None:
        """Record bundles of a nested series: made and proved, and not archives yet."""
        with self._writing():
            for outcome in outcomes:
                parameters = met(outcome.source) | _told(outcome) | {"run": self.run}
                for query in (*queries.END, queries.BUNDLE):
                    self._connection.execute(query, parameters)

    def record_series(self, outcomes: Iterator[Outcome]) -> None:
        """Record what became of a series: the same of each member. The first stands for it."""
        with self._writing():
            self._record(next(outcomes))
            for outcome in outcomes:
                parameters = met(outcome.source) | _told(outcome) | {"run": self.run}
                self._connection.execute(queries.MEET, parameters)
                self._connection.execute(queries.SETTLE, parameters)

    def heartbeat(self) -> None:
        """Show that this run lives, for runs on other hosts; every write does so too.

        Raises
        ------
        LedgerHeld
            The lock is no longer this run's.
        """
        with self._writing():
            pass

    def finish(self, stopped: str | None = None) -> None:
        """End the run and release the lock; ``stopped`` says why it ended before its end.

        Nothing can be written afterwards; reading goes on until the block ends.
        """
        with self._writing():
            _end_run(self._connection, self.run, time.time_ns(), stopped)
            lock.release(self._connection, self.run)
        self._held = False

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with explained(self.path), transaction(self._connection):
            try:
                lock.renew(self.path, self._connection, self.run)
            except LedgerHeld:
                self._held = False
                raise
            yield

    def _begin(
        self, source: Source, archive: str, mode: Mode, projected_bytes: int, temporary: str
    ) -> None:
        parameters = met(source) | {
            "run": self.run,
            "now_ns": time.time_ns(),
            "archive": sql_name(archive),
            "archive_mode": mode,
            "projected_bytes": projected_bytes,
            "temporary": sql_name(temporary),
        }
        for query in queries.BEGIN:
            self._connection.execute(query, parameters)

    def _record(self, outcome: Outcome) -> None:
        parameters = met(outcome.source) | _told(outcome) | {"run": self.run}
        for query in queries.END:
            self._connection.execute(query, parameters)
        if outcome.state == "archived":
            self._keep(outcome, parameters)
            self._warn(outcome, parameters)
        self._connection.execute(queries.SETTLE, parameters)

    def _warn(self, outcome: Outcome, parameters: dict[str, object]) -> None:
        self._connection.execute(queries.UNWARN, parameters)
        self._connection.executemany(
            queries.WARN,
            (parameters | {"message": sql_name(message)} for message in outcome.warnings),
        )

    def _keep(self, outcome: Outcome, parameters: dict[str, object]) -> None:
        kept = self._connection.execute(queries.KEEP_ARCHIVE, parameters)
        if kept.rowcount == 1:
            return
        archive = str(outcome.archive)
        msg = (
            f"{archive}: holds {self.taken([archive])[archive]!r} already and cannot hold "
            f"{outcome.source.relpath!r} too; this is a fault of decant-batch, please report it"
        )
        raise NameTaken(msg)


def _told(outcome: Outcome) -> dict[str, object]:
    """Return what an outcome says, without its source, as the parameters of the queries."""
    return {
        "now_ns": time.time_ns(),
        "state": outcome.state,
        "archive": None if outcome.archive is None else sql_name(outcome.archive),
        "archive_mode": outcome.mode,
        "archive_nbytes": outcome.archive_nbytes,
        "adopted": outcome.adopted,
        "sha256": outcome.sha256,
        "reason": outcome.reason,
        "detail": sql_name(outcome.detail),
        "failure": outcome.failure,
        "message": sql_name(outcome.message),
        "worker": outcome.worker,
        "peak_bytes": outcome.peak_bytes,
        "seconds": outcome.seconds,
        "verified_by": f"{outcome.worker or socket.gethostname()}, decant-batch {__version__}",
    }


def _begin_run(
    path: Path, connection: sqlite3.Connection, source: str, destination: str, config: str
) -> int:
    version = version_of(path, connection)
    if version:
        bound = connection.execute(queries.BINDING).fetchone()
        if bound is not None:
            refuse_other_binding(
                path, (name_of(bound[0]), name_of(bound[1])), (source, destination)
            )
        _bury(connection, lock.refuse_if_held(path, connection))
    migrate(connection, version)
    begun = connection.execute(
        queries.BEGIN_RUN,
        {
            "started_ns": time.time_ns(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": __version__,
            "source": sql_name(source),
            "destination": sql_name(destination),
            "config": sql_name(config),
        },
    )
    assert begun.lastrowid is not None
    lock.take(connection, begun.lastrowid)
    return begun.lastrowid


def _bury(connection: sqlite3.Connection, dead: lock.Holder | None) -> None:
    """End the run of a dead holder, at its last heartbeat; what it had begun is lost."""
    if dead is None:
        return
    stopped = f"died: process {dead.pid} on {dead.host} is gone"
    _end_run(connection, dead.run, dead.heartbeat_ns, stopped)


def _end_run(connection: sqlite3.Connection, run: int, ended_ns: int, stopped: str | None) -> None:
    """End a run: attempts still open are lost, and its tally is kept as it is now."""
    parameters = {
        "run": run,
        "ended_ns": ended_ns,
        "stopped": None if stopped is None else sql_name(stopped),
    }
    for query in queries.FINISH:
        connection.execute(query, parameters)
