"""Who verified an archive and when, asked of the ledger that stands above it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from decant_batch.errors import DecantError
from decant_batch.ui.quantities import date_text, printable

# Where a ledger lies under its destination, unless the config put it elsewhere.
LEDGER = Path(".decant-batch/ledger.sqlite")
_NOW = "`decant-batch verify` proves it now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What the nearest ledger says of an archive; ``at_ns`` is in UTC after 1970.

    All is None where no ledger stands above the archive; ``problem`` says why a ledger that does
    stand there cannot vouch for it.
    """

    ledger: str | None = None
    at_ns: int | None = None
    by: str | None = None
    problem: str | None = None


def proof_of(archive: Path, sha256: str) -> Proof:
    """When the archive that holds content of this ``sha256`` was last seen to give it back."""
    place = archive.resolve()
    root = next((folder for folder in place.parents if (folder / LEDGER).is_file()), None)
    if root is None:
        return Proof()
    # Only where there is a ledger to ask: inspecting one archive needs no database.
    from decant_batch.batch.ledger import Ledger

    path = root / LEDGER
    try:
        with Ledger.read(path) as ledger:
            row = ledger.archive_of(place.relative_to(root).as_posix())
    except DecantError as error:
        return Proof(ledger=str(path), problem=str(error))
    if row is None:
        return Proof(ledger=str(path), problem=f"{path} does not know it")
    if row.sha256 != sha256:
        return Proof(ledger=str(path), problem=f"{path} knows other content under this name")
    found = place.stat()
    if found.st_mtime_ns > row.verified_ns or (place.is_file() and found.st_size != row.nbytes):
        when = date_text(row.verified_ns)
        return Proof(ledger=str(path), problem=f"it was written to since it was verified at {when}")
    return Proof(ledger=str(path), at_ns=row.verified_ns, by=row.verified_by)


def proof_text(proof: Proof) -> str:
    """``proof`` in one line, with what to do where there is none."""
    if proof.ledger is None:
        return f"unknown: no ledger stands above it (a config may keep it elsewhere); {_NOW}"
    if proof.problem is not None or proof.at_ns is None:
        return f"unknown: {printable(proof.problem or proof.ledger)}; {_NOW}"
    return (
        f"{date_text(proof.at_ns)} by {printable(proof.by or '?')}, says {printable(proof.ledger)}"
    )
