"""The workflows are run for real, on a tiny share; so are the examples in the operator's manual."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

import decant_batch
from decant_batch.archive import Recipe, Stamp, pack
from decant_batch.archive.model import ContainerKind, Mode
from decant_batch.batch import memory
from decant_batch.batch.config import load
from decant_batch.batch.ledger import Ledger
from decant_batch.batch.model import FailureClass, Source, State, Survey
from decant_batch.ui.cli import EXIT_CODES
from tests import tiffs
from tests.tiffs import TiffSpec

ROOT = Path(__file__).parents[1]
NIGHTLY = ROOT / "workflows/nightly"
DRILL = ROOT / "workflows/restore_drill/restore_drill.py"
# What the unit files call the folder of a clone.
INSTALLED = "/opt/decant-batch"
BASE = TiffSpec(pages=3, shape=(20, 14), gap=9, trailing=11)
SUFFIX: Mapping[ContainerKind, str] = {"zip": ".zarr.zip", "folder": ".zarr"}
SOURCES = {
    "a.tif": tiffs.build(BASE),
    "plate 7/Größe.tif": tiffs.build(TiffSpec(pages=2, shape=(9, 8), byteorder=">")),
    "plate 7/notes.txt": tiffs.text(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A share, a config and a destination beside each other."""

    folder: Path

    @property
    def share(self) -> Path:
        return self.folder / "share"

    @property
    def archive(self) -> Path:
        return self.folder / "archive"

    @property
    def config(self) -> Path:
        return self.folder / "micro scope.yaml"

    def packed(self, container: ContainerKind = "zip", sources: Iterable[str] = ()) -> Place:
        """Archives as a run makes them, of some or of all sources."""
        for relpath in sources or SOURCES:
            source = self.share / relpath
            seen = source.stat()
            stamp = Stamp(relpath=relpath, mtime_ns=seen.st_mtime_ns, mode=0o644)
            archive = self.archive / f"{relpath}{SUFFIX[container]}"
            archive.parent.mkdir(parents=True, exist_ok=True)
            pack(source, archive, recipe=Recipe(container=container), stamp=stamp)
        return self


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(folder=tmp_path)
    for relpath, data in SOURCES.items():
        path = made.share / relpath
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    made.config.write_text(
        "source: share\ndestination: archive\nothers: verbatim\nsettle: 0s\n"
        "cluster: {workers: 1, memory: 1GiB}\n"
    )
    return made


def called(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **environment}
    return subprocess.run(
        command, env=given, capture_output=True, encoding="utf-8", check=False, timeout=120
    )


# --- nightly ----------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """What ``decant-batch`` is after an installation."""
    path = tmp_path / "bin" / "decant-batch"
    path.parent.mkdir()
    path.write_text(
        f"#!/bin/sh\nexec '{sys.executable}' -c "
        "'from decant_batch.ui.cli import main; main()' \"$@\"\n"
    )
    path.chmod(0o755)
    return path


def test_a_night_is_run_and_its_log_kept(place: Place, program: Path) -> None:
    logs = place.folder / "made/logs"
    for _night in range(2):
        found = called(NIGHTLY / "run.sh", place.config, logs, DECANT_BATCH=str(program))
        assert (found.returncode, found.stdout, found.stderr) == (0, "", "")

    (log,) = logs.iterdir()
    assert re.fullmatch(r"micro scope-\d{4}-\d\d\.log", log.name)
    text = log.read_text()
    heads = re.findall(rf"^== \S+ \S+ \S+ {re.escape(str(place.config))}$", text, re.MULTILINE)
    assert len(heads) == 2
    assert "run 1 finished" in text
    assert "of these, 3 (" in text
    assert sorted(path.name for path in place.archive.rglob("*.zarr.zip")) == [
        "Größe.tif.zarr.zip",
        "a.tif.zarr.zip",
        "notes.txt.zarr.zip",
    ]


def test_the_program_is_found_on_the_path(place: Place, program: Path) -> None:
    path = f"{program.parent}:{os.environ['PATH']}"
    place.config.write_text("source: share\n")
    found = called(NIGHTLY / "run.sh", place.config, place.folder / "logs", PATH=path)
    (log,) = (place.folder / "logs").iterdir()
    assert found.returncode == 2
    assert "destination is missing" in log.read_text()


