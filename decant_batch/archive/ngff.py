"""NGFF 0.4 metadata of an archive: the ``.zattrs`` of its root group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_TYPES = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}


def multiscales(name: str, leading: Sequence[str], ndim: int) -> list[dict[str, Any]]:
    """The ``multiscales`` list for array ``0`` of ``ndim`` axes, in canonical order.

    ``leading`` names the axes before (Y, X) or (Y, X, S). The samples' axis ``s`` has no type:
    the format puts samples last, and NGFF 0.4 would have a channel stand before space
    (docs/format.md, «Chunky colour»).
    """
    names = [*leading, "y", "x", "s"][:ndim]
    return [
        {
            "version": "0.4",
            "name": name,
            "axes": [_axis(axis) for axis in names],
            "datasets": [
                {
                    "path": "0",
                    "coordinateTransformations": [{"type": "scale", "scale": [1.0] * ndim}],
                }
            ],
        }
    ]


def _axis(name: str) -> dict[str, str]:
    return {"name": name, "type": _TYPES[name]} if name in _TYPES else {"name": name}
