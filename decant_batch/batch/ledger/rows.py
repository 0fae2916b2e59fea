"""What is read out of the ledger: small frozen values, one class for each kind of row."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from decant_batch.archive.many import Many
from decant_batch.archive.model import Mode, Reason
from decant_batch.batch.ledger.database import name_of
from decant_batch.batch.model import (
    Enrolled,
    EnrolledMember,
    FailureClass,
    Source,
    State,
    Tally,
    Trouble,
    Warned,
)

# Where a source stands in the ledger: ``waiting`` until a run has finished it.
Standing = State | Literal["waiting"]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """One run, the latest included; ``states`` is what it left behind, empty while it goes on.

    ``ended_ns`` is None for a run that goes on or died unnoticed; ``walked`` says whether its walk
    reached the end of the share; ``stopped`` why it ended before its end, if it did.
    """

    run: int
    started_ns: int
    ended_ns: int | None
    host: str
    pid: int
    version: str
    walked: bool
    stopped: str | None
    states: dict[Standing, Tally]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """One source as the latest run that met it saw it, and where it stands.

    ``archive`` is relative to the destination; ``run`` is the run that finished it.
    """

    relpath: str
    size: int
    mtime_ns: int
    state: Standing
    archive: str | None
    reason: Reason | None
    detail: str
    failure: FailureClass | None
    message: str
    run: int | None
    seen_run: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRow:
    """One published archive: which version of which source it holds, who verified it and when.

    ``path`` is relative to the destination; ``size``, ``mtime_ns`` and ``sha256`` are the
    source's, ``nbytes`` is the archive's.
    """

    path: str
    relpath: str
    version: int
    size: int
    mtime_ns: int
    sha256: str
    mode: Mode
    reason: Reason | None
    detail: str
    nbytes: int
    adopted: bool
    verified_ns: int
    verified_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at one job. ``outcome`` is a state, ``started`` while it goes on, or ``lost``."""

    run: int
    relpath: str
    archive: str
    mode: Mode
    started_ns: int
    ended_ns: int | None
    outcome: State | Literal["started", "lost"]
    failure: FailureClass | None
    message: str
    worker: str
    projected_bytes: int
    peak_bytes: int
    seconds: float


def past_run(row: Row, states: dict[Standing, Tally]) -> PastRun:
    """Return a row of ``queries.RUNS`` as a value."""
    run, started_ns, ended_ns, host, pid, version, walked, stopped = row
    return PastRun(
        run=run,
        started_ns=started_ns,
        ended_ns=ended_ns,
        host=host,
        pid=pid,
        version=version,
        walked=bool(walked),
        stopped=None if stopped is None else name_of(stopped),
        states=states,
    )


def source_row(row: Row) -> SourceRow:
    """Return a row of ``queries.SOURCE`` as a value."""
    relpath, size, mtime_ns, state, archive, reason, detail, failure, message, run, seen_run = row
    return SourceRow(
        relpath=name_of(relpath),
        size=size,
        mtime_ns=mtime_ns,
        state=state,
        archive=None if archive is None else name_of(archive),
        reason=reason,
        detail=name_of(detail),
        failure=failure,
        message=name_of(message),
        run=run,
        seen_run=seen_run,
    )


def archive_row(row: Row) -> ArchiveRow:
    """Return a row of ``queries.ARCHIVE`` as a value."""
    path, relpath, version, size, mtime_ns, sha256, mode, reason, detail, *rest = row
    nbytes, adopted, verified_ns, verified_by = rest
    return ArchiveRow(
        path=name_of(path),
        relpath=name_of(relpath),
        version=version,
        size=size,
        mtime_ns=mtime_ns,
        sha256=sha256,
        mode=mode,
        reason=reason,
        detail=name_of(detail),
        nbytes=nbytes,
        adopted=bool(adopted),
        verified_ns=verified_ns,
        verified_by=verified_by,
    )


def attempt(row: Row) -> Attempt:
    """Return a row of ``queries.ATTEMPTS`` as a value."""
    run, relpath, archive, mode, started_ns, ended_ns, outcome, failure, message, *rest = row
    worker, projected_bytes, peak_bytes, seconds = rest
    return Attempt(
        run=run,
        relpath=name_of(relpath),
        archive=name_of(archive),
        mode=mode,
        started_ns=started_ns,
        ended_ns=ended_ns,
        outcome=outcome,
        failure=failure,
        message=name_of(message),
        worker=worker,
        projected_bytes=projected_bytes,
        peak_bytes=peak_bytes,
        seconds=seconds,
    )


def enrolled(series: Row, members: Iterable[Row]) -> Enrolled:
    """Return rows of ``queries.SERIES`` and ``queries.MEMBERS`` as a value."""
    stem, axes, layout, found, staging = series
    return Enrolled(
        stem=name_of(stem),
        axes=tuple(json.loads(axes)),
        layout=layout,
        found=found,
        staging=None if staging is None else name_of(staging),
        members=Many(map(_enrolled_member, members)),
    )


def _enrolled_member(row: Row) -> EnrolledMember:
    relpath, size, mtime_ns, mode, place, identity, bundle, sha256, nbytes, is_current = row
    return EnrolledMember(
        source=Source(relpath=name_of(relpath), size=size, mtime_ns=mtime_ns, mode=mode),
        values=tuple(json.loads(place)),
        identity=identity,
        bundle=name_of(bundle) if bundle is not None and is_current else None,
        sha256=sha256 or "",
        nbytes=nbytes or 0,
    )


def tally(row: Row) -> Tally:
    """Return a row of one of the tallies, without its key, as a value."""
    _key, count, source_nbytes, archive_nbytes = row
    return Tally(count=count, source_nbytes=source_nbytes, archive_nbytes=archive_nbytes)


def trouble(row: Row) -> Trouble:
    """Return a row of ``queries.FAILURES`` or ``queries.TROUBLES`` as a value."""
    _id, relpath, failure, message = row
    return Trouble(relpath=name_of(relpath), failure=failure, message=name_of(message))


def warned(row: Row) -> Warned:
    """Return a row of ``queries.WARNINGS`` as a value."""
    _id, relpath, message = row
    return Warned(relpath=name_of(relpath), message=name_of(message))
