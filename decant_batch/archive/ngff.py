"""NGFF 0.4 metadata of an archive: what its root group's ``.zattrs`` says to viewers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from decant_batch.archive.model import Channel, Metadata, Method

VERSION = "0.4"
# Where readers of NGFF look for the whole OME-XML; no Zarr node, and nobody has to read it.
OME_XML = "OME/METADATA.ome.xml"
_TYPES = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}
_NO_COLOR = "FFFFFF"  # NGFF 0.4 wants one; OME-XML's own default


_METHODS: dict[Method, str] = {
    "mean": "mean of 2 x 2 pixels, integers rounded half up",
    "nearest": "the first of 2 x 2 pixels",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The array ``0`` that is to be described: axes in canonical order, numpy's dtype name.

    ``levels`` are the shapes (Y, X) of the planes, those of ``0`` first; ``method`` is how the
    others were made.
    """

    leading: tuple[str, ...]
    ndim: int
    dtype: str
    levels: tuple[tuple[int, int], ...] = ((1, 1),)
    method: Method | None = None

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
                "datasets": list(_datasets(pixels, said)),
                **_made_by(pixels.method if len(pixels.levels) > 1 else None),
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


def _made_by(method: Method | None) -> dict[str, Any]:
    if method is None:
        text = "the source's own pixels; no level is derived"
        return {"type": "none", "metadata": {"description": text}}
    text = f"0 is the source's own pixels; the levels below are derived: {_METHODS[method]}"
    return {"type": method, "metadata": {"description": text, "method": f"decant-batch {method}"}}


def _datasets(pixels: Described, said: Metadata) -> Iterator[dict[str, Any]]:
    """Levels with their scale; the mean of pixels lies in their midst, which is a translation."""
    steps = [said.spacing[axis].value if axis in said.spacing else 1.0 for axis in pixels.axes]
    factors, shape = {"y": 1, "x": 1}, pixels.levels[0]
    for number, level in enumerate(pixels.levels):
        for axis, before, now in zip("yx", shape, level, strict=True):
            factors[axis] *= 2 if now < before else 1
        shape = level
        many = [factors.get(axis, 1) for axis in pixels.axes]
        scale = [step * factor for step, factor in zip(steps, many, strict=True)]
        transformations: list[dict[str, Any]] = [{"type": "scale", "scale": scale}]
        if number and pixels.method == "mean":
            moved = [step * (factor - 1) / 2 for step, factor in zip(steps, many, strict=True)]
            transformations.append({"type": "translation", "translation": moved})
        yield {"path": str(number), "coordinateTransformations": transformations}


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
