"""What a run and a ledger have to say: plain text for people, JSON for programs.

Texts are aligned and hold no control characters, so they read the same on a terminal, in a pipe
and in a mail; the command line adds colour. Bytes are given to the byte where they are a balance:
its lines sum to its total.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

from decant_batch.archive.model import Mode
from decant_batch.batch.model import (
    FailureClass,
    State,
    Summary,
    Tally,
    Trouble,
    Warned,
    Why,
)
from decant_batch.errors import Unusable
from decant_batch.ui.quantities import (
    bytes_text,
    count_text,
    duration_text,
    printable,
    saved_text,
)

STATES: tuple[State, ...] = get_args(State)
MODES: tuple[Mode, ...] = get_args(Mode)

# What to do about a failure, by its class.
NEXT_STEP: dict[FailureClass, str] = {
    "transient": "a passing problem of the share or a worker: run again, they are tried again",
    "poison": "their worker died more than once: raise cluster.memory, or exclude them",
    "permanent": "trying again does not help until the cause below is removed; then run again",
    "destination": "free space in the destination, or make it writable; then run again",
}
# Names for what is left out; our own folders are nobody's data.
_LEFT_OUT: dict[Why, str] = {
    "hidden": "hidden",
    "litter": "litter of systems",
    "excluded": "excluded",
    "not-included": "not included",
    "symlink": "symlinks",
    "special": "pipes, sockets and devices",
    "loop": "folders inside themselves",
}
# So many failures of one class are named; the report has the rest.
_NAMED = 5


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[int] = (0,)) -> str:
    """Rows under their head: the columns of ``words`` to the left, numbers to the right."""
    lines = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at in words else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum of ``tallies``."""
    listed = list(tallies)
    return Tally(
        count=sum(tally.count for tally in listed),
        source_nbytes=sum(tally.source_nbytes for tally in listed),
        archive_nbytes=sum(tally.archive_nbytes for tally in listed),
    )


def balance_text(states: Mapping[State, Tally], waiting: Tally | None = None) -> str:
    """Every source found, in exactly one state; the lines sum to the total.

    Only a run that was stopped has sources ``waiting``.
    """
    rows = [tally_row(state, states.get(state, Tally())) for state in STATES]
    left = waiting or Tally()
    if left.count:
        rows.append(tally_row("waiting", left))
    whole = tally_row("total", total((*states.values(), left)))
    balance = table(("state", "sources", "bytes", "", "archives"), [*rows, whole])
    return "\n".join(filter(None, (balance, changing_text(states))))


def changing_text(states: Mapping[State, Tally]) -> str:
    """What «changing» means, where there are any."""
    if not states.get("changing", Tally()).count:
        return ""
    return "changing: younger than `settle`, or they moved while they were read; left for next run"


def modes_text(modes: Mapping[Mode, Tally], reasons: Mapping[str, int]) -> str:
    """How the archives hold their sources, what that saves, and why some are verbatim."""
    rows = [
        (*tally_row(mode, tally), saved_text(tally.source_nbytes, tally.archive_nbytes))
        for mode, tally in ((mode, modes.get(mode, Tally())) for mode in MODES)
        if tally.count
    ]
    if not rows:
        return ""
    text = table(("mode", "sources", "bytes", "", "archives", "saved"), rows)
    return "\n".join(filter(None, (text, reasons_text(reasons))))


def reasons_text(reasons: Mapping[str, int]) -> str:
    """Why sources are kept verbatim, the most frequent reason first."""
    if not reasons:
        return ""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return "verbatim because: " + ", ".join(f"{reason} {count:,}" for reason, count in ordered)


def troubles_text(troubles: Sequence[Trouble], count: int) -> str:
    """What failed, by cause, each with the next step; the first few of each by name."""
    if not count:
        return ""
    lines = [f"{count_text(count, 'problem')}:"]
    for failure in get_args(FailureClass):
        of_class = [trouble for trouble in troubles if trouble.failure == failure]
        if not of_class:
            continue
        lines.append(f"  {failure}: {NEXT_STEP[failure]}")
        lines += [
            f"    {printable(trouble.relpath)}: {printable(trouble.message)}"
            for trouble in of_class[:_NAMED]
        ]
        if len(of_class) > _NAMED:
            lines.append(f"    and {len(of_class) - _NAMED:,} more of these")
    if count > len(troubles):
        lines.append(f"  and {count - len(troubles):,} more, named in the ledger")
    return "\n".join(lines)


