"""Zips of another form than ours, read through ``zipfile``."""

from __future__ import annotations

import contextlib
import errno
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from decant_batch.archive.container.zipped import ReadZip
from decant_batch.errors import ArchiveDamaged

# What zipfile and its decompressors say of bytes that are no zip's; a seek to where no byte can be
# is EINVAL, and bz2 has an OSError without a number.
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
    EOFError,
    struct.error,
    zlib.error,
    lzma.LZMAError,
)
_NOT_THE_DISK = (None, errno.EINVAL)
# A compressed entry may claim any size: more than this is no document and no chunk.
_MAX_INFLATED_NBYTES = 512 << 20


def _plainly(error: Exception) -> str:
    """What zipfile says, in words; some of its errors hold raw bytes or nothing at all."""
    if isinstance(error, zipfile.BadZipFile) and "CRC" in str(error):
        return "its bytes are not those that were written (CRC)"
    if isinstance(error, zipfile.BadZipFile):
        return "its zip directory cannot be read"
    return f"{type(error).__name__}: {error}"


class ForeignZip(ReadZip):
    """A zip that others wrote, opened for reading: perhaps with deflate or folder entries."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        super().__init__(path, file)
        self._zip = zipfile.ZipFile(file)

    @classmethod
    def opened(cls, path: Path) -> ForeignZip:
        """The zip at ``path``.

        Raises
        ------
        ArchiveDamaged
            Where its directory cannot be read.
        """
        with contextlib.ExitStack() as stack, _told(f"{path}: no archive, or a damaged one"):
            found = cls(path, stack.enter_context(path.open("rb")))
            stack.pop_all()
            return found

    def get(self, key: str) -> bytes:
        """Value of ``key``, its CRC checked."""
        entry = self._zip.getinfo(key)
        is_inflated = entry.compress_type != zipfile.ZIP_STORED
        if is_inflated and entry.file_size > _MAX_INFLATED_NBYTES:
            raise ArchiveDamaged(f"{self.path}: entry {key}: {entry.file_size} bytes declared")
        # Opening an entry asks where the shared file stands: another thread's read in between made
        # Python 3.12.1 and 3.13.0 see bad CRCs and «overlapped entries» in good archives.
        with _told(f"{self.path}: entry {key}"), self._lock:
            value = self._zip.read(key)
        self._trail.passed(len(value), entry.header_offset)
        return value

    def get_parts(self, key: str) -> Iterator[bytes]:
        """Value of ``key``, as one part: what is inflated is bounded by ``get``."""
        yield self.get(key)

    def list(self) -> Sequence[str]:
        """Keys in the order of the central directory."""
        return [name for name in self._zip.namelist() if not name.endswith("/")]


@contextlib.contextmanager
def _told(where: str) -> Iterator[None]:
    """Turn what zipfile says of damaged bytes into ArchiveDamaged."""
    try:
        yield
    except (*_ZIP_ERRORS, OSError) as error:
        if isinstance(error, OSError) and error.errno not in _NOT_THE_DISK:
            raise
        raise ArchiveDamaged(f"{where}: {_plainly(error)}") from error
