"""Where every source of a share stands, read from its ledger alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import Any

from decant_batch.batch.config import Config
from decant_batch.batch.ledger import Holder, Ledger, PastRun, Standing
from decant_batch.batch.model import Tally, Trouble, Warned
from decant_batch.ui.quantities import bytes_text, count_text, date_text, duration_text, printable
from decant_batch.ui.report import (
    NEXT_STEP,
    STATES,
    blocks,
    lines_of,
    table,
    tally_row,
    total,
    troubles_text,
    warnings_text,
)

_RUNS_SHOWN = 5
_TROUBLES_SHOWN = 20
_WARNINGS_SHOWN = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a ledger holds at one moment.

    ``vanished`` are sources of earlier runs that are no longer found; ``troubles`` the first of
    ``trouble_count`` failed sources and unreadable folders, ``warnings`` the first about
    ``warning_count`` sources. ``holder`` has the run lock, and
    ``goes_on`` says whether it still lives.
    """

    ledger: str
    source: str
    destination: str
    states: Mapping[Standing, Tally]
    vanished: Tally
    troubles: tuple[Trouble, ...]
    trouble_count: int
    warnings: tuple[Warned, ...]
    warning_count: int
    runs: tuple[PastRun, ...]
    holder: Holder | None
    goes_on: bool


def status_of(config: Config) -> Status:
    """What the ledger of a config holds now.

    Raises
    ------
    UsageError
        There is no ledger yet, or it belongs to another config.
    Unusable
        It cannot be read.
    """
    path = config.ledger
    with Ledger.read(path) as ledger:
        ledger.refuse_other(str(config.source), str(config.destination))
        source, destination = ledger.binding()
        holder = ledger.holder()
        unreadable = tuple(ledger.troubles())
        failed = sum(tally.count for tally in ledger.causes().values())
        return Status(
            ledger=str(path),
            source=source,
            destination=destination,
            states=ledger.standings(),
            vanished=ledger.vanished(),
            troubles=tuple(islice(chain(unreadable, ledger.failures()), _TROUBLES_SHOWN)),
            trouble_count=failed + len(unreadable),
            warnings=tuple(islice(ledger.warnings(), _WARNINGS_SHOWN)),
            warning_count=ledger.warning_count(),
            runs=ledger.runs(_RUNS_SHOWN),
            holder=holder,
            goes_on=holder is not None and holder.lives(time.time_ns()),
        )


def listed(config: Config) -> Iterator[dict[str, Any]]:
    """Every source that the ledger knows and where it stands: ``vanished`` where no longer found.

    ``why`` is the reason, or what someone can do about it.
    """
    with Ledger.read(config.ledger) as ledger:
        walked = ledger.last_walked()
        for row in ledger.sources():
            yield {
                "relpath": row.relpath,
                "size": row.size,
                "state": row.state if row.seen_run >= walked else "vanished",
                "archive": row.archive,
                "why": row.message or row.reason or "",
            }


def listed_line(entry: Mapping[str, Any]) -> str:
    """One entry of ``listed`` in one line."""
    why = f"  ({printable(entry['why'])})" if entry["why"] else ""
    size = bytes_text(entry["size"])
    return f"{entry['state']:<9} {size:>10}  {printable(entry['relpath'])}{why}"


def status_text(status: Status) -> str:
    """The balance of all sources, what is wrong, and the last runs."""
    return blocks(
        lines_of(
            ("ledger", printable(status.ledger)),
            ("source", printable(status.source)),
            ("destination", printable(status.destination)),
        ),
        _holder_text(status),
        _states_text(status.states),
        _vanished_text(status.vanished),
        warnings_text(status.warnings, status.warning_count),
        troubles_text(status.troubles, status.trouble_count),
        _runs_text(status),
    )


def status_values(status: Status) -> dict[str, Any]:
    """``status`` for JSON; every state is there, also at zero."""
    names: tuple[Standing, ...] = (*STATES, "waiting")
    return {
        **asdict(status),
        "found": asdict(total(status.states.values())),
        "states": {name: asdict(status.states.get(name, Tally())) for name in names},
        "next_steps": {trouble.failure: NEXT_STEP[trouble.failure] for trouble in status.troubles},
    }


def _holder_text(status: Status) -> str:
    holder = status.holder
    if holder is None:
        return ""
    where = f"on {printable(holder.host)}, process {holder.pid}"
    if status.goes_on:
        return (
            f"run {holder.run} is at work {where}, last heard of {date_text(holder.heartbeat_ns)}"
        )
    return f"run {holder.run} {where} died; the next run takes over where it stopped"


def _states_text(states: Mapping[Standing, Tally]) -> str:
    rows = [tally_row(state, states.get(state, Tally())) for state in STATES]
    if "waiting" in states:
        rows.append(tally_row("waiting", states["waiting"]))
    whole = tally_row("total", total(states.values()))
    return table(("state", "sources", "bytes", "", "archives"), [*rows, whole])


def _vanished_text(vanished: Tally) -> str:
    if not vanished.count:
        return ""
    size = bytes_text(vanished.source_nbytes)
    return (
        f"vanished: {count_text(vanished.count, 'source')} ({size}) that earlier runs met, and the"
        " last whole walk did not; their archives are kept"
    )


def _runs_text(status: Status) -> str:
    head = ("run", "began", "took", "archived", "failed", "how it ended")
    rows = [_run_row(run, status) for run in status.runs]
    return table(head, rows, words=(1, 5))


def _run_row(run: PastRun, status: Status) -> Sequence[str]:
    took = "-" if run.ended_ns is None else duration_text((run.ended_ns - run.started_ns) / 1e9)
    count = [f"{run.states.get(state, Tally()).count:,}" for state in ("archived", "failed")]
    return (f"{run.run}", date_text(run.started_ns), took, *count, _ending(run, status))


def _ending(run: PastRun, status: Status) -> str:
    if run.ended_ns is None:
        holds = status.holder is not None and status.holder.run == run.run
        return "at work" if holds and status.goes_on else "died"
    if run.stopped is not None:
        return f"stopped: {printable(run.stopped)}"
    return "whole share" if run.walked else "before the walk's end"
