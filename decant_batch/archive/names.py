"""Names of sources as manifests and ``.zattrs`` can hold them, and back.

A file name on a share is a row of bytes; JSON holds text, and a manifest's names must be safe on
any operating system. So the manifest gets a readable name, and where that is not the whole truth
the exact bytes stand beside it, in hexadecimal.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from urllib.parse import quote_from_bytes

import numpy as np

# Printable ASCII that is harmless in a name everywhere, and is no percent sign.
_HARMLESS = "".join(map(chr, range(0x20, 0x7F))).translate({ord(c): None for c in '%/\\:*?"<>|'})


def is_safe(relpath: str) -> bool:
    """True where ``relpath`` stays inside its folder, on any operating system."""
    return (
        is_encodable(relpath)
        and not any(character in relpath for character in "\0\\")
        and not re.match("[A-Za-z]:", relpath)
        and all(part not in ("", ".", "..") for part in relpath.split("/"))
    )


def readable(name: str) -> str:
    """``name`` itself where it is safe UTF-8, else with its odd bytes percent-encoded."""
    if is_safe(name) and is_text(name):
        return name
    return quote_from_bytes(os.fsencode(name), safe=_HARMLESS)


def are_distinct(paths: Iterable[str]) -> bool:
    """True where no path is there twice. Of each a digest is held: they may be many."""
    digests = bytearray()
    for path in paths:
        digests += hashlib.blake2b(path.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    found = np.frombuffer(digests, "<u8,<u8")
    return len(np.unique(found)) == len(found)


def is_encodable(name: str) -> bool:
    """True where the file system can hold ``name``: lone surrogates stand for no byte."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def is_text(name: str) -> bool:
    """True where the bytes of ``name`` are valid UTF-8."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def to_hex(relpath: str) -> str:
    """The exact bytes of a path, in hexadecimal."""
    return os.fsencode(relpath).hex()


def from_hex(digits: str) -> str:
    """The path whose exact bytes ``digits`` are. Raises ValueError."""
    return os.fsdecode(bytes.fromhex(digits))
