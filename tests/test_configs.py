from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from decant_batch.batch.config import Config, load

CONFIGS = Path(__file__).parents[1] / "configs"
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
