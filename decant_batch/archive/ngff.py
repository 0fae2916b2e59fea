"""NGFF 0.4 metadata of an archive: what its root group's ``.zattrs`` says to viewers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from decant_batch.archive.model import Channel, Metadata

VERSION = "0.4"
# Where readers of NGFF look for the whole OME-XML; no Zarr node, and nobody has to read it.
OME_XML = "OME/METADATA.ome.xml"
_TYPES = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}
_NO_COLOR = "FFFFFF"  # NGFF 0.4 wants one; OME-XML's own default


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The array ``0`` that is to be described: axes in canonical order, numpy's dtype name."""

    leading: tuple[str, ...]
    ndim: int
    dtype: str

    @property
    def axes(self) -> list[str]:
        """Names of all axes: the leading ones, then (Y, X) or (Y, X, S)."""
        return [*self.leading, "y", "x", "s"][: self.ndim]


def attributes(name: str, pixels: Described, said: Metadata) -> dict[str, Any]:
    """``multiscales``, and ``omero`` where the source says something of its channels.

    ``name`` is the image's where the source gives it none. The samples' axis ``s`` has no type:
    the format puts samples last, and NGFF 0.4 would have a channel stand before space
    (docs/format.md, «Chunky colour»).
    """
    image = said.name or name
    document: dict[str, Any] = {
        "multiscales": [
            {
                "version": VERSION,
                "name": image,
                "axes": [_axis(axis, said) for axis in pixels.axes],
                "datasets": [_dataset("0", pixels.axes, said)],
                "type": "none",
                "metadata": {"description": "the source's own pixels; no level is derived"},
            }
        ]
    }
    channels = list(_channels(said.channels, pixels.dtype))
    if channels:
        document["omero"] = {"version": VERSION, "name": image, "channels": channels}
    return _validated(document, pixels)


def channels_left_out(pixels: Described, said: Metadata) -> str | None:
    """Why the source's channels cannot be told, if so."""
    if list(_channels(said.channels, pixels.dtype)) or not said.channels:
        return None
    return f"channels are left out: NGFF 0.4 wants a display window, and {pixels.dtype} has none"


def _axis(name: str, said: Metadata) -> dict[str, str]:
    axis = {"name": name}
    if name in _TYPES:
        axis["type"] = _TYPES[name]
    unit = said.spacing[name].unit if name in said.spacing else None
    return axis | ({"unit": unit} if unit else {})


def _dataset(path: str, axes: Sequence[str], said: Metadata) -> dict[str, Any]:
    scale = [said.spacing[axis].value if axis in said.spacing else 1.0 for axis in axes]
    return {"path": path, "coordinateTransformations": [{"type": "scale", "scale": scale}]}


def _channels(channels: Sequence[Channel], dtype: str) -> Iterator[dict[str, Any]]:
    """Channels with what the source says; limits of integers are those of their type.

    Floats have no such limits: unless each channel says what to show, nothing is made up.
    """
    kind = np.dtype(dtype).kind
    if kind == "c" or (kind == "f" and not all(channel.window for channel in channels)):
        return
    for channel in channels:
        low, high = channel.window or _limits(dtype)
        least, most = (low, high) if kind == "f" else _limits(dtype)
        yield {
            "active": True,
            "color": channel.color or _NO_COLOR,
            "window": {"start": low, "end": high, "min": least, "max": most},
        } | ({"label": channel.name} if channel.name else {})


def _limits(dtype: str) -> tuple[float, float]:
    limits = np.iinfo(dtype)
    return float(limits.min), float(limits.max)


def _validated(document: dict[str, Any], pixels: Described) -> dict[str, Any]:
    """The document, held against NGFF's model, which has no word for samples that stand last."""
    if "s" in pixels.axes:
        return document
    from yaozarrs.v04 import Image  # 0.1 s that reading an archive need not wait for

    return Image.model_validate(document).model_dump(mode="json", exclude_none=True, by_alias=True)
