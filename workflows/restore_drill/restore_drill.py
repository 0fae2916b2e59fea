#!/usr/bin/env python3
"""A restore drill: some archives, drawn at random, restored and compared with their sources.

    python restore_drill.py CONFIG             five archives below the config's destination
    python restore_drill.py CONFIG --count 50 --scratch /var/tmp

Each is restored into a temporary folder, which compares length and sha256 with what the archive
records; where its source still stands on the share, unchanged since, every byte is compared with
that as well. One line for each. Exit code 0: all came back. 1: one did not, or there was none.
"""
# ruff: noqa: T201 - a script for people prints

from __future__ import annotations

import argparse
import filecmp
import io
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from decant_batch.archive import Inspection, inspect, restore
from decant_batch.batch.config import load
from decant_batch.errors import DecantError
from decant_batch.ui.quantities import printable


def main() -> int:
    """Run the drill and say how it went; the exit code."""
    arguments = _arguments()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a log need not be in UTF-8
    try:
        config = load(arguments.config)
    except DecantError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    chosen = drawn(archives(config.destination), arguments.count)
    if not chosen:
        print(f"{config.destination}: no archive is here; nothing was proved")
        return 1
    failed = 0
    for archive in chosen:
        is_back, text = tried(archive, config.source, arguments.scratch)
        failed += not is_back
        print(printable(f"{'ok    ' if is_back else 'FAILED'}  {archive}: {text}"), flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} archives came back")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Restore some archives and compare.")
    parser.add_argument("config", type=Path, metavar="CONFIG")
    parser.add_argument("--count", type=int, default=5, help="how many archives (default 5)")
    parser.add_argument("--scratch", type=Path, help="where to restore to (default: TMPDIR)")
    return parser.parse_args()


def archives(destination: Path) -> Iterator[Path]:
    """All archives below a folder, zips and folders."""
    for folder, folders, files in os.walk(destination):
        here = Path(folder)
        yield from (here / name for name in files if name.endswith(".zarr.zip"))
        packed = [name for name in folders if _is_packed(here / name)]
        yield from (here / name for name in packed)
        folders[:] = [name for name in folders if name not in packed and name != ".decant-batch"]


def _is_packed(folder: Path) -> bool:
    return folder.suffix == ".zarr" and (folder / ".decant/manifest.json").is_file()


def drawn(found: Iterator[Path], count: int) -> list[Path]:
    """``count`` of them, each with the same chance, without holding all (reservoir sampling)."""
    chosen: list[Path] = []
    for number, archive in enumerate(found, start=1):
        if len(chosen) < count:
            chosen.append(archive)
        elif (place := random.randrange(number)) < count:  # noqa: S311 - no secret
            chosen[place] = archive
    return chosen


def tried(archive: Path, share: Path, scratch: Path | None) -> tuple[bool, str]:
    """Whether an archive gives its originals back, and that in words."""
    try:
        with tempfile.TemporaryDirectory(prefix="decant-drill-", dir=scratch) as folder:
            recorded = inspect(archive)
            restored = restore(archive, Path(folder))
            said = [compared(recorded, path, share / path.relative_to(folder)) for path in restored]
    except (DecantError, OSError) as error:
        return False, str(error)
    return all(is_same for is_same, _ in said), "; ".join(text for _, text in said)


def compared(recorded: Inspection, restored: Path, source: Path) -> tuple[bool, str]:
    """Whether a restored file may pass for its source: equal, or the source is not that any more.

    Its sha256 is the recorded one already: without that, restoring fails.
    """
    try:
        now = source.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True, "sha256 as recorded; its source is gone"
    if (now.st_size, now.st_mtime_ns) != (recorded.source_nbytes, recorded.mtime_ns):
        return True, "sha256 as recorded; its source has changed since"
    if filecmp.cmp(restored, source, shallow=False):
        return True, "sha256 as recorded, and every byte as in its source"
    return False, f"DIFFERS from {source}, which has the recorded size and date"


if __name__ == "__main__":
    sys.exit(main())