def test_a_night_is_not_begun_without_config_and_logs() -> None:
    found = called(NIGHTLY / "run.sh", "config.yaml")
    assert found.returncode == 2
    assert "usage" in found.stderr


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(NIGHTLY / name)
    return parser


def test_the_service_calls_what_is_there() -> None:
    service = unit("decant-batch.service")["Service"]
    script, *arguments = service["ExecStart"].split()
    assert ROOT / Path(script).relative_to(INSTALLED) == NIGHTLY / "run.sh"
    assert os.access(NIGHTLY / "run.sh", os.X_OK)
    assert len(arguments) == 2
    assert arguments[1] == f"/var/log/{service['LogsDirectory']}"
    assert "DECANT_BATCH" in (NIGHTLY / "run.sh").read_text()
    assert service["Environment"].startswith(f"DECANT_BATCH={INSTALLED}/")
    timer = unit("decant-batch.timer")
    assert timer["Timer"]["Unit"] == "decant-batch.service"
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_the_service_fits_the_example_config() -> None:
    service = unit("decant-batch.service")
    config = load(ROOT / "configs/workstation.yaml")
    mounts = service["Unit"]["RequiresMountsFor"].split()
    assert mounts == [str(config.source), str(config.destination)]
    assert service["Service"]["ReadOnlyPaths"] == str(config.source)
    assert service["Service"]["ReadWritePaths"] == str(config.destination)
    assert config.ledger.parent == Path("/var/lib") / service["Service"]["StateDirectory"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    names = ("decant-batch.service", "decant-batch.timer")
    shutil.copy(NIGHTLY / "run.sh", tmp_path)
    for name in names:
        text = (NIGHTLY / name).read_text()
        text = text.replace(f"{INSTALLED}/workflows/nightly", str(tmp_path))
        (tmp_path / name).write_text(text)
    found = called("systemd-analyze", "verify", "--man=no", *(tmp_path / name for name in names))
    about_ours = [line for line in found.stderr.splitlines() if "decant" in line]
    assert (found.returncode, about_ours) == (0, [])


# --- restore drill ----------------------------------------------------------------------------


def drill(place: Place, *options: str) -> subprocess.CompletedProcess[str]:
    scratch = place.folder / "scratch"
    scratch.mkdir(exist_ok=True)
    found = called(sys.executable, DRILL, place.config, "--scratch", scratch, *options)
    assert list(scratch.iterdir()) == []
    assert found.stderr == ""
    return found


@pytest.mark.parametrize("container", ["zip", "folder"])
def test_all_come_back(place: Place, container: ContainerKind) -> None:
    found = drill(place.packed(container))
    *lines, last = found.stdout.splitlines()
    assert (found.returncode, last) == (0, "3 of 3 archives came back")
    assert len(lines) == 3
    named = {line.split(maxsplit=1)[1].partition(f"{SUFFIX[container]}: ")[0] for line in lines}
    assert named == {str(place.archive / relpath) for relpath in SOURCES}
    assert all(line.endswith("every byte as in its source") for line in lines)


def test_as_many_as_asked_for(place: Place) -> None:
    found = drill(place.packed(), "--count", "2")
    assert len(found.stdout.splitlines()) == 3
    assert found.stdout.endswith("2 of 2 archives came back\n")


def _is_gone(source: Path, _archive: Path) -> None:
    source.unlink()


def _has_changed(source: Path, _archive: Path) -> None:
    source.write_bytes(b"another")


def _differs_in_secret(source: Path, _archive: Path) -> None:
    before, data = source.stat(), bytearray(source.read_bytes())
    data[-1] ^= 1
    source.write_bytes(data)
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))


def _is_damaged(_source: Path, archive: Path) -> None:
    data = bytearray(archive.read_bytes())
    data[len(data) // 4] ^= 0xFF
    archive.write_bytes(data)


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (_is_gone, 0, "ok .*sha256 as recorded; its source is gone"),
        (_has_changed, 0, "ok .*sha256 as recorded; its source has changed since"),
        (_differs_in_secret, 1, "FAILED .*DIFFERS from "),
        (_is_damaged, 1, "FAILED .*a.tif.zarr.zip: "),
    ],
)
def test_one_line_for_one_that_is_not_as_it_was(
    place: Place, change: Callable[[Path, Path], None], code: int, said: str
) -> None:
    place.packed(sources=["a.tif"])
    change(place.share / "a.tif", place.archive / "a.tif.zarr.zip")

    found = drill(place)
    line, last = found.stdout.splitlines()
    assert found.returncode == code
    assert re.match(said, line)
    assert last == f"{1 - code} of 1 archives came back"


