"""What the ledger knows, read without changing it: also while a run goes on, also read-only.

Long lists are read a page at a time: a reader that held the file between two rows would keep the
running writer from ending its transaction.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, Self

from decant_batch.batch.ledger import queries, rows
from decant_batch.batch.ledger.database import (
    connect_reading,
    explained,
    name_of,
    snapshot,
    sql_name,
)
from decant_batch.batch.ledger.lock import Holder, holder_of
from decant_batch.batch.ledger.rows import ArchiveRow, Attempt, PastRun, SourceRow, Standing
from decant_batch.batch.ledger.schema import refuse_older, version_of
from decant_batch.batch.model import (
    Enrolled,
    FailureClass,
    Placed,
    Source,
    Summary,
    Tally,
    Trouble,
    Warned,
)
from decant_batch.errors import UsageError

Others = Literal["report", "verbatim"]
# Whether an archive stands at its path below the destination, with so many bytes.
Stands = Callable[[str, int], bool]

_PAGE = 1000
_TROUBLES_SHOWN = 20


class Records:
    """The ledger, read only; a context manager that closes its connection.

    ``run`` is the latest run when the ledger was opened. Paths are relative to the source root or
    to the destination, with bytes that are not UTF-8 surrogate-escaped.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, run: int) -> None:
        self.path = path
        self.run = run
        self._connection = connection

    @classmethod
    def read(cls, path: Path) -> Records:
        """Return the ledger at ``path`` for reading; no lock is taken and nothing is written.

        Raises
        ------
        UsageError
            There is no ledger yet.
        Unusable
            It cannot be read, is not a ledger, or is of another version.
        """
        with explained(path):
            connection = connect_reading(path)
            try:
                refuse_older(path, version_of(path, connection))
                (run,) = connection.execute("SELECT MAX(id) FROM run").fetchone()
            except BaseException:
                connection.close()
                raise
        return Records(path, connection, run)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a second time does nothing."""
        self._connection.close()

    def binding(self) -> tuple[str, str]:
        """Return the source root and the destination that this ledger belongs to."""
        source, destination = self._one(queries.BINDING)
        return name_of(source), name_of(destination)

    def refuse_other(self, source: str, destination: str) -> None:
        """Refuse a config with another source or destination than this ledger's.

        Raises
        ------
        UsageError
            The ledger belongs to another config.
        """
        refuse_other_binding(self.path, self.binding(), (source, destination))

    def holder(self) -> Holder | None:
        """Return who holds the run lock, dead or alive (``Holder.lives``); None if it is free."""
        with explained(self.path):
            return holder_of(self._connection)

    def unsettled(
        self, sources: Sequence[Source], others: Others, stands: Stands = lambda *_: True
    ) -> list[Source]:
        """Return those of ``sources`` that have work left: the one place where resume is decided.

        Settled is a source of the same size and mtime_ns that is ``archived`` in an archive of
        which ``stands`` is true, or ``reported`` while ``others`` says that what is not a TIFF is
        only reported.
        """
        with explained(self.path), snapshot(self._connection):
            found = [self._find(queries.STANDING, source.relpath) for source in sources]
        return [
            source
            for row, source in zip(found, sources, strict=True)
            if not _settles(row, source, others, stands)
        ]

    def versions(self, sources: Iterable[Source]) -> dict[str, int]:
        """Return, by relpath, the number of the archive that may hold each as it is now.

        The one that holds this very size and mtime_ns, else the newest, 1 for a source never
        archived. Where that one holds other content, the next numbers are tried.
        """
        with explained(self.path), snapshot(self._connection):
            ask = self._connection.execute
            return {
                source.relpath: int(ask(queries.VERSION, met(source)).fetchone()[0])
                for source in sources
            }

    def open_series(self) -> list[int]:
        """Return the series of which this run met a member that has no archive yet."""
        with explained(self.path), snapshot(self._connection):
            return [number for (number,) in self._all(queries.OPEN_SERIES, self.run)]

    def series(self, number: int) -> Enrolled:
        """Return one series with the members that this run met."""
        with explained(self.path), snapshot(self._connection):
            members = self._connection.execute(queries.MEMBERS, (number, self.run))
            return rows.enrolled(self._one(queries.SERIES, number), members)

    def series_of(self, stem: str) -> Enrolled:
        """Return the series whose archive has this path without suffix."""
        with explained(self.path):
            (number,) = self._one("SELECT id FROM series WHERE stem = ?", sql_name(stem))
        return self.series(number)

    def abandoned(self) -> list[str]:
        """Return where bundles were gathered for series of which this run met no member."""
        with explained(self.path), snapshot(self._connection):
            return [name_of(name) for (name,) in self._all(queries.STAGINGS, self.run)]

    def taken(self, archives: Iterable[str]) -> dict[str, str]:
        """Return the source of each of ``archives`` that is published or being made."""
        with explained(self.path), snapshot(self._connection):
            claims = {name: self._all(queries.TAKEN, *[sql_name(name)] * 2) for name in archives}
        return {name: name_of(claim[0][0]) for name, claim in claims.items() if claim}

    def archive_of(self, archive: str) -> ArchiveRow | None:
        """Return what is known of the archive at this path; None if it is not in the ledger."""
        with explained(self.path):
            row = self._find(queries.ARCHIVE, archive)
        return None if row is None else rows.archive_row(row)

    def source_of(self, relpath: str) -> SourceRow | None:
        """Return where one source stands; None if no run ever met it."""
        with explained(self.path):
            row = self._find(queries.SOURCE, relpath)
        return None if row is None else rows.source_row(row)

    def sources(self) -> Iterator[SourceRow]:
        """Yield every source that any run met; ``seen_run`` tells those no longer found."""
        for row in self._rows(queries.SOURCES, {}):
            yield rows.source_row(row[1:])

    def last_walked(self) -> int:
        """Return the last run whose walk reached the end: what it did not meet has vanished."""
        with explained(self.path):
            return self._last_walked()

    def attempts(self, relpath: str) -> tuple[Attempt, ...]:
        """Return every try at one source, the first first."""
        return tuple(map(rows.attempt, self._all(queries.ATTEMPTS, sql_name(relpath))))

    def worst_memory(self, limit: int = 10) -> tuple[Attempt, ...]:
        """Return the attempts whose peak came nearest to what was projected, or passed it."""
        return tuple(map(rows.attempt, self._all(queries.ATTEMPTS_BY_MEMORY, limit)))

    def runs(self, limit: int = 10) -> tuple[PastRun, ...]:
        """Return the last runs, the latest first."""
        with explained(self.path), snapshot(self._connection):
            return tuple(
                rows.past_run(row, self._tallies(queries.LEFT_BEHIND, row[0]))
                for row in self._all(queries.RUNS, limit)
            )

    def standings(self) -> dict[Standing, Tally]:
        """Return all sources by state, without those that the last whole walk did not find."""
        with explained(self.path), snapshot(self._connection):
            return self._tallies(queries.STATES, self._last_walked())

    def vanished(self) -> Tally:
        """Return the sources that earlier runs met and the last whole walk did not find.

        Those in folders that it could not read are among them.
        """
        with explained(self.path), snapshot(self._connection):
            return rows.tally(self._one(queries.VANISHED, self._last_walked()))

    def causes(self) -> dict[FailureClass, Tally]:
        """Return how many sources stand failed, by the class of the failure."""
        with explained(self.path), snapshot(self._connection):
            return self._tallies(queries.CAUSES, self._last_walked())

    def failures(self) -> Iterator[Trouble]:
        """Yield the sources that stand failed, without those that are no longer found."""
        with explained(self.path):
            walked = self._last_walked()
        return self._pages(queries.FAILURES, walked)

    def troubles(self) -> Iterator[Trouble]:
        """Yield the folders that the walk of this run could not read."""
        return self._pages(queries.TROUBLES, self.run)

    def warnings(self) -> Iterator[Warned]:
        """Yield what archives do not tell of their sources' metadata, of all that are found."""
        with explained(self.path):
            walked = self._last_walked()
        return self._warnings(walked, since=0)

    def warning_count(self) -> int:
        """Return how many sources ``warnings`` are about."""
        with explained(self.path), snapshot(self._connection):
            return int(self._one(queries.WARNING_COUNT, self._last_walked(), 0)[0])

    def waiting(self) -> Tally:
        """Return the sources that this run met and did not finish: none, unless it was stopped."""
        with explained(self.path):
            return self._tallies(queries.STATES, self.run).get("waiting", Tally())

    def summary(self, *, report: str | None = None) -> Summary:
        """Return what this run did; every source its walk found is in ``states`` or ``waiting``.

        A source that failed in an earlier run and was not reached by this one still stands failed.
        """
        with explained(self.path), snapshot(self._connection):
            states = self._tallies(queries.STATES, self.run)
            waiting = states.pop("waiting", Tally())
            started_ns, ended_ns, stopped = self._one(
                "SELECT started_ns, ended_ns, stopped FROM run WHERE id = ?", self.run
            )
            return Summary(
                run=self.run,
                states=states,
                waiting=waiting,
                modes=self._tallies(queries.MODES, self.run),
                reasons=dict(self._all(queries.REASONS, self.run)),
                settled=rows.tally(self._one(queries.SETTLED, self.run)),
                adopted=rows.tally(self._one(queries.ADOPTED, self.run)),
                troubles=self._first_troubles(),
                trouble_count=self._one(queries.TROUBLE_COUNT, self.run, self.run)[0],
                seconds=((ended_ns or time.time_ns()) - started_ns) / 1e9,
                ledger=str(self.path),
                report=report,
                stopped=None if stopped is None else name_of(stopped),
                warnings=tuple(islice(self._warnings(self.run, since=self.run), _TROUBLES_SHOWN)),
                warning_count=self._one(queries.WARNING_COUNT, self.run, self.run)[0],
            )

    def _warnings(self, walked: int, *, since: int) -> Iterator[Warned]:
        found = self._rows(queries.WARNINGS, {"run": walked, "since": since})
        return map(rows.warned, found)

    def _first_troubles(self) -> tuple[Trouble, ...]:
        failures = self._pages(queries.FAILURES, self.run)
        return tuple(islice(chain(self.troubles(), failures), _TROUBLES_SHOWN))

    def _last_walked(self) -> int:
        return int(self._one(queries.LAST_WALKED)[0])

    def _tallies(self, query: str, run: int) -> dict[Any, Tally]:
        return {row[0]: rows.tally(row) for row in self._all(query, run)}

    def _pages(self, query: str, run: int) -> Iterator[Trouble]:
        return map(rows.trouble, self._rows(query, {"run": run}))

    def _rows(self, query: str, parameters: dict[str, int]) -> Iterator[rows.Row]:
        """Rows of a long list, a page at a time; their first column is the one that orders them."""
        after = 0
        while True:
            with explained(self.path):
                page = self._connection.execute(
                    query, {"after": after, "limit": _PAGE} | parameters
                ).fetchall()
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1][0]

    def _find(self, query: str, name: str) -> rows.Row | None:
        row: rows.Row | None = self._connection.execute(query, (sql_name(name),)).fetchone()
        return row

    def _one(self, query: str, *parameters: object) -> rows.Row:
        return self._all(query, *parameters)[0]

    def _all(self, query: str, *parameters: object) -> list[rows.Row]:
        with explained(self.path):
            return self._connection.execute(query, parameters).fetchall()


