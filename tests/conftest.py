"""What every test has to leave behind: no open file, no temporary name; and a corpus, packed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from decant_batch.batch import run
from decant_batch.batch.config import load
from tests.corpus import CONFIG, Packed


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


@pytest.fixture(scope="module")
def corpus() -> Path:
    folder = os.environ.get("DECANT_CORPUS")
    if not folder or not Path(folder, "index.csv").is_file():
        pytest.fail("DECANT_CORPUS must name the folder of real TIFFs (index.csv and files/)")
    return Path(folder)


@pytest.fixture(scope="module")
def packed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Packed:
    config = tmp_path_factory.mktemp("corpus") / "c.yaml"
    config.write_text(CONFIG.format(source=corpus / "files"))
    summary = run.execute(load(config), watch=lambda _tick: None)
    return Packed(root=corpus / "files", config=config, summary=summary)
