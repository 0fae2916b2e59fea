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
_CENTRAL_EXTRA = struct.Struct("<2H3Q")
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
    extra = _CENTRAL_EXTRA.pack(1, 24, entry.nbytes, entry.nbytes, entry.offset)
    record = _CENTRAL.pack(
        b"PK\x01\x02", (3 << 8) | _VERSION, _VERSION, _UTF8, 0, _TIME, _DATE, entry.crc,
        _FULL32, _FULL32, len(name), len(extra), 0, 0, 0, _MODE, _FULL32,
    )  # fmt: skip
    return record + name + extra


def parsed_central(data: bytes | bytearray, place: int) -> tuple[str, Entry, int]:
    """The record of the central directory at ``place``: its key, its entry and where it ends.

    Raises
    ------
    ValueError
        Where it is not such a record as ``central_record`` writes, bit for bit.
    """
    begin = place + _CENTRAL.size
    if begin > len(data):
        raise ValueError("a record is cut short")
    fields = _CENTRAL.unpack_from(data, place)
    at = begin + fields[10]
    end = at + _CENTRAL_EXTRA.size
    if end > len(data):
        raise ValueError("a record is cut short")
    key = data[begin:at].decode()
    _id, _length, nbytes, _again, offset = _CENTRAL_EXTRA.unpack_from(data, at)
    entry = Entry(crc=fields[7], nbytes=nbytes, offset=offset)
    if data[place:end] != central_record(key, entry):
        raise ValueError("a record is not of our form")
    return key, entry, end


def end_records(count: int, start: int, nbytes: int) -> bytes:
    """What closes the file: ``count`` entries, a directory of ``nbytes`` at ``start``."""
    zip64 = _ZIP64_END.pack(
        b"PK\x06\x06", _ZIP64_END.size - 12, (3 << 8) | _VERSION, _VERSION, 0, 0,
        count, count, nbytes, start,
    )  # fmt: skip
    locator = _ZIP64_LOCATOR.pack(b"PK\x06\x07", 0, start + nbytes, 1)
    end = _END.pack(b"PK\x05\x06", 0, 0, _FULL16, _FULL16, _FULL32, _FULL32, 0)
    return zip64 + locator + end


END_NBYTES = len(end_records(0, 0, 0))


def parsed_end(data: bytes) -> tuple[int, int, int]:
    """Count, start and bytes of the directory that the last ``END_NBYTES`` of a zip tell.

    Raises
    ------
    ValueError
        Where they are not what ``end_records`` writes, bit for bit.
    """
    if len(data) != END_NBYTES:
        raise ValueError("too short for a zip")
    *_head, count, _again, nbytes, start = _ZIP64_END.unpack_from(data, 0)
    # The locator's offset has 64 bits: a sum beyond them is no place in a file.
    if start + nbytes >= 2**63 or data != end_records(count, start, nbytes):
        raise ValueError("the end is not of our form")
    return count, start, nbytes