def refuse_other_binding(path: Path, bound: tuple[str, str], wanted: tuple[str, str]) -> None:
    """Raise UsageError where a ledger's source and destination are not those that are wanted."""
    if bound == wanted:
        return
    raise UsageError(
        f"{path}: two configs on one ledger: it belongs to {' -> '.join(bound)} and this config"
        f" says {' -> '.join(wanted)}; give this config its own `ledger:`"
    )


def met(source: Source) -> dict[str, object]:
    """Return a source as the parameters of the queries that ask or tell about it."""
    return {
        "relpath": sql_name(source.relpath),
        "size": source.size,
        "mtime_ns": source.mtime_ns,
        "mode": source.mode,
    }


def enrolled(source: Source, placed: Placed) -> dict[str, object]:
    """Return a member's place as the parameters of the queries that tell about it."""
    return {
        "relpath": sql_name(source.relpath),
        "stem": sql_name(placed.stem),
        "axes": json.dumps(placed.axes),
        "layout": placed.layout,
        "found": placed.found,
        "place": json.dumps(placed.values),
        "identity": json.dumps(placed.identity),
    }


def _settles(row: rows.Row | None, source: Source, others: Others, stands: Stands) -> bool:
    if row is None:
        return False
    size, mtime_ns, state, archive, archive_nbytes = row
    if (size, mtime_ns) != (source.size, source.mtime_ns):
        return False
    if state == "archived":
        return stands(name_of(archive), archive_nbytes)
    return bool(state == "reported" and others == "report")
