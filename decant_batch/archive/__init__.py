"""One file <-> one archive. Knows no run, no cluster, no database and no terminal.

>>> from decant_batch.archive import pack, restore, verify
"""

from decant_batch.archive.inspect import inspect
from decant_batch.archive.layout import is_tiff, survey
from decant_batch.archive.model import (
    Geometry,
    Inspection,
    Layout,
    Packed,
    Pyramid,
    Recipe,
    Refusal,
    Stamp,
    Verified,
)
from decant_batch.archive.pack import pack
from decant_batch.archive.restore import restore, targets
from decant_batch.archive.verify import verify

__all__ = [
    "Geometry",
    "Inspection",
    "Layout",
    "Packed",
    "Pyramid",
    "Recipe",
    "Refusal",
    "Stamp",
    "Verified",
    "inspect",
    "is_tiff",
    "pack",
    "restore",
    "survey",
    "targets",
    "verify",
]
