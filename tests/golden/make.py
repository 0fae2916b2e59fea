"""Packs what tests/test_golden.py reads for ever: ``python -m tests.golden.make``, by hand only.

An archive that stands here is what some version of decant-batch wrote, and people have archives
like it: it is never made again. Only sources that are new in ``SOURCES`` are packed.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from decant_batch.archive import Recipe, Stamp, inspect, pack
from tests import tiffs
from tests.test_golden import GOLDEN, Golden, fingerprint
from tests.tiffs import TiffSpec

SOURCES: Mapping[str, bytes] = {
    "strips-le.tif": tiffs.build(TiffSpec(pages=3, shape=(20, 14), rows_per_strip=6, gap=9)),
    "tiles-be.tif": tiffs.build(
        TiffSpec(byteorder=">", dtype="float32", pages=2, shape=(20, 14), tile_width=16,
                 tile_length=16, edge_padding=True, pixels="special", ifds="last")
    ),
    "planar.tif": tiffs.build(TiffSpec(shape=(20, 14), samples=3, planar=True, rows_per_strip=7)),
    "rgb.tif": tiffs.build(TiffSpec(dtype="uint8", shape=(20, 14), samples=3, big=True)),
    "interleaved.tif": tiffs.build(
        TiffSpec(pages=4, shape=(20, 14), rows_per_strip=3, order="shuffled", gap=5, trailing=30)
    ),
    "notes.txt": tiffs.text(),
    "hyperstack.tif": tiffs.imagej_hyperstack(2, 2, 2),
}  # fmt: skip
FOLDERS = {"hyperstack.tif"}
# Of whoever restores them, too: a date and permissions that no umask gives by chance.
STAMP_NS, STAMP_MODE = 1_700_000_000_123_456_700, 0o640


def main() -> None:
    """Pack what is not here yet; keep what is."""
    index = GOLDEN / "golden.json"
    known: dict[str, Golden] = json.loads(index.read_text()) if index.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name, data in SOURCES.items():
            archive = GOLDEN / f"{name}.zarr{'' if name in FOLDERS else '.zip'}"
            if archive.name in known:
                print(f"kept    {archive.name}")
                continue
            source = Path(folder, name)
            source.write_bytes(data)
            known[archive.name] = packed(source, archive)
            print(f"packed  {archive.name}")
    index.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def packed(source: Path, archive: Path) -> Golden:
    """What is recorded of a new archive; NameTaken where something stands at its name."""
    pack(
        source,
        archive,
        recipe=Recipe(container="zip" if archive.suffix == ".zip" else "folder"),
        stamp=Stamp(relpath=source.name, mtime_ns=STAMP_NS, mode=STAMP_MODE),
    )
    data = source.read_bytes()
    return Golden(
        mode=inspect(archive).mode,
        archive_sha256=fingerprint(archive),
        original_sha256=hashlib.sha256(data).hexdigest(),
        original_size=len(data),
    )


if __name__ == "__main__":
    main()
