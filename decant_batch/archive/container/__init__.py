"""Containers of an archive's keys: a zip file or a folder behind one interface.

The operations are those of the Zarr ZIP store specification 1.0 (get, set, list, list_prefix,
list_dir, canonical URI); a container is written once, key by key, and never changed.

Layout of a zip that we write; every entry STORED, every record ZIP64, every name once::

    local header + data        one per key, in the order of ``set``
    central directory          metadata first, breadth first; then the chunks in written order
    ZIP64 end + locator, end   counts, size and offset of the directory

Such a zip is read through its directory, which stays in the file, at 16 bytes a key; any other zip
through ``zipfile``, at some 700.
"""

from decant_batch.archive.container.base import Container, canonical_uri, in_reading_order
from decant_batch.archive.container.folder import FolderContainer, sync_folder
from decant_batch.archive.container.foreign import ForeignZip
from decant_batch.archive.container.opening import create, open_container
from decant_batch.archive.container.zipped import ZipReader, ZipWriter

__all__ = [
    "Container",
    "FolderContainer",
    "ForeignZip",
    "ZipReader",
    "ZipWriter",
    "canonical_uri",
    "create",
    "in_reading_order",
    "open_container",
    "sync_folder",
]
