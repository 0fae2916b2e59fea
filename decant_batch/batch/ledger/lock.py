"""The run lock: one row that says which run may write, and whether that run still lives.

On the holder's own host its process is asked. Of another host only the heartbeat is known: the
row is taken over when it is older than ``STALE_NS``. Should the holder have lived after all (a
suspended machine, two clocks far apart), it finds the row changed at its next write and ends.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from decant_batch.errors import LedgerHeld

STALE_NS = 10 * 60 * 1_000_000_000
# The kernel gives the time of boot in whole seconds.
_START_TOLERANCE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds the lock. ``process_start_s`` is counted from the host's boot."""

    run: int
    host: str
    pid: int
    process_start_s: float
    heartbeat_ns: int

    def lives(self, now_ns: int) -> bool:
        """Say whether the holder may still write, as far as can be known from here."""
        is_fresh = now_ns - self.heartbeat_ns < STALE_NS
        if self.host != socket.gethostname():
            return is_fresh
        start_s = process_start_s(self.pid)
        if start_s is None:
            return is_fresh and _is_hidden(self.pid)
        return abs(start_s - self.process_start_s) <= _START_TOLERANCE_S


def process_start_s(pid: int) -> float | None:
    """Return when a process of this host started, in seconds since boot; None if it is gone.

    Since boot and not since 1970: setting the clock must not make a living run look dead.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.create_time() - psutil.boot_time()
    except psutil.NoSuchProcess:
        return None


def _is_hidden(pid: int) -> bool:
    # Login nodes mount /proc so that other users' processes look as if they were not there.
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def holder_of(connection: sqlite3.Connection) -> Holder | None:
    """Return who holds the lock, dead or alive; None if nobody does."""
    row = connection.execute(
        "SELECT run, host, pid, process_start_s, heartbeat_ns FROM lock"
    ).fetchone()
    if row is None:
        return None
    run, host, pid, start_s, heartbeat_ns = row
    return Holder(run=run, host=host, pid=pid, process_start_s=start_s, heartbeat_ns=heartbeat_ns)


def refuse_if_held(path: Path, connection: sqlite3.Connection) -> Holder | None:
    """Return the dead run whose lock may be taken over, or None if the lock is free.

    Raises
    ------
    LedgerHeld
        The lock's holder lives.
    """
    holder = holder_of(connection)
    if holder is None or not holder.lives(time.time_ns()):
        return holder
    row = connection.execute("SELECT started_ns FROM run WHERE id = ?", (holder.run,)).fetchone()
    msg = (
        f"{path}: held since {clock(row[0])} by run {holder.run} on {holder.host} (process "
        f"{holder.pid}), last heard of {clock(holder.heartbeat_ns)}; wait until it has ended, or "
        "end it there"
    )
    raise LedgerHeld(msg)


def take(connection: sqlite3.Connection, run: int) -> None:
    """Write ``run`` of this process into the lock, whatever stood there."""
    pid = os.getpid()
    start_s = process_start_s(pid)
    assert start_s is not None
    connection.execute(
        "INSERT OR REPLACE INTO lock (id, run, host, pid, process_start_s, heartbeat_ns) "
        "VALUES (1, ?, ?, ?, ?, ?)",
        (run, socket.gethostname(), pid, start_s, time.time_ns()),
    )


def renew(path: Path, connection: sqlite3.Connection, run: int) -> None:
    """Refresh the heartbeat of ``run``, inside the caller's transaction.

    Raises
    ------
    LedgerHeld
        The lock is no longer this run's: it was silent for long, and another took over.
    """
    renewed = connection.execute(
        "UPDATE lock SET heartbeat_ns = ? WHERE run = ?", (time.time_ns(), run)
    )
    if renewed.rowcount == 1:
        return
    holder = holder_of(connection)
    by = f"run {holder.run} on {holder.host} (process {holder.pid})" if holder else "another run"
    msg = (
        f"{path}: run {run} was silent for too long and {by} has taken the ledger over; this run "
        "ends here, the other goes on"
    )
    raise LedgerHeld(msg)


def release(connection: sqlite3.Connection, run: int) -> None:
    """Give the lock back, inside the caller's transaction."""
    connection.execute("DELETE FROM lock WHERE run = ?", (run,))


def clock(time_ns: int) -> str:
    """Return a time for people, to the second, in UTC: hosts need not agree on a time zone."""
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