def test_nothing_to_restore_proves_nothing(place: Place) -> None:
    found = drill(place)
    assert found.returncode == 1
    assert "nothing was proved" in found.stdout


def test_a_config_that_is_wrong_is_told(place: Place) -> None:
    found = called(sys.executable, DRILL, place.folder / "none.yaml")
    assert found.returncode == 2
    assert "none.yaml" in found.stderr


# --- the manual -------------------------------------------------------------------------------

MANUAL = (ROOT / "docs/operating.md").read_text()


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", MANUAL, re.DOTALL)


def section(title: str) -> str:
    return MANUAL.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_the_manual_s_python_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_here = [example for example in examples("python") if "import napari" not in example]
    (named,) = set(re.findall(r'"(/archive/.+?\.zarr\.zip)"', "".join(run_here)))
    source, archive = tmp_path / "a.tif", tmp_path / "a.tif.zarr.zip"
    source.write_bytes(tiffs.imagej_hyperstack(2, 3, 2))
    pack(source, archive)
    for example in run_here:
        names: dict[str, Any] = {}
        exec(example.replace(named, str(archive)), names)
        names["store"].close()
    assert names["plane"].shape == (5, 7)
    assert "{'t': 2, 'c': 2, 'z': 3, 'y': 5, 'x': 7} uint16" in capsys.readouterr().out


def test_the_manual_s_sql_runs(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path, source="/a", destination="/b", config="{}"):
        pass
    for example in examples("sql"):
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute(example).fetchall() == []


def test_the_manual_names_commands_and_options_that_are() -> None:
    calls = re.findall(r"\bdecant-batch ([a-z]+)\b(.*)", "\n".join(examples("sh")))
    asked = {command for command, _ in calls}
    assert asked == {"plan", "run", "status", "verify", "restore", "inspect", "demo"}
    cli = (Path(decant_batch.__file__).parent / "ui/cli.py").read_text()
    options = {option for _, rest in calls for option in re.findall(r" (--?[a-z-]+)", rest)}
    assert options
    assert [option for option in options if f'"{option}"' not in cli] == []


def test_the_manual_has_every_exit_code() -> None:
    codes = re.findall(r"^\| (\d+) \|", section("Exit codes"), re.MULTILINE)
    assert codes == re.findall(r"^  (\d+) ", EXIT_CODES, re.MULTILINE)


def test_the_manual_has_every_state_and_class_of_failure() -> None:
    states = re.findall(r"^\| `([a-z]+)` \|", section("What a run prints"), re.MULTILINE)
    assert states == [*get_args(State), "waiting"]
    title = "What fails, and what to do"
    assert re.findall(r"^\| `([a-z]+)` \|", section(title), re.MULTILINE) == [
        *get_args(FailureClass)
    ]


@pytest.mark.parametrize(
    ("page", "mode", "side"),
    [
        ("2048 x 2048, 16 bit", "byte-exact", 2048),
        ("4096 x 4096, 16 bit", "byte-exact", 4096),
        ("8192 x 8192, 16 bit", "byte-exact", 8192),
        ("any size, verbatim", "verbatim", 0),
    ],
)
def test_the_manual_s_memory_is_computed(page: str, mode: Mode, side: int) -> None:
    survey = Survey(
        source=Source(relpath="a.tif", size=0, mtime_ns=0, mode=0),
        is_tiff=True,
        mode=mode,
        page_nbytes=2 * side * side,
        live_nbytes=2 * side * side,
        page_count=1000,
        segment_count=1000,
    )
    cells = [f"{memory.job_nbytes(survey, threads) / 2**20:.0f} MiB" for threads in (1, 2, 4)]
    assert f"\n| {page} | {' | '.join(cells)} |\n" in section("Workers and memory")
