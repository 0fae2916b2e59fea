"""Runs in the readers' own environment: opens archives as their users would, knows no decant_batch.

    python read.py READER FOLDER ARCHIVE...

writes the pixels of each archive's level 0 to ``FOLDER/<number>.npy``, if the reader reads pixels,
and prints one JSON list: of each archive what the reader complains of, '' for nothing.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np


def tensorstore(archive: Path) -> np.ndarray:
    import tensorstore

    base = {"driver": "file", "path": str(archive)}
    if archive.is_file():
        store = {"driver": "zip", "base": base, "path": "0/"}
    else:
        store = base | {"path": f"{archive}/0/"}
    return tensorstore.open({"driver": "zarr", "kvstore": store}).result().read().result()


def zarr(archive: Path) -> np.ndarray:
    return _group(archive)["0"][...]


def _group(archive: Path) -> Any:
    import zarr
    from zarr.storage import LocalStore, ZipStore

    if archive.is_file():
        return zarr.open_group(ZipStore(archive, mode="r"), mode="r", zarr_format=2)
    return zarr.open_group(LocalStore(archive, read_only=True), mode="r", zarr_format=2)


def zarr2(archive: Path) -> np.ndarray:
    import zarr

    assert zarr.__version__.startswith("2."), zarr.__version__
    return zarr.open_group(str(archive), mode="r")["0"][...]


def ngff_zarr(archive: Path) -> np.ndarray:
    import ngff_zarr

    found = ngff_zarr.from_ngff_zarr(str(archive), validate=False)  # see ngff_schema
    return np.asarray(found.images[0].data)


def ngff_schema(archive: Path) -> None:
    import ngff_zarr

    ngff_zarr.validate(dict(_group(archive).attrs), version="0.4", model="image")


def ome_zarr_models(archive: Path) -> None:
    from ome_zarr_models.v04 import Image

    Image.from_zarr(_group(archive))


def yaozarrs(archive: Path) -> None:
    from yaozarrs import validate_zarr_store

    validate_zarr_store(f"zip::file://{archive}" if archive.is_file() else str(archive))


def ome_zarr(archive: Path) -> np.ndarray:
    """The reference reader takes folders and, through fsspec, zips."""
    from ome_zarr.format import FormatV04
    from ome_zarr.io import ZarrLocation
    from ome_zarr.reader import Reader
    from zarr.storage import FsspecStore, LocalStore

    store = (
        FsspecStore.from_url(f"zip::file://{archive}", read_only=True)
        if archive.is_file()
        else LocalStore(archive, read_only=True)
    )
    (node, *_rest) = list(Reader(ZarrLocation(store, fmt=FormatV04()))())
    return np.asarray(node.data[0])


def bioio(archive: Path) -> np.ndarray:
    import bioio
    import bioio_ome_zarr

    return bioio.BioImage(str(archive), reader=bioio_ome_zarr.Reader).reader.data


READERS = (
    tensorstore, zarr, zarr2, ngff_zarr, ngff_schema, ome_zarr_models, yaozarrs, ome_zarr, bioio,
)  # fmt: skip


def main() -> None:
    name, folder, *archives = sys.argv[1:]
    read = {each.__name__: each for each in READERS}[name]
    said = []
    for number, archive in enumerate(archives):
        try:
            pixels = read(Path(archive))
        except Exception as error:  # noqa: BLE001 - whatever a reader says is its complaint
            traceback.print_exc()
            said.append(f"{type(error).__name__}: {error}")
        else:
            said.append("")
            if pixels is not None:
                np.save(Path(folder, f"{number}.npy"), np.asarray(pixels))
    print(json.dumps(said))


if __name__ == "__main__":
    main()
