from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from decant_batch.batch.config import Config, load
from decant_batch.batch.model import Excluded, Job, Outcome
from decant_batch.batch.preview import preview
from tests import tiffs
from tests.tiffs import TiffSpec

ROOT = Path(__file__).parents[1]

CONFIGS = ROOT / "configs"
FILES = sorted(CONFIGS.glob("*.y*ml"))


def test_there_are_configs_to_load() -> None:
    assert {"minimal.yaml", "workstation.yaml"} <= {file.name for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_each_example_loads(file: Path) -> None:
    assert load(file).source.is_absolute()


def test_workstation_shows_every_key() -> None:
    shown = yaml.safe_load((CONFIGS / "workstation.yaml").read_text())
    whole = load(CONFIGS / "minimal.yaml").model_dump()

    assert shown.keys() == Config.model_fields.keys()
    for section in ("archive", "cluster"):
        assert shown[section].keys() == whole[section].keys()


def test_workstation_says_the_defaults_right() -> None:
    text = (CONFIGS / "workstation.yaml").read_text()
    config = load(CONFIGS / "minimal.yaml")

    assert config.include == ("**",)
    assert "default is ['**']" in text
    assert config.settle == 600
    assert "10m (the default)" in text
    assert config.archive.codec == yaml.safe_load(text)["archive"]["codec"]


# --- planned ----------------------------------------------------------------------------------

SHARE = {
    "a.tif": tiffs.build(TiffSpec(pages=2, rows_per_strip=2)),
    "b_preview.tif": tiffs.build(TiffSpec()),
    "notes.txt": tiffs.text(),
    "plate-scans/readme.txt": tiffs.text(),
    "plate-scans/well/c.tif": tiffs.build(TiffSpec(tile_width=16, tile_length=16)),
    "scratch/d.tif": tiffs.build(TiffSpec()),
}
# What each example makes of it: a job's mode, or the state of what needs no archive.
PLANNED = {
    "minimal.yaml": dict.fromkeys(SHARE, "byte-exact")
    | {"notes.txt": "reported", "plate-scans/readme.txt": "reported"},
    "workstation.yaml": {
        "a.tif": "byte-exact",
        "plate-scans/readme.txt": "verbatim",
        "plate-scans/well/c.tif": "byte-exact",
    },
}


def copied(file: Path, folder: Path) -> Path:
    """The example with its paths led to ``folder``, where there is a share for it."""
    for relpath, data in SHARE.items():
        path = folder / "share" / relpath
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (1_600_000_000, 1_600_000_000))
    values: dict[str, Any] = yaml.safe_load(file.read_text())
    paths = {"source": "share", "destination": "archive", "ledger": "ledger.sqlite"}
    copy = folder / file.name
    copy.write_text(yaml.safe_dump({key: paths.get(key, values[key]) for key in values}))
    return copy


def test_each_example_has_its_plan() -> None:
    assert {file.name for file in FILES} == set(PLANNED)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_each_example_is_planned(file: Path, tmp_path: Path) -> None:
    items = list(preview(load(copied(file, tmp_path))))

    planned = {}
    for item in items:
        if isinstance(item, Excluded):
            continue
        assert isinstance(item, Job | Outcome)
        planned[item.source.relpath] = item.mode if isinstance(item, Job) else item.state
    assert planned == PLANNED[file.name]
    assert {path.name for path in tmp_path.iterdir()} == {"share", file.name}


# --- explained --------------------------------------------------------------------------------


def test_the_manual_explains_every_key() -> None:
    whole = load(CONFIGS / "minimal.yaml").model_dump()
    keys = {key for key in whole if not isinstance(whole[key], dict) or key == "codec"}
    keys |= {f"{section}.{key}" for section in ("archive", "cluster") for key in whole[section]}
    manual = (ROOT / "docs/operating.md").read_text().split("\n## The config", 1)[1]
    table = manual.split("\n## ", 1)[0]
    assert set(re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)) == keys
