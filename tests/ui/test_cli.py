from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tifffile
from typer.testing import CliRunner

import decant_batch
from decant_batch.archive import Stamp, pack
from decant_batch.archive import verify as verify_archive
from decant_batch.batch.model import Source, State, Summary, Tally, Tick, Trouble
from decant_batch.errors import (
    ArchiveDamaged,
    DecantError,
    LedgerHeld,
    NameTaken,
    SourceChanged,
    UnknownFormat,
    Unusable,
    UsageError,
)
from decant_batch.ui import cli

COMMANDS = ("run", "plan", "status", "verify", "restore", "inspect", "demo")
MTIME_NS = 1_773_219_600_000_000_000
# As the installed command starts, in a process of its own.
PROGRAM = (sys.executable, "-c", "from decant_batch.ui.cli import main; main()")

# So that it is this package that they find, installed or not.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(decant_batch.__file__).parents[1])}

Invoke = Callable[..., Any]


@pytest.fixture
def invoke() -> Invoke:
    """The command line with these arguments, in this process."""

    def call(*args: object) -> Any:
        return CliRunner().invoke(cli.app, [str(arg) for arg in args], prog_name="decant-batch")

    return call


def _program(*args: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *map(str, args)],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _pack(folder: Path, name: str = "plate 07/a Ü.tif") -> tuple[Path, Path]:
    """A source and its archive."""
    source = folder / "share" / name
    source.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.arange(2 * 64 * 48, dtype=np.uint16).reshape(2, 64, 48)
    tifffile.imwrite(source, pixels, photometric="minisblack", metadata={"axes": "ZYX"})
    os.utime(source, ns=(MTIME_NS, MTIME_NS))
    archive = folder / "archive" / f"{name}.zarr.zip"
    archive.parent.mkdir(parents=True, exist_ok=True)
    pack(source, archive, stamp=Stamp(relpath=name, mtime_ns=MTIME_NS, mode=0o640))
    return source, archive


@pytest.fixture
def packed(tmp_path: Path) -> tuple[Path, Path]:
    """A source and its archive, away from any ledger."""
    return _pack(tmp_path)


