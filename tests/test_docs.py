"""The documents say what the code does: tables, examples and file names are compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from decant_batch.archive.manifest import Manifest, MemberRecord, PageRecord
from decant_batch.archive.model import Reason

ROOT = Path(__file__).parents[1]
FORMAT = (ROOT / "docs/format.md").read_text()
MODELS: dict[str, type[BaseModel]] = {
    "Manifest": Manifest,
    "PageRecord": PageRecord,
    "MemberRecord": MemberRecord,
}


def table_after(mark: str) -> list[str]:
    """First column of the table that follows ``mark`` in format.md."""
    rows = FORMAT.split(mark, 1)[1].lstrip().splitlines()
    cells = [row.split("|")[1].strip() for row in rows[2:] if row.startswith("|")]
    return [cell.strip("`") for cell in cells[: next_gap(rows) - 2]]


def next_gap(rows: list[str]) -> int:
    return next((i for i, row in enumerate(rows) if not row.startswith("|")), len(rows))


@pytest.mark.parametrize("name", MODELS)
def test_field_tables_are_the_models(name: str) -> None:
    fields = table_after(f"<!-- fields: {name} -->")
    assert sorted(fields) == sorted(MODELS[name].model_fields)


def test_reasons_are_all_explained() -> None:
    assert sorted(table_after("## Why a source is verbatim\n")) == sorted(get_args(Reason))


def test_json_examples_parse() -> None:
    examples = re.findall(r"```json\n(.*?)```", FORMAT, re.DOTALL)
    assert len(examples) == FORMAT.count("```json") >= 2
    documents = [json.loads(example) for example in examples]
    manifest = Manifest.model_validate_json(json.dumps(documents[0]))
    pixels = sum(sum(page.databytecounts) for page in manifest.pages)
    assert manifest.husk_raw_size == manifest.original_size - pixels


@pytest.mark.parametrize("document", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/*.md")))
def test_files_that_documents_name_are_there(document: Path) -> None:
    text = document.read_text()
    named = re.findall(r"`((?:docs|tests|configs|workflows|benchmarks|\.ci)/[\w./-]+)`", text)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    missing = [name for name in named if not (ROOT / name).exists()]
    assert missing + [link for link in links if not (document.parent / link).exists()] == []