def warnings_text(warnings: Sequence[Warned], count: int) -> str:
    """What archives do not tell of their sources, the first few by name."""
    if not count:
        return ""
    lines = [
        f"{count_text(count, 'source')} of which viewers are not told all (every byte is kept):"
    ]
    lines += [
        f"  {printable(each.relpath)}: {printable(each.message)}" for each in warnings[:_NAMED]
    ]
    if len(warnings) > _NAMED or count > len(warnings):
        lines.append("  and more, listed by `decant-batch status --json`")
    return "\n".join(lines)


def left_out_text(left_out: Mapping[Why, Tally]) -> str:
    """What the walk passed over, by the reason; a folder counts once, whatever is in it."""
    parts = [
        f"{words} {left_out[why].count:,}"
        + (f" ({bytes_text(left_out[why].source_nbytes)})" if left_out[why].source_nbytes else "")
        for why, words in _LEFT_OUT.items()
        if why in left_out
    ]
    return f"left out: {', '.join(parts)}" if parts else ""


def summary_text(summary: Summary) -> str:
    """What a run did, as its last words."""
    seconds = duration_text(summary.seconds)
    title = f"run {summary.run} finished in {seconds}"
    if summary.stopped:
        title = f"run {summary.run} stopped after {seconds}: {printable(summary.stopped)}"
    return blocks(
        title,
        balance_text(summary.states, summary.waiting),
        _settled_text(summary.settled),
        _adopted_text(summary.adopted),
        left_out_text(summary.left_out),
        modes_text(summary.modes, summary.reasons),
        warnings_text(summary.warnings, summary.warning_count),
        troubles_text(summary.troubles, summary.trouble_count),
        lines_of(
            ("ledger", printable(summary.ledger)), ("report", printable(summary.report or ""))
        ),
    )


def summary_values(summary: Summary) -> dict[str, Any]:
    """``summary`` for JSON; every state is there, also at zero."""
    return {
        **asdict(summary),
        "found": asdict(total((*summary.states.values(), summary.waiting))),
        "states": {state: asdict(summary.states.get(state, Tally())) for state in STATES},
        "modes": {mode: asdict(summary.modes.get(mode, Tally())) for mode in MODES},
    }


def json_text(values: object, *, indent: int | None = None) -> str:
    """``values`` as JSON in plain ASCII, so that no name can break an output."""
    return json.dumps(values, ensure_ascii=True, indent=indent)


def write(summary: Summary) -> Summary:
    """``summary`` with the path of its report, written beside the ledger in one step.

    Raises
    ------
    Unusable
        The report cannot be written.
    """
    ledger = Path(summary.ledger)
    path = ledger.with_name(f"{ledger.stem}-report-{summary.run}.json")
    unfinished = ledger.with_name(f".{path.name}.{os.getpid()}.tmp")
    reported = replace(summary, report=str(path))
    text = json_text(summary_values(reported), indent=2) + "\n"
    try:
        unfinished.write_text(text, encoding="ascii")
        unfinished.replace(path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink()
        raise Unusable(
            f"{path}: the report cannot be written ({error.strerror}); the archives and the "
            "ledger are complete, make room or permit writing and run again"
        ) from error
    return reported


def blocks(*texts: str) -> str:
    """``texts`` with an empty line between them, the empty ones left out."""
    return "\n\n".join(filter(None, texts))


def lines_of(*pairs: tuple[str, str]) -> str:
    """Names and what they stand for, one pair a line, those that stand for nothing left out."""
    shown = [(name, text) for name, text in pairs if text]
    width = max((len(name) for name, _ in shown), default=0)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in shown)


def tally_row(name: str, tally: Tally) -> tuple[str, ...]:
    """``tally`` for a table: name, sources, exact bytes, the same rounded, bytes of archives."""
    size = bytes_text(tally.source_nbytes)
    archives = bytes_text(tally.archive_nbytes) if tally.archive_nbytes else "-"
    return (name, f"{tally.count:,}", f"{tally.source_nbytes:,}", size, archives)


def _settled_text(settled: Tally) -> str:
    return _of_these(settled, "settled by earlier runs, and not opened")


def _adopted_text(adopted: Tally) -> str:
    return _of_these(adopted, "in archives that stood already, which were proved and kept")


def _of_these(tally: Tally, what: str) -> str:
    if not tally.count:
        return ""
    return f"of these, {tally.count:,} ({bytes_text(tally.source_nbytes)}) {what}"
