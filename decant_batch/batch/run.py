"""One run: the order of steps, and nothing else decided.

walk -> what the ledger has not settled -> survey on workers -> plan -> perform on workers, by
memory -> record. Packing starts while the walk goes on (see ``flow``).
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import replace

from decant_batch.batch import discover, memory, publish
from decant_batch.batch.config import Config
from decant_batch.batch.discover import Excluded
from decant_batch.batch.engine import Engine
from decant_batch.batch.flow import Flow, Watch
from decant_batch.batch.ledger import Ledger
from decant_batch.batch.model import Roots, Source, Summary, Tally, Trouble
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
        After everything was put in order; what was finished is kept.
    """
    roots = roots_of(config)
    found = walk(config)  # a missing root is told before anything is made
    _check_destination(config)
    with Ledger.open(
        config.ledger,
        source=roots.source,
        destination=roots.destination,
        config=config.as_json(),
    ) as ledger:
        _sweep(ledger, roots)
        try:
            stopped, excluded = _engaged(config, roots, ledger, found, watch)
        except KeyboardInterrupt:
            ledger.finish("interrupted")
            publish.sweep(roots, ledger.leftovers())
            raise
        _sweep(ledger, roots)  # workers that died, archives that failed
        ledger.finish(stopped)
        return replace(ledger.summary(), excluded=excluded)


def _engaged(
    config: Config,
    roots: Roots,
    ledger: Ledger,
    found: Iterator[Source | Trouble | Excluded],
    watch: Watch,
) -> tuple[str | None, Tally]:
    """Run with workers; why the run stopped early, and what rules left out."""
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
        flow.go()
    return flow.stopped, flow.excluded


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


def _check_destination(config: Config) -> None:
    folder = config.destination
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise Unusable(
            f"{folder}: the destination cannot be written ({error.strerror}); make it writable or"
            " name another under `destination:`"
        ) from error


def _sweep(ledger: Ledger, roots: Roots) -> None:
    """Remove what attempts that did not end well left at their temporary names."""
    ledger.swept(publish.sweep(roots, ledger.leftovers()))
