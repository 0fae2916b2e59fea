"""What a run would do: sums over a plan, which is met once and not kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from decant_batch.archive.model import Mode
from decant_batch.batch.model import Job, Outcome, State, Tally, Trouble
from decant_batch.ui.quantities import bytes_text, printable
from decant_batch.ui.report import (
    MODES,
    STATES,
    add,
    blocks,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a run would do: archives to make by mode, and what needs none by state.

    ``largest`` is the job that needs the most memory.
    """

    modes: Mapping[Mode, Tally]
    reasons: Mapping[str, int]
    states: Mapping[State, Tally]
    largest: Job | None
    troubles: tuple[Trouble, ...]


def forecast(items: Iterable[Job | Outcome]) -> Forecast:
    """The sums over ``items``, which are met once and not kept."""
    modes: dict[Mode, Tally] = {}
    states: dict[State, Tally] = {}
    reasons: Counter[str] = Counter()
    largest: Job | None = None
    troubles: list[Trouble] = []
    for item in items:
        if isinstance(item, Job):
            modes[item.mode] = add(modes.get(item.mode, Tally()), item.source.size)
            reasons.update([item.reason] if item.reason else [])
            largest = max(filter(None, (largest, item)), key=lambda job: job.projected_bytes)
            continue
        tally = states.get(item.state, Tally())
        states[item.state] = add(tally, item.source.size, item.archive_nbytes)
        if item.state == "failed":
            troubles.append(_trouble(item))
    return Forecast(
        modes=modes,
        reasons=dict(reasons),
        states=states,
        largest=largest,
        troubles=tuple(troubles),
    )


def forecast_text(plan: Forecast) -> str:
    """What a run would do, with the total of all that was found."""
    rows = [_plan_row(f"make, {mode}", plan.modes[mode]) for mode in MODES if mode in plan.modes]
    for state, words in _PLANNED.items():
        if state in plan.states:
            rows.append(_plan_row(words, plan.states[state]))
    rows.append(_plan_row("total", total((*plan.modes.values(), *plan.states.values()))))
    return blocks(
        "nothing was written; a run would:",
        table(("", "sources", "bytes", ""), rows),
        reasons_text(plan.reasons),
        _largest_text(plan.largest),
        troubles_text(plan.troubles, len(plan.troubles)),
    )


def forecast_values(plan: Forecast) -> dict[str, Any]:
    """``plan`` for JSON; ``memory_bytes`` is what the hungriest job needs of its worker."""
    return {
        "found": asdict(total((*plan.modes.values(), *plan.states.values()))),
        "make": {mode: asdict(plan.modes.get(mode, Tally())) for mode in MODES},
        "reasons": dict(plan.reasons),
        "states": {state: asdict(plan.states.get(state, Tally())) for state in STATES},
        "memory_bytes": plan.largest.projected_bytes if plan.largest else 0,
        "troubles": [asdict(trouble) for trouble in plan.troubles],
    }


def planned_line(item: Job | Outcome) -> str:
    """One source of a plan and what would become of it."""
    name, size = printable(item.source.relpath), bytes_text(item.source.size)
    if isinstance(item, Outcome):
        words, why = _PLANNED[item.state], item.message or item.reason or ""
    else:
        words = f"make, {item.mode}"
        why = ", ".join(filter(None, (item.reason, f"memory {bytes_text(item.projected_bytes)}")))
        # Elsewhere than its source says: a further version, or a name that was taken.
        if item.archive not in (f"{item.source.relpath}.zarr.zip", f"{item.source.relpath}.zarr"):
            name += f" -> {printable(item.archive)}"
    return f"{words:<22} {size:>10}  {name}" + (f"  ({printable(why)})" if why else "")


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
