"""The records of a zip file that we write, as APPNOTE 6.3.9 draws them; pure, bytes from numbers.

::

    local header    4.3.7     PK 3 4    name and sizes, before each entry's data
    central header  4.3.12    PK 1 2    one per entry: sizes and where its local header is
    ZIP64 end       4.3.14    PK 6 6    counts, size and offset of the central directory
    ZIP64 locator   4.3.15    PK 6 7    where the ZIP64 end is
    end             4.3.16    PK 5 6    all ones: see ZIP64

Every entry is STORED and every size ZIP64, whatever its length; dates are fixed.
"""

from __future__ import annotations

import stat
import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry: its CRC-32, its bytes, and the offset of its local header."""

    crc: int
    nbytes: int
    offset: int


_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_ZIP64_END = struct.Struct("<4sQ2H2I4Q")
_ZIP64_LOCATOR = struct.Struct("<4sIQI")
_END = struct.Struct("<4s4H2IH")
_VERSION = 45  # the first with ZIP64
_UTF8 = 0x800
_DATE, _TIME = (1 << 5) | 1, 0  # 1980-01-01 00:00: the same source gives the same bytes
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
_MODE = (stat.S_IFREG | 0o644) << 16


def local_header(key: str, entry: Entry) -> bytes:
    """What stands before an entry's data."""
    name = key.encode()
    extra = struct.pack("<2H2Q", 1, 16, entry.nbytes, entry.nbytes)
    record = _LOCAL.pack(
        b"PK\x03\x04", _VERSION, _UTF8, 0, _TIME, _DATE, entry.crc, _FULL32, _FULL32,
        len(name), len(extra),
    )  # fmt: skip
    return record + name + extra


def central_record(key: str, entry: Entry) -> bytes:
    """An entry's record in the central directory."""
    name = key.encode()
    extra = struct.pack("<2H3Q", 1, 24, entry.nbytes, entry.nbytes, entry.offset)
    record = _CENTRAL.pack(
        b"PK\x01\x02", (3 << 8) | _VERSION, _VERSION, _UTF8, 0, _TIME, _DATE, entry.crc,
        _FULL32, _FULL32, len(name), len(extra), 0, 0, 0, _MODE, _FULL32,
    )  # fmt: skip
    return record + name + extra


def end_records(count: int, start: int, nbytes: int) -> bytes:
    """What closes the file: ``count`` entries, a directory of ``nbytes`` at ``start``."""
    zip64 = _ZIP64_END.pack(
        b"PK\x06\x06", _ZIP64_END.size - 12, (3 << 8) | _VERSION, _VERSION, 0, 0,
        count, count, nbytes, start,
    )  # fmt: skip
    locator = _ZIP64_LOCATOR.pack(b"PK\x06\x07", 0, start + nbytes, 1)
    end = _END.pack(b"PK\x05\x06", 0, 0, _FULL16, _FULL16, _FULL32, _FULL32, 0)
    return zip64 + locator + end
