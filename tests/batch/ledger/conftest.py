"""What the tests of the ledger are made of: sources, jobs, outcomes, and processes of their own."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import decant_batch
from decant_batch.archive.model import Recipe
from decant_batch.batch.ledger import Ledger
from decant_batch.batch.model import Job, Outcome, Source

_ROOT = Path(decant_batch.__file__).parents[1]


class Make:
    """Builds values; everything not named has a believable default."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def ledger(self, **changes: Any) -> Ledger:
        binding: dict[str, Any] = {"source": "/share", "destination": "/dest", "config": "{}"}
        return Ledger.open(self.path, **(binding | changes))

    def source(self, relpath: str = "a.tif", size: int = 10, mtime_ns: int = 5) -> Source:
        return Source(relpath=relpath, size=size, mtime_ns=mtime_ns, mode=0o644)

    def job(self, source: Source, archive: str | None = None, projected_bytes: int = 1000) -> Job:
        return Job(
            source=source,
            archive=archive or f"{source.relpath}.zarr.zip",
            mode="byte-exact",
            reason=None,
            detail="",
            recipe=Recipe(),
            projected_bytes=projected_bytes,
        )

    def archived(self, source: Source, **changes: Any) -> Outcome:
        values: dict[str, Any] = {
            "archive": f"{source.relpath}.zarr.zip",
            "mode": "byte-exact",
            "sha256": "ab" * 32,
            "archive_nbytes": source.size // 2,
        }
        return Outcome(source=source, state="archived", **(values | changes))

    def reported(self, source: Source) -> Outcome:
        return Outcome(source=source, state="reported", reason="not-a-tiff", detail="a text file")

    def failed(self, source: Source, **changes: Any) -> Outcome:
        values: dict[str, Any] = {"failure": "transient", "message": "EIO"}
        return Outcome(source=source, state="failed", **(values | changes))

    def changing(self, source: Source) -> Outcome:
        return Outcome(source=source, state="changing", message="younger than 10 minutes")

    def edit(self, statement: str, *parameters: object) -> None:
        """Change the ledger's file behind its back."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute(statement, parameters)

    def ask(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query, parameters).fetchall()

    @contextmanager
    def process(self, code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """Run ``code`` in a new process that has the ledger's path as its first argument."""
        with subprocess.Popen(
            [sys.executable, "-c", code, str(self.path), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(_ROOT)},
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, code: str, *arguments: object) -> str:
        """Return what ``code`` prints in a process of its own."""
        with self.process(code, *arguments) as process:
            printed, _ = process.communicate()
        return printed


@pytest.fixture
def make(tmp_path: Path) -> Make:
    return Make(tmp_path / ".decant-batch" / "ledger.sqlite")
