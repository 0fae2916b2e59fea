"""What an archive's root says of itself: NGFF attributes, the ``decant`` marker, the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from decant_batch import __version__
from decant_batch.archive import arrays, manifest, names, ngff, planes
from decant_batch.archive.container import Container
from decant_batch.archive.encoding import Lanes
from decant_batch.archive.model import Metadata, Parts, Stamp
from decant_batch.archive.ngff import Described

WRITTEN_BY = f"decant-batch {__version__}"


def described(axes: Sequence[str], lanes: Lanes) -> Described:
    """The arrays of ``lanes`` as NGFF is told of them; ``axes`` are those of the pages' storage."""
    pixels = lanes.arrays[0]
    return Described(
        leading=tuple(axes[i] for i in planes.canonical_order(axes)),
        ndim=len(pixels.shape),
        dtype=pixels.dtype.name,
        levels=tuple((shape[0], shape[1]) for shape in lanes.shapes),
        method=lanes.method,
    )


def fitting(said: Metadata, pixels: Described) -> Metadata:
    """What is said of the pixels, as far as NGFF can say it too."""
    why = ngff.channels_left_out(pixels, said)
    return said if why is None else replace(said, channels=(), warnings=(*said.warnings, why))


def write_image(
    container: Container, name: str, pixels: Described, said: Metadata, marker: dict[str, Any]
) -> None:
    """Write the root group of an archive that viewers open; ``name`` where the source has none."""
    if said.ome_xml is not None:
        container.set(ngff.OME_XML, said.ome_xml)
    derived = [str(number) for number in range(1, len(pixels.levels))]
    marker = marker | {"pixels": "0"} | ({"derived": derived} if derived else {})
    write_group(container, {"decant": marker} | ngff.attributes(name, pixels, said))


def write_group(container: Container, attributes: Mapping[str, Any]) -> None:
    """Write the root group."""
    container.set(".zgroup", arrays.dump({"zarr_format": 2}))
    container.set(".zattrs", arrays.dump(attributes))


def write_manifest(container: Container, document: bytes) -> None:
    """Write the manifest, which makes an archive of the group."""
    container.set(manifest.KEY, document)


def merged(axes: Mapping[str, Parts]) -> dict[str, Any]:
    """The marker's word on axes that were made of several."""
    return {"merged": dict(axes)} if axes else {}


def source(name: str, stamp: Stamp) -> dict[str, Any]:
    """``.zattrs["decant"]["source"]``: what restore puts back beside the bytes."""
    relpath = stamp.relpath if stamp.relpath is not None else name
    document: dict[str, Any] = {"mtime_ns": stamp.mtime_ns, "mode": stamp.mode}
    if stamp.relpath is not None:
        document["relpath"] = names.readable(relpath)
    if names.readable(relpath) != relpath:
        key = "name_bytes" if stamp.relpath is None else "relpath_bytes"
        document[key] = names.to_hex(relpath)
    return document
