"""One run: the order of steps, and nothing else decided.

walk -> what the ledger has not settled -> survey on workers -> plan -> perform on workers, by
memory -> record. Packing starts while the walk goes on (see ``flow``).
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from decant_batch.batch import discover, memory, publish
from decant_batch.batch.config import Config
from decant_batch.batch.engine import Engine
from decant_batch.batch.flow import Flow, Watch
from decant_batch.batch.ledger import Ledger
from decant_batch.batch.model import (
    INTERRUPTED,
    Excluded,
    Roots,
    Source,
    Summary,
    Tally,
    Trouble,
    Why,
)
from decant_batch.batch.plan import Terms
from decant_batch.errors import Unusable, UsageError

# Dask ends a worker at 95 % of its limit; what is planned stays below that.
_USABLE_SHARE = 0.9


def execute(config: Config, *, watch: Watch) -> Summary:
    """Do the whole of a config's work and say what was done; ``watch`` is told where it stands.

    Raises
    ------
    UsageError
        The source root is missing, or the ledger belongs to another config.
    LedgerHeld
        Another run that lives holds the ledger.
    Unusable
        Destination or ledger cannot be used.
    KeyboardInterrupt
        Before or after the work itself. An interrupt in its midst gives a summary that is stopped.
    """
    roots = roots_of(config)
    found = walk(config)  # a missing root is told before anything is made
    _make_destination(config)
    with Ledger.open(
        config.ledger,
        source=roots.source,
        destination=roots.destination,
        config=config.as_json(),
    ) as ledger:
        _sweep(ledger, roots)
        try:
            stopped, left_out = _engaged(config, roots, ledger, found, watch)
        except KeyboardInterrupt:  # while workers start or end
            ledger.finish(INTERRUPTED)
            publish.sweep(roots, ledger.leftovers())
            raise
        if stopped is None:  # the walk has met all members that there are
            ledger.unstaged(publish.sweep(roots, ledger.abandoned()))
        _sweep(ledger, roots)  # workers that died, archives that failed
        ledger.finish(stopped)
        publish.sweep(roots, ledger.leftovers())  # what was still open when the run was stopped
        return replace(ledger.summary(), left_out=left_out)


def _engaged(
    config: Config,
    roots: Roots,
    ledger: Ledger,
    found: Iterator[Source | Trouble | Excluded],
    watch: Watch,
) -> tuple[str | None, dict[Why, Tally]]:
    """Run with workers; why the run stopped early, and what the walk left out."""
    with Engine(workers=config.cluster.workers, memory_bytes=config.cluster.memory) as engine:
        flow = Flow(
            config=config,
            roots=roots,
            ledger=ledger,
            engine=engine,
            terms=terms_of(config, engine.reserved_bytes()),
            watch=watch,
            found=found,
        )
        try:
            flow.go()
        except KeyboardInterrupt:
            flow.stopped = INTERRUPTED
    return flow.stopped, flow.left_out


def roots_of(config: Config) -> Roots:
    """The run's folders, as workers are told them."""
    return Roots(source=str(config.source), destination=str(config.destination))


def terms_of(config: Config, reserved: int) -> Terms:
    """What the plan depends on; ``reserved`` is what an idle worker takes, in bytes."""
    allowed = int(config.cluster.memory * _USABLE_SHARE)
    if reserved + memory.CREEP_NBYTES >= allowed:
        raise UsageError(
            f"cluster.memory: {config.cluster.memory} bytes per worker, and an idle worker takes"
            f" {reserved}; write more, like 1GiB"
        )
    return Terms(
        recipe=config.recipe,
        others=config.others,
        allowed=allowed,
        reserved=reserved + memory.CREEP_NBYTES,
    )


def walk(config: Config) -> Iterator[Source | Trouble | Excluded]:
    """What stands on the share, by the config's rules.

    Raises
    ------
    UsageError
        At once, where the root is missing, cannot be read, or is empty.
    """
    found = discover.walk(
        config.source,
        skip=(config.destination, config.ledger.parent),
        include=config.include,
        exclude=config.exclude,
        hidden=config.hidden,
        litter=config.litter,
    )
    first = next(found, None)
    if first is None:  # most likely the folder where a share is not mounted
        raise UsageError(f"{config.source}: is empty; mount the share, or correct `source:`")
    return itertools.chain([first], found)


def refuse_destination(config: Config) -> None:
    """Refuse a destination that cannot be a folder or be written, as far as can be seen.

    Raises
    ------
    UsageError
        Where a file stands in its place or above it.
    Unusable
        Where it may not be written.
    """
    folder = config.destination
    stands = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if not stands.is_dir():
        raise UsageError(f"{stands}: is no folder; name one under `destination:`")
    if not os.access(stands, os.W_OK | os.X_OK):
        raise _unwritable(stands, "Permission denied")


def _make_destination(config: Config) -> None:
    refuse_destination(config)
    try:
        config.destination.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=config.destination).close()
    except OSError as error:
        raise _unwritable(config.destination, error.strerror or str(error)) from error


def _unwritable(folder: Path, why: str) -> Unusable:
    return Unusable(
        f"{folder}: the destination cannot be written ({why}); make it writable or name another"
        " under `destination:`"
    )


def _sweep(ledger: Ledger, roots: Roots) -> None:
    """Remove what attempts that did not end well left at their temporary names."""
    ledger.swept(publish.sweep(roots, ledger.leftovers()))
