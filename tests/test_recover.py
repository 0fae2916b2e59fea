"""The independent reader recovers every archive in tests/foreign.py: both follow the spec alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests import foreign, recover, tiffs
from tests.foreign import Json, Style

CASES = foreign.cases()


@pytest.mark.parametrize("name", CASES)
def test_recovers_the_original_bytes(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    archive = foreign.write(case.keys, tmp_path, case.form)
    assert recover.recover(archive) == case.originals


@given(spec=tiffs.tiff_specs())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_recovers_any_layout(
    spec: tiffs.TiffSpec, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = foreign.original(spec)
    style = Style(stored=">" if spec.seed % 2 else "<", skip_fill=True, husk_chunk=100)
    keys = foreign.byte_exact(source, style)
    archive = foreign.write(keys, tmp_path_factory.mktemp("any"))
    assert recover.recover(archive) == {"a.tif": source.data}


def _other_sha256(document: Json) -> None:
    document["original_sha256"] = "0" * 64


def _swapped_pages(document: Json) -> None:
    first, second = document["pages"][:2]
    first["index"], second["index"] = second["index"], first["index"]


def _other_plane_order(document: Json) -> None:
    document["plane_order"] = ["z", "c"]


@pytest.mark.parametrize("change", [_other_sha256, _swapped_pages, _other_plane_order])
def test_a_wrong_manifest_never_passes(change: Callable[[Json], None], tmp_path: Path) -> None:
    style = Style(axes=("c", "z"), leading=(2, 2))
    keys = foreign.byte_exact(foreign.original(foreign.BUSY), style)
    archive = foreign.write(foreign.edited(keys, foreign.MANIFEST, change), tmp_path)
    with pytest.raises(ValueError, match="sha256"):
        recover.recover(archive)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_refuses_an_unknown_format(version: object, tmp_path: Path) -> None:
    keys = foreign.edited(
        foreign.verbatim(b"x"), foreign.MANIFEST, lambda document: document.update(format=version)
    )
    with pytest.raises(ValueError, match="format"):
        recover.recover(foreign.write(keys, tmp_path))


def test_runs_by_itself(tmp_path: Path) -> None:
    case = CASES["consolidated-zip"]
    archive = foreign.write(case.keys, tmp_path)
    script = Path(recover.__file__)
    subprocess.run([sys.executable, script, archive, tmp_path / "out"], check=True)
    found = {name: (tmp_path / "out" / name).read_bytes() for name in case.originals}
    assert found == case.originals


def test_is_short_and_imports_nothing_else() -> None:
    text = Path(recover.__file__).read_text()
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    others = {name for name in names if name not in sys.stdlib_module_names}
    assert others == {"numpy", "zarr"}
    assert len(text.splitlines()) <= 80


def test_nested_members_are_archives_of_their_own(tmp_path: Path) -> None:
    case = CASES["nested"]
    bundle = foreign.write(case.keys, tmp_path, "folder") / "m1.zarr.zip"
    assert recover.recover(bundle) == {"s02.tif": case.originals["day 1/s02.tif"]}


def test_husk_and_pixels_make_up_the_file() -> None:
    for spec in foreign.LAYOUTS.values():
        source = foreign.original(spec)
        assert len(source.husk) + source.planes.nbytes == len(source.data)


def test_skipped_chunks_are_really_missing() -> None:
    style = replace(foreign.PLAIN, skip_fill=True)
    keys = foreign.byte_exact(foreign.original(replace(foreign.BUSY, pixels="zero")), style)
    assert [key for key in keys if key.startswith("0/")] == ["0/.zarray"]
