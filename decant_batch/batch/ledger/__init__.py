"""The ledger: the SQLite database of runs, sources, jobs, attempts and audits.

``Ledger.open`` is for the run that writes, ``Ledger.read`` for everybody else. Modules::

    writer      Ledger: one run, from its lock to its end
    records     Records: what is read, with or without a run
    rows        the values that reading returns
    queries     the SQL
    lock        who may write
    database    connections, transactions, errors, names that are not UTF-8
    schema      tables and migrations
"""

from decant_batch.batch.ledger.lock import STALE_NS, Holder
from decant_batch.batch.ledger.records import Others, Records
from decant_batch.batch.ledger.rows import ArchiveRow, Attempt, PastRun, SourceRow, Standing
from decant_batch.batch.ledger.writer import Ledger

__all__ = [
    "STALE_NS",
    "ArchiveRow",
    "Attempt",
    "Holder",
    "Ledger",
    "Others",
    "PastRun",
    "Records",
    "SourceRow",
    "Standing",
]
