"""What single archives have to say: who they hold, and whether it is still all there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from decant_batch.archive.model import Inspection, Verified
from decant_batch.ui.quantities import (
    bytes_text,
    count_text,
    date_text,
    exact_text,
    printable,
)
from decant_batch.ui.report import lines_of

# So many members of a series are named.
_NAMED = 5


def verified_text(archive: Path, originals: Sequence[Verified]) -> str:
    """One line for each original that was rebuilt from ``archive`` and is equal."""
    return "\n".join(
        f"ok  {printable(str(archive))}: {printable(original.name)}, "
        f"{bytes_text(original.nbytes)}, sha256 {original.sha256}"
        for original in originals
        if not original.problem
    )


def damage_text(archive: Path, originals: Sequence[Verified]) -> str | None:
    """What differs in ``archive``, in one line; None where everything came back."""
    problems = [f"{each.name}: {each.problem}" for each in originals if each.problem]
    return f"{archive}: {'; '.join(problems)}" if problems else None


def inspection_text(inspection: Inspection, verified: str) -> str:
    """What an archive says of itself; ``verified`` says who proved it when."""
    return lines_of(
        ("uri", inspection.uri),
        ("mode", _mode_text(inspection)),
        ("original", printable(inspection.relpath or inspection.original_name)),
        ("changed", "" if inspection.mtime_ns is None else date_text(inspection.mtime_ns)),
        ("size", exact_text(inspection.source_nbytes)),
        ("archive", exact_text(inspection.archive_nbytes) + _ratio_text(inspection)),
        ("sha256", inspection.sha256),
        ("pixels", _pixels_text(inspection)),
        ("other bytes", f"{inspection.husk_nbytes:,} in the husk" if inspection.shape else ""),
        ("codec", inspection.codec),
        ("container", f"{inspection.container}, written by {printable(inspection.written_by)}"),
        ("members", _members_text(inspection.members)),
        ("verified", verified),
    )


def _mode_text(inspection: Inspection) -> str:
    if not inspection.reason:
        return inspection.mode
    detail = f" ({printable(inspection.detail)})" if inspection.detail else ""
    return f"{inspection.mode}, because {inspection.reason}{detail}"


def _pixels_text(inspection: Inspection) -> str:
    if not inspection.shape:
        return ""
    shape = " x ".join(map(str, inspection.shape))
    if inspection.axes:
        named = zip(inspection.axes, inspection.shape, strict=True)
        shape = " ".join(f"{axis}={length}" for axis, length in named)
    order = {"<": ", little-endian", ">": ", big-endian"}.get(inspection.byteorder, "")
    pages = count_text(inspection.page_count, "page")
    return f"{shape}, {inspection.dtype}{order} in the original, {pages}"


def _members_text(members: Sequence[str]) -> str:
    names = ", ".join(printable(member) for member in members[:_NAMED])
    more = f" and {len(members) - _NAMED:,} more" if len(members) > _NAMED else ""
    return f"{len(members):,}: {names}{more}" if members else ""


def _ratio_text(inspection: Inspection) -> str:
    if not inspection.source_nbytes:
        return ""
    percent = (1 - inspection.archive_nbytes / inspection.source_nbytes) * 100
    return f", {abs(percent):.0f} % {'larger' if percent < 0 else 'smaller'}"