def _damage(archive: Path) -> None:
    """Change one byte in the middle, where the pixels are."""
    content = bytearray(archive.read_bytes())
    content[len(content) // 3] ^= 0xFF
    archive.write_bytes(content)


# --- help -------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_the_exit_codes(invoke: Invoke, command: str) -> None:
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert f"Example:\n    decant-batch {command} " in result.stdout
    for code in (0, 1, 2, 3, 4, 5, 130):
        assert any(line.split()[:1] == [str(code)] for line in result.stdout.splitlines())
    assert "\x1b" not in result.stdout


def test_the_first_help_lists_every_command_and_the_exit_codes(invoke: Invoke) -> None:
    result = invoke("--help")
    listed = result.stdout.split("Commands:")[1]
    assert all(f"\n  {command} " in listed for command in COMMANDS)
    assert "..." not in listed
    assert "another run holds the ledger" in listed


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").stdout == f"decant-batch {decant_batch.__version__}\n"


def test_help_and_inspect_import_nothing_heavy(packed: tuple[Path, Path]) -> None:
    script = (
        "import sys\n"
        "from decant_batch.ui import cli\n"
        "try:\n"
        "    cli.app(sys.argv[1:])\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "heavy = {'dask', 'distributed', 'rich'}\n"
        "heavy |= {'tifffile', 'numpy'} if '--help' in sys.argv else set()\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))\n"
    )
    for arguments in (["--help"], ["run", "--help"], ["inspect", str(packed[1])]):
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines()[-1] == "HEAVY []"


# --- exit codes and errors --------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("bogus",),
        ("run",),
        ("run", "a.yaml", "b.yaml"),
        ("run", "--bogus", "a.yaml"),
        ("restore", "a.zarr.zip"),
        ("verify",),
        ("verify", "a.zarr.zip", "--threads", "0"),
        ("inspect",),
    ],
)
def test_usage_errors_exit_2_with_a_clear_line(invoke: Invoke, arguments: tuple[str, ...]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "Usage:" in result.output
    assert "Traceback" not in result.output


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config path that loads as if there were one."""
    loaded = SimpleNamespace(ledger=tmp_path / "ledger.sqlite")
    monkeypatch.setattr("decant_batch.batch.config.load", lambda _path: loaded)
    return tmp_path / "decant.yaml"


def _execute(monkeypatch: pytest.MonkeyPatch, result: Summary | BaseException) -> None:
    def execute(_config: object, *, watch: Callable[[Tick], None]) -> Summary:
        watch(Tick(walk_ended=True))
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr("decant_batch.batch.run.execute", execute)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("decant.yaml:3: unknown key `sorce`; did you mean `source`?"), 2),
        (LedgerHeld("/l: held by run 3 on node7 (process 12)"), 3),
        (ArchiveDamaged("/a: truncated"), 4),
        (UnknownFormat("/a: format 9"), 4),
        (Unusable("/dst: read-only"), 5),
        (SourceChanged("/s: changed"), 1),
        (NameTaken("/d/a.tif: exists already"), 1),
        (OSError(28, "No space left on device", "/dst/x"), 5),
    ],
)
def test_every_error_is_one_line_and_its_code(
    invoke: Invoke,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: DecantError | OSError,
    code: int,
) -> None:
    _execute(monkeypatch, error)
    result = invoke("run", config, "--quiet")
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    message = "/dst/x: No space left on device" if isinstance(error, OSError) else str(error)
    assert message in result.stderr


def test_an_interrupt_exits_130_and_says_how_to_go_on(
    invoke: Invoke, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _execute(monkeypatch, KeyboardInterrupt())
    result = invoke("run", config, "--quiet")
    assert result.exit_code == 130
    assert "run again to go on" in result.stderr


def test_a_fault_of_ours_is_not_hidden(
    invoke: Invoke, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _execute(monkeypatch, ZeroDivisionError())
    assert isinstance(invoke("run", config).exception, ZeroDivisionError)


# --- run --------------------------------------------------------------------------------------


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    """What a run that had no trouble says."""
    return Summary(
        run=7,
        states={"archived": Tally(count=3, source_nbytes=3000, archive_nbytes=2000)},
        waiting=Tally(),
        modes={"byte-exact": Tally(count=3, source_nbytes=3000, archive_nbytes=2000)},
        reasons={},
        settled=Tally(),
        troubles=(),
        trouble_count=0,
        seconds=1.5,
        ledger=str(tmp_path / "ledger.sqlite"),
        report=None,
    )


def test_run_json_is_one_object_and_nothing_else(
    invoke: Invoke, config: Path, monkeypatch: pytest.MonkeyPatch, summary: Summary, tmp_path: Path
) -> None:
    _execute(monkeypatch, summary)
    result = invoke("run", config, "--json")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    values = json.loads(result.stdout)
    assert values["states"]["archived"]["count"] == 3
    assert values["ledger"] == str(tmp_path / "ledger.sqlite")
    assert values["report"] == str(tmp_path / "ledger-report-7.json")
    assert json.loads((tmp_path / "ledger-report-7.json").read_text())["run"] == 7


def test_run_prints_its_summary_to_stdout_and_progress_to_stderr(
    invoke: Invoke, config: Path, monkeypatch: pytest.MonkeyPatch, summary: Summary
) -> None:
    _execute(monkeypatch, summary)
    result = invoke("run", config)
    assert result.stdout.startswith("run 7 finished in 1.5 s\n")
    assert "finished: 100 %" in result.stderr


def test_a_report_that_cannot_be_written_does_not_take_the_result_with_it(
    invoke: Invoke, config: Path, monkeypatch: pytest.MonkeyPatch, summary: Summary, tmp_path: Path
) -> None:
    _execute(monkeypatch, replace(summary, ledger=str(tmp_path / "gone" / "ledger.sqlite")))
    result = invoke("run", config, "--quiet")
    assert result.exit_code == 5
    assert "run 7 finished" in result.stdout
    assert "the report cannot be written" in result.stderr


def test_exit_code_of_a_run(summary: Summary) -> None:
    trouble = Trouble(relpath="a.tif", failure="permanent", message="unreadable")
    full = replace(trouble, failure="destination")
    changing: dict[State, Tally] = {"changing": Tally(count=1, source_nbytes=1)}
    assert cli.run_code(summary) == 0
    assert cli.run_code(replace(summary, states=changing)) == 0
    assert cli.run_code(replace(summary, troubles=(trouble,), trouble_count=1)) == 1
    assert cli.run_code(replace(summary, stopped="no space left")) == 5
    assert cli.run_code(replace(summary, troubles=(trouble, full), trouble_count=2)) == 5


# --- archives ---------------------------------------------------------------------------------


def test_verify_says_what_came_back(invoke: Invoke, packed: tuple[Path, Path]) -> None:
    result = invoke("verify", packed[1])
    assert result.exit_code == 0
    assert result.stdout.startswith(f"ok  {packed[1]}: plate 07/a Ü.tif, ")


def test_verify_goes_on_after_a_damaged_archive_and_returns_4(
    invoke: Invoke, tmp_path: Path
) -> None:
    (_, good), (_, bad) = _pack(tmp_path, "good.tif"), _pack(tmp_path, "bad.tif")
    _damage(bad)
    gone = tmp_path / "gone.zarr.zip"
    result = invoke("verify", bad, gone, good)
    assert result.exit_code == 4
    assert f"ok  {good}" in result.stdout
    assert "1 of 3 archives without a problem" in result.stdout
    errors = result.stderr.splitlines()
    assert len(errors) == 2
    assert errors[0].startswith(f"error: {bad}: ")
    assert errors[1] == f"error: {gone}: there is no such archive; check the name"
    assert invoke("verify", gone, good).exit_code == 2


def test_verify_json(invoke: Invoke, tmp_path: Path) -> None:
    (_, good), (_, bad) = _pack(tmp_path, "good.tif"), _pack(tmp_path, "bad.tif")
    _damage(bad)
    values = json.loads(invoke("verify", good, bad, "--json").stdout)
    first, second = values["archives"]
    assert first["error"] is None
    assert first["originals"][0]["sha256"] == verify_archive(good)[0].sha256
    assert str(bad) in second["error"]


def test_what_is_no_archive_at_all_is_a_line(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "x.zarr.zip").write_text("no zip")
    for command in (("verify",), ("inspect",), ("restore", "-o", tmp_path / "out")):
        result = invoke(*command, tmp_path / "x.zarr.zip")
        assert result.exit_code == 4
        assert result.stderr.startswith("error: ")
        assert "x.zarr.zip" in result.stderr


def test_restore_brings_the_file_back_with_date_and_permissions(
    invoke: Invoke, packed: tuple[Path, Path], tmp_path: Path
) -> None:
    source, archive = packed
    result = invoke("restore", archive, "-o", tmp_path / "out")
    back = tmp_path / "out" / "plate 07" / "a Ü.tif"
    assert result.exit_code == 0
    assert result.stdout == f"restored  {back}\n"
    assert back.read_bytes() == source.read_bytes()
    assert back.stat().st_mtime_ns == MTIME_NS
    assert back.stat().st_mode & 0o777 == 0o640


def test_restore_replaces_only_with_force(
    invoke: Invoke, packed: tuple[Path, Path], tmp_path: Path
) -> None:
    source, archive = packed
    back = tmp_path / "out" / "plate 07" / "a Ü.tif"
    back.parent.mkdir(parents=True)
    back.write_text("thesis")
    result = invoke("restore", archive, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert "--force" in result.stderr
    assert back.read_text() == "thesis"
    assert invoke("restore", archive, "-o", tmp_path / "out", "--force").exit_code == 0
    assert back.read_bytes() == source.read_bytes()


def test_two_archives_of_one_path_are_refused_before_anything_is_written(
    invoke: Invoke, packed: tuple[Path, Path], tmp_path: Path
) -> None:
    _source, archive = packed
    further = shutil.copy(archive, archive.with_name("copy.zarr.zip"))
    result = invoke("restore", archive, further, "-o", tmp_path / "out", "--force")
    assert result.exit_code == 2
    assert f"{further}: holds " in result.stderr
    assert str(archive) in result.stderr
    assert not (tmp_path / "out").exists()
    assert invoke("restore", archive, archive, "-o", tmp_path / "out", "--force").exit_code == 0


def test_restoring_into_a_file_is_a_usage_error(
    invoke: Invoke, packed: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "out").touch()
    result = invoke("restore", packed[1], "-o", tmp_path / "out")
    assert (result.exit_code, "is no folder" in result.stderr) == (2, True)


def test_restore_json(invoke: Invoke, packed: tuple[Path, Path], tmp_path: Path) -> None:
    result = invoke("restore", packed[1], "-o", tmp_path / "out", "--json")
    (entry,) = json.loads(result.stdout)["archives"]
    assert entry["restored"] == [str(tmp_path / "out" / "plate 07" / "a Ü.tif")]


def test_inspect_shows_what_an_archive_holds(invoke: Invoke, packed: tuple[Path, Path]) -> None:
    result = invoke("inspect", packed[1])
    assert result.exit_code == 0
    for part in (
        "/archive/plate%2007/a%20%C3%9C.tif.zarr.zip",
        "byte-exact",
        "z=2 y=64 x=48, uint16, little-endian in the original, 2 pages",
        verify_archive(packed[1])[0].sha256,
        "`decant-batch verify` proves it now",
    ):
        assert part in result.stdout


def test_inspect_json(invoke: Invoke, packed: tuple[Path, Path]) -> None:
    values = json.loads(invoke("inspect", packed[1], "--json").stdout)
    assert values["mode"] == "byte-exact"
    assert values["shape"] == [2, 64, 48]
    assert values["source_nbytes"] == packed[0].stat().st_size
    assert values["verified"] == {"ledger": None, "at_ns": None, "by": None, "problem": None}


def test_inspect_of_nothing_is_a_usage_error(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("inspect", tmp_path / "gone.zarr.zip")
    assert result.exit_code == 2
    assert "there is no such archive" in result.stderr


# --- the program itself -----------------------------------------------------------------------


def test_a_name_that_is_no_utf8_survives_every_output(tmp_path: Path) -> None:
    name = os.fsdecode(b"latin-\xe4.tif")
    _, archive = _pack(tmp_path, name)
    for command in (["verify"], ["inspect"], ["restore", "-o", str(tmp_path / "out")]):
        done = _program(*command, archive)
        assert done.returncode == 0, done.stderr
        assert r"latin-\xe4.tif" in done.stdout
    done = _program("verify", archive, "--json")
    assert json.loads(done.stdout)["archives"][0]["archive"] == str(archive)
    assert (tmp_path / "out" / name).exists()


def test_a_reader_that_went_away_is_no_error(packed: tuple[Path, Path]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*PROGRAM, "verify", str(packed[1])],
        env=ENVIRONMENT,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `decant-batch demo demo-share` was called."""
    folder = tmp_path_factory.mktemp("demo")
    done = _program("demo", "demo-share", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "all 15 files came back byte for byte" in done.stdout
    assert "total" in done.stdout
    return folder


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "demo"])
def test_the_examples_of_the_help_run(demo: Path, invoke: Invoke, command: str) -> None:
    shown = invoke(command, "--help").stdout.split("Example:\n")[1].split("\n\n")[0]
    for line in shown.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "decant-batch"
        done = _program(*arguments, cwd=demo)
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_every_source_of_the_demo_is_in_one_state(demo: Path) -> None:
    done = _program("run", "demo-share/decant.yaml", "--json", cwd=demo)
    values = json.loads(done.stdout)
    share = [path for path in (demo / "demo-share/share").rglob("*") if path.is_file()]
    assert values["found"]["count"] == len(share)
    assert values["found"]["source_nbytes"] == sum(path.stat().st_size for path in share)
    assert values["states"]["archived"]["count"] == len(share)
    assert values["settled"]["count"] == len(share)
    assert values["modes"]["verbatim"]["count"] == 4
    assert values["reasons"].keys() >= {"compressed", "empty-file", "not-a-tiff"}


