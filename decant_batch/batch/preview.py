"""What a run would do, source by source; nothing is written and nothing is packed."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from decant_batch.archive.model import silent
from decant_batch.batch import plan, publish, task, verdicts
from decant_batch.batch.config import Config
from decant_batch.batch.engine import Engine
from decant_batch.batch.ledger import Records
from decant_batch.batch.model import Excluded, Job, Outcome, Roots, Source, Trouble
from decant_batch.batch.plan import Terms
from decant_batch.batch.run import refuse_destination, roots_of, terms_of, walk
from decant_batch.errors import NameTaken

_BATCH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A source whose archive stands already, as far as size and path tell: a run compares them.

    It is adopted where the contents are equal; else the source gets a further archive.
    """

    source: Source
    archive: str


Planned = Job | Standing | Outcome | Excluded


def preview(config: Config) -> Iterator[Planned]:
    """What a run would do of each source, in the order of the walk; nothing is written.

    One worker is started and ended, to measure what a worker takes before it has work.

    Raises
    ------
    UsageError, Unusable
        As ``execute`` would.
    """
    found = walk(config)  # a missing root is told before a worker is started
    refuse_destination(config)
    with contextlib.ExitStack() as stack:
        records = None
        if config.ledger.exists():
            records = stack.enter_context(Records.read(config.ledger))
            records.refuse_other(str(config.source), str(config.destination))
        with Engine(workers=1, memory_bytes=config.cluster.memory) as engine:
            terms = terms_of(config, engine.reserved_bytes())
        while batch := list(itertools.islice(found, _BATCH)):
            yield from _previewed(config, terms, records, batch)


def _previewed(
    config: Config,
    terms: Terms,
    records: Records | None,
    batch: Sequence[Source | Trouble | Excluded],
) -> Iterator[Planned]:
    roots = roots_of(config)
    sources = [each for each in batch if isinstance(each, Source)]
    unsettled = sources
    if records is not None:
        unsettled = records.unsettled(sources, config.others, partial(publish.stands, roots))
    open_sources = {source.relpath for source in unsettled}
    versions = records.versions(unsettled) if records else {}
    for item in batch:
        if isinstance(item, Excluded):
            yield item
        elif isinstance(item, Trouble):
            yield _unreadable(item)
        elif item.relpath not in open_sources:
            yield _settled(records, item)
        elif verdicts.is_young(item, config.settle):
            yield verdicts.young(item)
        else:
            yield _planned(roots, terms, item, versions.get(item.relpath, 1))


def _settled(records: Records | None, source: Source) -> Outcome:
    known = records.source_of(source.relpath) if records else None
    is_reported = known is not None and known.state == "reported"
    return Outcome(source=source, state="reported" if is_reported else "archived")


def _unreadable(trouble: Trouble) -> Outcome:
    """A folder that the walk could not read, as a failure of its own."""
    folder = Source(relpath=trouble.relpath, size=0, mtime_ns=0, mode=0)
    return Outcome(source=folder, state="failed", failure=trouble.failure, message=trouble.message)


def _planned(roots: Roots, terms: Terms, source: Source, version: int) -> Planned:
    """The job, or what stands or is in its way at its archive's name."""
    (survey,) = task.survey(roots, (source,), silent)
    item = plan.job(survey, terms, version)
    if isinstance(item, Outcome):
        return item
    try:
        for archive, held in publish.places(roots, item):
            if held is not None:
                return Standing(source=source, archive=archive)
            return replace(item, archive=archive)
    except NameTaken as error:
        return Outcome(source=source, state="failed", failure="permanent", message=str(error))
    raise AssertionError("places ends with a free name or an error")
