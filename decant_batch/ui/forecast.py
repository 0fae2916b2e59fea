"""What a run would do: sums over a plan, which is met once and not kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from decant_batch.archive.model import Mode
from decant_batch.batch.model import Excluded, Job, Outcome, State, Tally, Trouble, Why
from decant_batch.batch.preview import Planned, Standing
from decant_batch.ui.quantities import bytes_text, printable
from decant_batch.ui.report import (
    MODES,
    STATES,
    blocks,
    left_out_text,
    reasons_text,
    table,
    tally_row,
    total,
    troubles_text,
)

_PLANNED: dict[State, str] = {
    "archived": "keep, archived",
    "reported": "only report",
    "changing": "leave, still changing",
    "failed": "fail",
}
_STANDING = "compare, archive stands"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a run would do: archives to make by mode, and what needs none by state.

    ``standing`` are sources for whose contents an archive that stands is to be compared;
    ``largest`` is the job that needs the most memory; ``left_out`` is what the walk passed over.
    """

    modes: Mapping[Mode, Tally]
    reasons: Mapping[str, int]
    states: Mapping[State, Tally]
    standing: Tally
    left_out: Mapping[Why, Tally]
    largest: Job | None
    troubles: tuple[Trouble, ...]


def forecast(items: Iterable[Planned]) -> Forecast:
    """The sums over ``items``, which are met once and not kept."""
    modes: dict[Mode, Tally] = {}
    states: dict[State, Tally] = {}
    left_out: dict[Why, Tally] = {}
    standing = Tally()
    reasons: Counter[str] = Counter()
    largest: Job | None = None
    troubles: list[Trouble] = []
    for item in items:
        if isinstance(item, Excluded):
            left_out[item.why] = left_out.get(item.why, Tally()).plus(item.size)
            continue
        if isinstance(item, Standing):
            standing = standing.plus(item.source.size)
            continue
        if isinstance(item, Job):
            modes[item.mode] = modes.get(item.mode, Tally()).plus(item.source.size)
            reasons.update([item.reason] if item.reason else [])
            largest = max(filter(None, (largest, item)), key=lambda job: job.projected_bytes)
            continue
        tally = states.get(item.state, Tally())
        states[item.state] = tally.plus(item.source.size, item.archive_nbytes)
        if item.state == "failed":
            troubles.append(_trouble(item))
    return Forecast(
        modes=modes,
        reasons=dict(reasons),
        states=states,
        standing=standing,
        left_out=left_out,
        largest=largest,
        troubles=tuple(troubles),
    )


def forecast_text(plan: Forecast) -> str:
    """What a run would do, with the total of all that was found."""
    rows = [_plan_row(f"make, {mode}", plan.modes[mode]) for mode in MODES if mode in plan.modes]
    for state, words in _PLANNED.items():
        if state in plan.states:
            rows.append(_plan_row(words, plan.states[state]))
    if plan.standing.count:
        rows.append(_plan_row(_STANDING, plan.standing))
    rows.append(_plan_row("total", _found(plan)))
    return blocks(
        "nothing was written; a run would:",
        table(("", "sources", "bytes", ""), rows),
        reasons_text(plan.reasons),
        left_out_text(plan.left_out),
        _largest_text(plan.largest),
        troubles_text(plan.troubles, len(plan.troubles)),
    )


def forecast_values(plan: Forecast) -> dict[str, Any]:
    """``plan`` for JSON; ``memory_bytes`` is what the hungriest job needs of its worker."""
    return {
        "found": asdict(_found(plan)),
        "make": {mode: asdict(plan.modes.get(mode, Tally())) for mode in MODES},
        "reasons": dict(plan.reasons),
        "states": {state: asdict(plan.states.get(state, Tally())) for state in STATES},
        "compare": asdict(plan.standing),
        "left_out": {why: asdict(tally) for why, tally in plan.left_out.items()},
        "memory_bytes": plan.largest.projected_bytes if plan.largest else 0,
        "troubles": [asdict(trouble) for trouble in plan.troubles],
    }


def planned_line(item: Planned) -> str:
    """One source of a plan, or what is left out, and what would become of it."""
    relpath, size = _item(item)
    words, why = _words(item)
    archive = item.archive if isinstance(item, Job | Standing) else ""
    name = printable(relpath)
    # Elsewhere than its source says: a further version, or a name that was taken.
    if archive and archive not in (f"{relpath}.zarr.zip", f"{relpath}.zarr"):
        name += f" -> {printable(archive)}"
    return f"{words:<24} {bytes_text(size):>10}  {name}" + (f"  ({printable(why)})" if why else "")


def planned_values(item: Planned) -> dict[str, Any]:
    """One line of ``planned_line`` for JSON."""
    relpath, size = _item(item)
    words, why = _words(item)
    values: dict[str, Any] = {"relpath": relpath, "size": size, "does": words, "why": why}
    if isinstance(item, Job | Standing):
        values["archive"] = item.archive
    if isinstance(item, Job):
        values["memory_bytes"] = item.projected_bytes
    return values


def _item(item: Planned) -> tuple[str, int]:
    if isinstance(item, Excluded):
        return item.relpath, item.size
    return item.source.relpath, item.source.size


def _words(item: Planned) -> tuple[str, str]:
    """What would be done, and why."""
    match item:
        case Excluded():
            return "leave out", item.why
        case Standing():
            return _STANDING, ""
        case Outcome():
            return _PLANNED[item.state], item.message or item.reason or ""
    memory = f"memory {bytes_text(item.projected_bytes)}"
    return f"make, {item.mode}", ", ".join(filter(None, (item.reason, memory)))


def _found(plan: Forecast) -> Tally:
    return total((*plan.modes.values(), *plan.states.values(), plan.standing))


def _plan_row(words: str, tally: Tally) -> tuple[str, ...]:
    return tally_row(words, tally)[:-1]


def _largest_text(job: Job | None) -> str:
    if job is None:
        return ""
    memory = bytes_text(job.projected_bytes)
    return f"most memory for one archive: {memory}, for {printable(job.source.relpath)}"


def _trouble(outcome: Outcome) -> Trouble:
    return Trouble(
        relpath=outcome.source.relpath,
        failure=outcome.failure or "permanent",
        message=outcome.message,
    )