def test_plan_after_the_run_finds_nothing_to_do(demo: Path) -> None:
    values = json.loads(_program("plan", "demo-share/decant.yaml", "--json", cwd=demo).stdout)
    assert values["states"]["archived"]["count"] == 15
    assert sum(tally["count"] for tally in values["make"].values()) == 0


def test_status_knows_the_runs_and_the_balance(demo: Path) -> None:
    text = _program("status", "demo-share/decant.yaml", cwd=demo).stdout
    assert "archived" in text
    values = json.loads(_program("status", "demo-share/decant.yaml", "--json", cwd=demo).stdout)
    assert values["states"]["archived"]["count"] == 15


def test_inspect_says_who_verified_it_when(demo: Path) -> None:
    archive = demo / "demo-share/archive/slides/overview planar.tif.zarr.zip"
    values = json.loads(_program("inspect", archive, "--json", cwd=demo).stdout)["verified"]
    assert values["ledger"] == str(demo / "demo-share/archive/.decant-batch/ledger.sqlite")
    assert values["at_ns"] > MTIME_NS
    assert values["by"]


def test_a_config_that_is_not_there(invoke: Invoke, tmp_path: Path) -> None:
    for command in ("run", "plan", "status"):
        result = invoke(command, tmp_path / "gone.yaml")
        assert result.exit_code == 2
        assert "gone.yaml" in result.stderr


