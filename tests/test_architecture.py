"""docs/architecture.md names every module and every layer that is, and none that is not."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "decant_batch"
TEXT = (ROOT / "docs/architecture.md").read_text()
CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "importlinter"
]["contracts"]
LAYERED = {
    contract["containers"][0].rpartition(".")[2]: contract["layers"]
    for contract in CONTRACTS
    if "containers" in contract
}


def modules() -> set[str]:
    """Paths of all modules below the package; an ``__init__`` speaks for its folder."""
    found = (path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
    return {path for path in found if not path.endswith("__init__.py")}


def test_every_module_is_named_and_every_one_named_exists() -> None:
    assert set(re.findall(r"`((?:\w+/)*\w+\.py)`", _without_other_folders(TEXT))) == modules()


def _without_other_folders(text: str) -> str:
    return re.sub(r"`(?:tests|benchmarks|workflows)/[\w/]+\.py`", "", text)


def test_every_module_has_one_line_of_its_own() -> None:
    rows = re.findall(r"^\| `([\w/]+\.py)` \| .+ \|$", TEXT, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) | {"errors.py"} == modules()


@pytest.mark.parametrize("folder", ["archive", "batch"])
def test_layers_are_those_that_are_checked(folder: str) -> None:
    block = TEXT.split(f"\nIn `{folder}`:\n\n```\n", 1)[1].split("```", 1)[0]
    assert block.splitlines() == LAYERED[folder]


@pytest.mark.parametrize(
    "name", re.findall(r"`(\w+(?:\.\w+)+)`", TEXT.split("\n## Decisions", 1)[1].split("\n## ")[0])
)
def test_places_of_decisions_exist(name: str) -> None:
    module, *_, last = name.split(".")
    files = [path for path in PACKAGE.rglob("*.py") if module in (path.stem, path.parent.name)]
    stands = rf"^\s*(?:def|class) {last}\b"
    assert any(
        path.stem == last or re.search(stands, path.read_text(), re.MULTILINE) for path in files
    )
