"""One file <-> one archive. Knows no run, no cluster, no database and no terminal.

>>> from decant_batch.archive import pack, restore, verify
"""

from decant_batch.archive.inspect import inspect
from decant_batch.archive.layout import is_tiff, survey
from decant_batch.archive.model import (
    Geometry,
    Grid,
    Inspection,
    Layout,
    Member,
    Packed,
    Pyramid,
    Recipe,
    Refusal,
    Stamp,
    Verified,
)
from decant_batch.archive.pack import pack
from decant_batch.archive.restore import restore, targets
from decant_batch.archive.series import close_series, pack_series
from decant_batch.archive.verify import verify

__all__ = [
    "Geometry",
    "Grid",
    "Inspection",
    "Layout",
    "Member",
    "Packed",
    "Pyramid",
    "Recipe",
    "Refusal",
    "Stamp",
    "Verified",
    "close_series",
    "inspect",
    "is_tiff",
    "pack",
    "pack_series",
    "restore",
    "survey",
    "targets",
    "verify",
]