def test_demo_without_run_only_writes(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("demo", tmp_path / "new", "--no-run")
    assert result.exit_code == 0
    assert sorted(os.listdir(tmp_path / "new")) == ["decant.yaml", "share"]
    assert "decant-batch run" in result.stdout
    assert invoke("demo", tmp_path / "new", "--no-run").exit_code == 2


def test_demo_json_is_one_object(tmp_path: Path) -> None:
    done = _program("demo", tmp_path / "new", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    values = json.loads(done.stdout)
    assert values["run"]["found"]["count"] == 15
    assert values["compared"] == {"count": 15, "differing": []}


def test_plan_lists_each_source(
    invoke: Invoke, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from decant_batch.batch.model import Outcome

    failed = Outcome(
        source=Source(relpath="a\udcff.tif", size=9, mtime_ns=0, mode=0),
        state="failed",
        failure="permanent",
        message="two names that differ in case only",
    )
    monkeypatch.setattr("decant_batch.batch.preview.preview", lambda _config: iter((failed,)))
    result = invoke("plan", config, "--files")
    assert result.exit_code == 1
    assert r"a\xff.tif  (two names that differ in case only)" in result.stdout
    assert json.loads(invoke("plan", config, "--json").stdout)["states"]["failed"]["count"] == 1


def test_each_fault_of_a_config_has_a_line_of_its_own(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("source: share\ndestinaton: archive\n")
    result = CliRunner().invoke(cli.app, ["run", str(config)])
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert [line.startswith("error: ") for line in lines] == [True, True]
    assert "did you mean 'destination'?" in lines[1]
