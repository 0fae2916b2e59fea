"""By format.md v1 alone, no line of the package: python tests/recover.py ARCHIVE OUTDIR."""

import hashlib
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import zarr


def recover(path: Path) -> dict[str, bytes]:
    """Path or name of each original -> its bytes, each sha256 compared."""
    key = ".decant/manifest.json"
    m = json.loads((path / key).read_bytes() if path.is_dir() else zipfile.ZipFile(path).read(key))
    if m["format"] != 1:
        raise ValueError(f"format {m['format']!r} is not known")
    members = m["members"] if m["mode"] == "series" else [{"relpath": m["original_name"]}]
    return {each["relpath"]: rebuild(path, {**m, **each}) for each in members}


def rebuild(path: Path, m: dict[str, Any]) -> bytes:
    """One original, its sha256 compared; ``m`` is the manifest under a member's own fields."""
    if m["mode"] == "series" and not m["series_consolidated"]:
        data = b"".join(recover(path / m["subarchive"]).values())
    else:
        kind = zarr.storage.LocalStore if path.is_dir() else zarr.storage.ZipStore
        with kind(path, read_only=True) as store:
            group = zarr.open_group(store, mode="r", zarr_format=2, use_consolidated=False)
            name = {"verbatim": "original", "series": m.get("husk_array")}.get(m["mode"], "husk")
            data = splice(group, np.asarray(group[name][...]), m)
    if hashlib.sha256(data).hexdigest() != m["original_sha256"]:
        raise ValueError(f"{path}: {m['original_name']}: the sha256 differs")
    return data


def splice(group: Any, husk: Any, m: dict[str, Any]) -> bytes:
    """Pages and husk, joined in the order of file offsets (section 5); all of ``original``."""
    segments = []
    for page in m["pages"]:
        leading = group["0"].shape[: -len(page["shape"])]
        plane = group["0"][coordinate(page["index"], m.get("plane_order"), leading)]
        raw = io.BytesIO(serialize(np.asarray(plane), page, m["byteorder"]))
        for offset, count in zip(page["dataoffsets"], page["databytecounts"], strict=True):
            segments.append((offset, raw.read(count)))
    original, gaps = bytearray(), io.BytesIO(husk.tobytes())
    for offset, data in sorted(segments):
        original += gaps.read(offset - len(original)) + data
    return bytes(original + gaps.read())


def coordinate(index: int, order: Any, leading: tuple[int, ...]) -> tuple[Any, ...]:
    """Where array 0 has the page of this index: axes are stored time, then others, then space."""
    axes = order or [""] * len(leading)
    perm = sorted(range(len(axes)), key=lambda i: {"t": 0, "z": 2}.get(axes[i], 1))
    stored = np.unravel_index(index, [leading[perm.index(i)] for i in range(len(axes))])
    return tuple(stored[i] for i in perm)


def serialize(plane: Any, page: dict[str, Any], byteorder: str) -> bytes:
    """A page's pixels as they stood in the file: bits are moved, values never converted."""
    swapped = plane.dtype != plane.dtype.newbyteorder(byteorder)
    plane = (plane.byteswap() if swapped else plane).reshape(*plane.shape[:2], -1)
    height, width, samples = plane.shape
    parts = np.split(plane, samples, axis=2) if page["planarconfig"] == 2 else [plane]
    rows, columns = page["tilelength"] or height, page["tilewidth"] or width
    grid = [(y, x) for y in range(0, height, rows) for x in range(0, width, columns)]
    return b"".join(p[y : y + rows, x : x + columns].tobytes() for p in parts for y, x in grid)


if __name__ == "__main__":
    given = sys.argv[1:] if len(sys.argv) == 3 else sys.exit(__doc__)
    for name, data in recover(Path(given[0])).items():
        target = Path(given[1], name).resolve()
        assert target.is_relative_to(Path(given[1]).resolve()), name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
