"""What every test has to leave behind: no open file, no temporary name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest


def _open_files() -> set[str]:
    return {file.path for file in psutil.Process().open_files()}


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a file open, or a temporary archive in its folder."""
    folder: Path | None = None
    if "tmp_path" in request.fixturenames:  # asked for now, so that it outlives this fixture
        folder = request.getfixturevalue("tmp_path")
    before = _open_files()
    yield
    assert _open_files() <= before
    if folder is not None:
        assert [path.name for path in folder.rglob("*.partial")] == []
