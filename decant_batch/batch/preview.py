"""What a run would do, source by source; nothing is written and nothing is packed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from decant_batch.batch import plan, publish, task
from decant_batch.batch.config import Config
from decant_batch.batch.discover import Excluded
from decant_batch.batch.engine import Engine
from decant_batch.batch.flow import is_young, young_outcome
from decant_batch.batch.ledger import Records
from decant_batch.batch.model import Job, Outcome, Source, Trouble
from decant_batch.batch.plan import Terms
from decant_batch.batch.run import roots_of, terms_of, walk
from decant_batch.errors import NameTaken

_BATCH = 256


def preview(config: Config) -> Iterator[Job | Outcome]:
    """What a run would do of each source, in the order of the walk; nothing is written.

    One worker is started and ended, to measure what a worker takes before it has work.

    Raises
    ------
    UsageError, Unusable
        As ``execute`` would.
    """
    found = walk(config)  # a missing root is told before a worker is started
    with Engine(workers=1, memory_bytes=config.cluster.memory) as engine:
        terms = terms_of(config, engine.reserved_bytes())
    records = Records.read(config.ledger) if config.ledger.exists() else None
    try:
        while batch := list(itertools.islice(found, _BATCH)):
            yield from _previewed(config, terms, records, batch)
    finally:
        if records is not None:
            records.close()


def _previewed(
    config: Config,
    terms: Terms,
    records: Records | None,
    batch: Iterable[Source | Trouble | Excluded],
) -> Iterator[Job | Outcome]:
    sources = [each for each in batch if isinstance(each, Source)]
    unsettled = records.unsettled(sources, config.others) if records else sources
    open_sources = {source.relpath for source in unsettled}
    versions = records.versions(unsettled) if records else {}
    for trouble in batch:
        if isinstance(trouble, Trouble):
            yield _unreadable(trouble)
    for source in sources:
        if source.relpath not in open_sources:
            known = records.source_of(source.relpath) if records else None
            is_reported = known is not None and known.state == "reported"
            yield Outcome(source=source, state="reported" if is_reported else "archived")
        elif is_young(source, config.settle):
            yield young_outcome(source)
        else:
            (survey,) = task.survey(roots_of(config), (source,), _ignore)
            item = plan.job(survey, terms, versions.get(source.relpath, 1))
            yield _unless_taken(config, item) if isinstance(item, Job) else item


def _unreadable(trouble: Trouble) -> Outcome:
    """A folder that the walk could not read, as a failure of its own."""
    folder = Source(relpath=trouble.relpath, size=0, mtime_ns=0, mode=0)
    return Outcome(source=folder, state="failed", failure=trouble.failure, message=trouble.message)


def _ignore(_nbytes: int) -> None:
    return


def _unless_taken(config: Config, job: Job) -> Job | Outcome:
    """The job, or the failure that something foreign at its name would make of it."""
    final = Path(config.destination, job.archive)
    try:
        if final.exists():
            publish.held(final)
    except NameTaken as error:
        return Outcome(source=job.source, state="failed", failure="permanent", message=str(error))
    return job
