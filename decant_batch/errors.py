"""The one exception tree.

::

    DecantError                 exit  retryable
    ├── UsageError                 2  no    the command line or the config is wrong
    ├── LedgerHeld                 3  no    another run holds the ledger
    ├── ArchiveDamaged             4  no    an archive does not hold what it says
    │   └── UnknownFormat          4  no    a manifest of a format this version does not know
    ├── Unusable                   5  no    destination or ledger: full, read-only, too new
    ├── SourceChanged              1  yes   the source moved while it was read
    └── NameTaken                  1  no    something else stands where a file must go

``exit_code`` is what the command line returns when the error ends it; ``retryable`` says whether
trying the same thing again can help. A *file's* failure during a run is data in its Outcome, not an
exception: what leaves ``run`` as an exception means that the run cannot go on.
"""

from __future__ import annotations

from typing import ClassVar


class DecantError(Exception):
    """Base of every error that decant-batch raises on purpose."""

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False


class UsageError(DecantError):
    """The command line or the config is wrong; nothing was done."""

    exit_code = 2


class LedgerHeld(DecantError):
    """Another live run holds the ledger; its host and process are in the message."""

    exit_code = 3


class ArchiveDamaged(DecantError):
    """An archive cannot give back what its manifest promises."""

    exit_code = 4


class UnknownFormat(ArchiveDamaged):
    """The manifest's ``format`` is not one this version reads (spec section 6: refuse)."""


class Unusable(DecantError):
    """The destination or the ledger cannot be used: full, read-only, or of a newer version."""

    exit_code = 5


class SourceChanged(DecantError):
    """The source's size, time or bytes moved between the survey and the end of the read."""

    retryable = True


class NameTaken(DecantError):
    """Something stands at the name that is to be written, and is never overwritten."""
