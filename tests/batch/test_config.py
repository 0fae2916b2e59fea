from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numcodecs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decant_batch.archive.model import Pyramid, Recipe
from decant_batch.batch import config as config_package
from decant_batch.batch.config import Cluster, Config, Usable, load, model, usable
from decant_batch.batch.config.quantities import duration, size
from decant_batch.batch.guess import Guess
from decant_batch.errors import UsageError

Load = Callable[..., Config]
BASE = "source: /mnt/microscope3\ndestination: /archive/microscope3\n"
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}


@pytest.fixture
def loaded(tmp_path: Path) -> Load:
    def of(text: str | bytes, base: str = BASE) -> Config:
        file = tmp_path / "share.yaml"
        file.write_bytes(text if isinstance(text, bytes) else (base + text).encode())
        return load(file)

    return of


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    def has(cores: int, memory_bytes: int) -> None:
        here = Usable(cores=cores, memory_bytes=memory_bytes)
        monkeypatch.setattr(model, "usable", lambda: here)

    return has


def _refusal(loaded: Load, text: str | bytes, base: str = BASE) -> str:
    with pytest.raises(UsageError) as caught:
        loaded(text, base)
    return str(caught.value)


def test_what_a_small_config_leaves_out_has_a_default(
    loaded: Load, machine: Callable[[int, int], None]
) -> None:
    machine(4, 20 << 30)

    config = loaded("")

    assert config.source == Path("/mnt/microscope3")
    assert config.ledger == Path("/archive/microscope3/.decant-batch/ledger.sqlite")
    assert (config.include, config.exclude) == (("**",), ())
    assert (config.hidden, config.litter, config.others) == (False, False, "report")
    assert config.settle == 600
    assert config.recipe == Recipe()
    assert (config.cluster.kind, config.cluster.workers) == ("local", 4)
    assert config.cluster.memory == (16 << 30) // 4


def test_every_key_is_taken(loaded: Load, tmp_path: Path) -> None:
    config = loaded(
        "ledger: state/l.sqlite\ninclude: ['*.tif', '2024/**']\nexclude: [2026-03-01, 010, 1:30]\n"
        "hidden: true\nlitter: true\nothers: verbatim\nsettle: 2h\n"
        "archive:\n  container: folder\n  codec: null\n  filters: [{id: zlib, level: 1}]\n"
        "  threads: 3\n  pyramid: {levels: 2, min_size: 64, method: nearest}\n"
        "cluster: {kind: local, workers: 2, memory: 1.5 GiB}\n"
    )

    assert config.ledger == tmp_path / "state/l.sqlite"
    assert config.include == ("*.tif", "2024/**")
    # Names that YAML would make a date, eight and ninety.
    assert config.exclude == ("2026-03-01", "010", "1:30")
    assert config.hidden
    assert config.litter
    assert (config.others, config.settle) == ("verbatim", 7200)
    assert config.recipe == Recipe(
        container="folder",
        compressor=None,
        filters=({"id": "zlib", "level": 1},),
        threads=3,
        pyramid=Pyramid(levels=2, min_size=64, method="nearest"),
    )
    assert (config.cluster.workers, config.cluster.memory) == (2, 3 << 29)


@pytest.mark.parametrize("text", ["{}", "{levels: auto}", "{min_size: 256, method: mean}"])
def test_a_pyramid_is_asked_for_and_its_keys_have_defaults(loaded: Load, text: str) -> None:
    assert loaded(f"archive: {{pyramid: {text}}}").recipe.pyramid == Pyramid()


@pytest.mark.parametrize(
    "text",
    ["{levels: 0}", "{levels: true}", "{levels: '2'}", "{min_size: 0}", "{method: sum}", "3"],
)
def test_a_pyramid_that_cannot_be_is_refused(loaded: Load, text: str) -> None:
    assert "archive.pyramid" in _refusal(loaded, f"archive: {{pyramid: {text}}}")


@pytest.mark.parametrize("text", ["series: auto\n", "series: [{auto: true}]\n"])
def test_guesses_are_asked_for(loaded: Load, text: str) -> None:
    assert loaded(text).rules == (Guess(),)


def test_a_config_is_a_value(loaded: Load) -> None:
    config = loaded("")

    assert config == loaded("")
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(ValueError, match="frozen"):
        config.others = "verbatim"


def test_a_config_can_be_made_without_a_file() -> None:
    config = Config(source=Path("/a"), destination=Path("/b"), cluster=Cluster(workers=2))

    assert config.ledger == Path("/b/.decant-batch/ledger.sqlite")
    assert config.cluster.workers == 2
    assert config.cluster.memory > 0
    assert config.archive.threads > 0


def test_json_holds_everything_resolved_even_names_that_are_not_utf8(loaded: Load) -> None:
    whole = json.loads(loaded('ledger: "/var/\\udcff.sqlite"\n').as_json())

    assert whole["ledger"] == "/var/\udcff.sqlite"
    assert whole["cluster"]["workers"] >= 1
    assert whole["archive"]["threads"] >= 1
    assert whole["settle"] == 600


# --- what is wrong, and where ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("exlude: ['a']\n", 3, "unknown key 'exlude'; did you mean 'exclude'?"),
        ("\n# x\n\nSettle: 1m\n", 6, "unknown key 'Settle'; did you mean 'settle'?"),
        ("zzz: 1\n", 3, "unknown key 'zzz'; known are: source, destination,"),
        ("worker: 1\n", 3, "did you mean 'workers' in `cluster:`?"),
        ("cluster:\n  kind: local\n  settel: 5m\n", 5, "did you mean 'settle' at the top?"),
        ("archive: {codec: null,\n  treads: 2}\n", 4, "in `archive:`; did you mean 'threads'?"),
        ("3: 4\n", 3, "unknown key '3'"),
        ("settle: 1m\nhidden: false\nsettle: 2m\n", 5, "given twice, first in line 3"),
        ("cluster:\n  workers: 1\n  workers: 2\n", 5, "'workers' is given twice"),
        ("archive:\n  filters:\n  - {id: zlib,\n     id: bz2}\n", 6, "'id' is given twice"),
        ("settle: 10 x\n", 3, "settle: '10 x' is not a duration; write it like"),
        ("settle: 1:30\n", 3, "settle: '1:30' is not a duration"),
        ("settle: 1.5\n", 3, "settle: 1.5 is not a duration"),
        ("settle: -5\n", 3, "settle: -5 is not a duration"),
        ("settle: true\n", 3, "settle: True is not a duration"),
        ("settle:\n", 3, "settle has no value; write one, or leave the key out"),
        ("include: '*.tif'\n", 3, "include: '*.tif' is not a list; write it like"),
        ("include: []\n", 3, "include: an empty list"),
        ("exclude:\n- a\n- 2024\n", 5, "exclude.1: 2024 is not text; put it in quotes"),
        ("exclude: ['a//b']\n", 3, "'a//b' matches nothing"),
        ("exclude: ['./a']\n", 3, "'./a' matches nothing"),
        ("exclude: ['']\n", 3, "'' matches nothing"),
        ("exclude: ['/']\n", 3, "'/' matches nothing"),
        ("exclude: ['a\\b']\n", 3, "write / between folders"),
        ("exclude: ['!a']\n", 3, "not negated"),
        ("hidden: 1\n", 3, "hidden: 1 will not do; write true or false"),
        ("others: keep\n", 3, "others: 'keep' is unknown; write 'report' or 'verbatim'"),
        ("archive: {container: tar}\n", 3, "archive.container: 'tar' is unknown; write 'zip' or"),
        ("archive: zip\n", 3, "archive: 'zip' holds no keys"),
        ("cluster:\n", 3, "cluster has no value"),
        ("cluster: {kind: slurm}\n", 3, "'slurm' is not built yet: use kind: local"),
        ("cluster:\n  workers: 0\n", 4, "0 will not do; write a whole number of at least 1"),
        ("cluster:\n  workers: true\n", 4, "True will not do"),
        ("cluster:\n  workers: 2.5\n", 4, "2.5 will not do"),
        ("cluster: {memory: 4}\n", 3, "4 is too little for a worker; write it with its unit"),
        ("cluster: {memory: 8G}\n", 3, "cluster.memory: '8G' is not a size; write it like 8GiB"),
        ("archive: {threads: many}\n", 3, "archive.threads: 'many' will not do"),
        ("ledger: 5\n", 3, "ledger: 5 is not a path"),
        ("series: [{layout: auto}]\n", 3, "match is missing; write it, or `auto: true`"),
        ("series:\n- {auto: true, axes: [t]}\n", 4, "takes no match, axes or archive"),
        ("series:\n- {auto: 1}\n", 4, "auto: 1 will not do; write true or false"),
        ("series: guess\n", 3, "series: 'guess' is not a list"),
        ("source: /a\n", 3, "'source' is given twice, first in line 1"),
    ],
)
def test_a_fault_is_told_with_its_line(loaded: Load, text: str, line: int, words: str) -> None:
    told = _refusal(loaded, text)

    assert "\n" not in told
    assert re.match(rf".*/share\.yaml:{line}: ", told), told
    assert words in told


@pytest.mark.parametrize(
    "codec",
    [
        "{id: nope}",
        "{id: [a]}",
        "{cname: zstd}",
        "zstd",
        "[zstd]",
        "5",
        "{id: blosc, cname: zst}",
        "{id: blosc, clevel: 99}",
        "{id: blosc, shuffle: 7}",
        "{id: blosc, clevle: 5}",
        "{id: zlib, level: 99}",
        "{id: lzma, preset: 99}",
        "{id: gzip, level: high}",
        "{id: delta, dtype: u3}",
        "{id: quantize}",
        "{id: blosc, 1: 2}",
    ],
)
def test_what_numcodecs_cannot_use_is_told_at_once(loaded: Load, codec: str) -> None:
    for text, line in (
        (f"archive:\n  codec: {codec}\n", 4),
        (f"archive:\n  filters:\n    - {{id: zlib}}\n    - {codec}\n", 6),
    ):
        told = _refusal(loaded, text)

        assert re.match(rf".*/share\.yaml:{line}: archive\.(codec|filters\.1): ", told), told


@pytest.mark.parametrize(
    "codec",
    [
        "null",
        "{id: zstd}",
        "{id: zstd, level: -1}",
        "{id: lz4}",
        "{id: bz2, level: 9}",
        "{id: blosc, cname: lz4, shuffle: 2}",
        "{id: delta, dtype: <u2}",
        "{id: shuffle, elementsize: 2}",
        "{id: fixedscaleoffset, offset: 0, scale: 1e-3, dtype: <f4, astype: <f4}",
    ],
)
def test_what_numcodecs_can_use_is_kept_as_written(loaded: Load, codec: str) -> None:
    recipe = loaded(f"archive: {{codec: {codec}}}\n").recipe

    assert recipe.compressor is None or f"id: {recipe.compressor['id']}" in codec


class _OnlyFloats:
    codec_id = "decant-test-only-floats"

    @classmethod
    def from_config(cls, _config: dict[str, Any]) -> _OnlyFloats:
        return cls()

    def encode(self, buf: Any) -> bytes:
        if buf.dtype.kind != "f":
            raise TypeError(buf.dtype)
        return bytes(buf)

    def decode(self, buf: Any, out: Any = None) -> Any:
        return buf


def test_a_codec_that_takes_only_floats_will_do(
    loaded: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(numcodecs.registry.codec_registry, _OnlyFloats.codec_id, _OnlyFloats)

    assert loaded(f"archive: {{codec: {{id: {_OnlyFloats.codec_id}}}}}\n").recipe.compressor


def test_a_filter_cannot_be_nothing(loaded: Load) -> None:
    assert ":3: archive.filters.0 has no value" in _refusal(loaded, "archive: {filters: [null]}\n")


def test_all_faults_are_told_in_the_order_of_the_file(loaded: Load) -> None:
    told = _refusal(loaded, "settle: x\nsorce: /a\nothers: y\n", "destination: /d\n").splitlines()

    assert [re.sub(r"^.*yaml:(\d+): (\w+).*", r"\1 \2", line) for line in told] == [
        "1 source",
        "2 settle",
        "3 unknown",
        "4 others",
    ]
    assert "source is missing" in told[0]
    assert told[2].endswith("did you mean 'source'?")


def test_a_missing_destination_is_one_fault(loaded: Load) -> None:
    told = _refusal(loaded, "", "source: /mnt/microscope3\n")

    assert told.count("\n") == 0
    assert "destination is missing" in told


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (b"", 1, "no keys"),
        (b"# nothing\n", 1, "no keys"),
        (b"- a\n", 1, "no keys"),
        (b"source: a\n  b: c\n", 2, "mapping values are not allowed here; look for a wrong indent"),
        (b"source: /a\ndestination: /b\n\tsettle: 5\n", 3, "cannot start any token"),
        (b"source: /a\ndestination: /b\nexclude: [*.tmp]\n", 3, "in quotes"),
        (b"source: /a\ndestination: /b\nexclude: [*tmp]\n", 3, "in quotes"),
        (b"source: /a\ndestination: /b\nexclude: [@eaDir]\n", 3, "in quotes"),
        (b"source: /a\nsettle: !!python/name:os.system\n", 2, "could not determine"),
        (b"source: /a\n---\nsource: /b\n", 2, "single document"),
        (b"source: /a\n? [1]\n: 2\n", 2, "unhashable"),
        (b"source: /a\ndestination: /b\xff\n", 2, "save it as text in UTF-8"),
        (b"source: /a\n\0\n", 2, "save it as text in UTF-8"),
        (b"source: /a\nexclude: " + b"[" * 5000, None, "write plain values"),
        (b"source: /a\nsettle: !!int x\n", None, "write plain values"),
        (b"source: /a\nsettle: " + b"9" * 5000, None, "write plain values"),
    ],
)
def test_what_is_no_yaml_config_is_told(
    loaded: Load, text: bytes, line: int | None, words: str
) -> None:
    told = _refusal(loaded, text)

    assert re.match(r".*/share\.yaml:" + (f"{line}: " if line else " "), told), told
    assert words in told
    assert "\n" not in told


def test_aliases_and_merges_are_plain_yaml(loaded: Load) -> None:
    base = "source: /a\ndestination: /b\nexclude: &same ['x']\ninclude: *same\n"
    assert loaded("", base).include == ("x",)

    circle = _refusal(loaded, "exclude: &self [*self]\n")
    assert ":3: exclude.0" in circle

    merged = _refusal(loaded, "cluster: {<<: {workers: 0}, memory: 2GiB}\n")
    assert ":3: cluster.workers: 0 will not do" in merged

    own = _refusal(loaded, "cluster:\n  <<: {workers: 1}\n  workers: 0\n")
    assert ":5: cluster.workers: 0 will not do" in own


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_config_that_cannot_be_read_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=f"{re.escape(str(tmp_path / name))}: .*; give the path"):
        load(tmp_path / name)


# --- paths -------------------------------------------------------------------------------------


def test_paths_start_at_the_configs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "elsewhere").mkdir()
    file = tmp_path / "etc/share.yaml"
    file.write_text("source: share\ndestination: ~/archive\nledger: ../l.sqlite\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    config = load(Path("etc/share.yaml"))

    assert config.source == tmp_path / "etc/share"
    assert config.destination == tmp_path / "home/archive"
    assert config.ledger == tmp_path / "l.sqlite"


def test_dot_dot_after_a_symlink_is_where_the_system_says(loaded: Load, tmp_path: Path) -> None:
    (tmp_path / "far/away").mkdir(parents=True)
    (tmp_path / "link").symlink_to("far/away")

    config = loaded("", "source: link/../raw\ndestination: link\n")

    assert config.source == tmp_path / "far/raw"
    assert config.destination == tmp_path / "link"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("''", "is not a path"),
        ("'  '", "is not a path"),
        ('"/a\\0b"', "is not a path"),
        ("12", "in quotes if it looks like a number"),
        ("[/a]", "is not a path"),
        ("~", "source has no value"),
        ("smb://server/share", "mount the share"),
        ("~no-such-user-here/x", "write the path out"),
    ],
)
def test_a_path_that_is_none_is_told(loaded: Load, value: str, words: str) -> None:
    told = _refusal(loaded, "", f"destination: /b\nsource: {value}\n")

    assert re.match(r".*/share\.yaml:2: source", told), told
    assert words in told


@pytest.mark.parametrize(
    ("source", "destination", "words"),
    [
        ("share", "share", "is the source"),
        ("share", "share/", "is the source"),
        ("share", "other/../share", "is the source"),
        ("share", "alias", "is the source"),
        ("share", ".", "holds the source"),
        ("share", "/", "holds the source"),
        ("alias/raw", "share", "holds the source"),
    ],
)
def test_archives_never_surround_their_sources(
    loaded: Load, tmp_path: Path, source: str, destination: str, words: str
) -> None:
    (tmp_path / "share/raw").mkdir(parents=True)
    (tmp_path / "alias").symlink_to("share")

    told = _refusal(loaded, "", f"source: {source}\n\ndestination: {destination}\n")

    assert ":3: destination: " in told
    assert words in told


def test_archives_may_lie_in_the_source_and_beside_it(loaded: Load, tmp_path: Path) -> None:
    inside = loaded("", "source: share\ndestination: share/archive\n")
    assert inside.destination == tmp_path / "share/archive"

    beside = loaded("", "source: share\ndestination: share2\n")
    assert beside.destination == tmp_path / "share2"


@pytest.mark.parametrize(
    ("ledger", "words"),
    [
        ("share/ledger.sqlite", "is in the source"),
        ("share/state/ledger.sqlite", "is in the source"),
        ("archive", "is a folder"),
        (".", "is a folder"),
    ],
)
def test_a_ledger_never_lies_among_sources(loaded: Load, ledger: str, words: str) -> None:
    told = _refusal(loaded, f"ledger: {ledger}\n", "source: share\ndestination: archive\n")

    assert ":3: ledger: " in told
    assert words in told


def test_a_ledger_may_lie_in_a_destination_in_the_source(loaded: Load, tmp_path: Path) -> None:
    config = loaded("ledger: s/a/x/l.db\n", "source: s\ndestination: s/a\n")

    assert config.ledger == tmp_path / "s/a/x/l.db"


# --- sizes and durations -----------------------------------------------------------------------


@given(
    whole=st.integers(0, 10**6),
    decimals=st.text("0123456789", max_size=6),
    unit=st.sampled_from(sorted(UNITS)),
    space=st.sampled_from(["", " ", "  "]),
    written=st.sampled_from([str, str.lower, str.upper]),
)
def test_sizes_are_exact(
    whole: int, decimals: str, unit: str, space: str, written: Callable[[str], str]
) -> None:
    number = f"{whole}.{decimals}" if decimals else str(whole)

    assert size(f"{number}{space}{written(unit)}") == int(Fraction(number) * UNITS[unit])


@given(st.integers(0, 2**63 - 1))
def test_a_number_is_bytes_or_seconds(number: int) -> None:
    assert size(number) == size(str(number)) == number
    assert duration(number) == duration(f"{number}s") == float(number)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0), ("15m", 900), ("2h", 7200), ("1d", 86400), ("1.5 h", 5400), ("10 min", 600)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@given(st.text() | st.floats() | st.booleans() | st.none() | st.integers(max_value=-1))
def test_anything_is_a_quantity_or_told(raw: object) -> None:
    for read, what in ((size, "a size"), (duration, "a duration")):
        told, amount = "", -1.0
        try:
            amount = read(raw)
        except ValueError as error:
            told = str(error)

        if told:
            assert re.search(f"{what}; write it like", told)
        else:
            assert isinstance(raw, str)
            assert 0 <= amount < 2**63


@pytest.mark.parametrize(
    "raw",
    [
        *("", "GiB", "1,5 GiB", "1 G", "1.5", "-1GiB", "1e9", "\u0661GiB", "1 GiB\0", "1GiB/s"),
        *("99999 PiB", "8 Gib B", "0x10", "1_000", "inf", "1 .5GiB", "5 m", "9" * 5000),
    ],
    ids=lambda raw: ascii(raw)[:12],
)
def test_what_is_not_a_size(raw: str) -> None:
    with pytest.raises(ValueError, match="a size; write it like 8GiB"):
        size(raw)


# --- what the machine gives --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "memory_gib", "text", "workers", "memory_mib", "threads"),
    [
        (8, 40, "", 8, 4096, 1),
        (64, 10, "", 8, 1024, 8),  # memory for eight
        (16, 1, "", 1, 819, 16),  # memory for none: one all the same
        (16, 40, "cluster: {workers: 4}\n", 4, 8192, 4),
        (16, 40, "cluster: {memory: 8GiB}\n", 4, 8192, 4),
        (16, 40, "cluster: {workers: auto, memory: auto}\n", 16, 2048, 1),
        (2, 4, "cluster: {workers: 5, memory: 3GiB}\n", 5, 3072, 1),  # said is said
        (8, 40, "cluster: {workers: 2}\narchive: {threads: 3}\n", 2, 16384, 3),
        (8, 40, "cluster: {workers: 2}\narchive: {threads: auto}\n", 2, 16384, 4),
    ],
)
def test_auto_is_what_the_machine_gives(
    loaded: Load,
    machine: Callable[[int, int], None],
    cores: int,
    memory_gib: int,
    text: str,
    workers: int,
    memory_mib: int,
    threads: int,
) -> None:
    machine(cores, memory_gib << 30)

    config = loaded(text)

    assert config.cluster.workers == workers
    assert config.cluster.memory >> 20 == memory_mib
    assert config.archive.threads == config.recipe.threads == threads


def _control_files(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".", 1)).write_text(text)


@pytest.fixture
def big_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)), raising=False)
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": (64 << 30) // 4096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)


@pytest.mark.usefixtures("big_machine")
def test_without_control_groups_the_machine_and_the_affinity_count(tmp_path: Path) -> None:
    here = usable(cgroup=tmp_path / "none", mount=tmp_path)

    assert here == Usable(cores=32, memory_bytes=64 << 30)


@pytest.mark.usefixtures("big_machine")
def test_limits_of_control_groups_v2(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("0::/system.slice/job.scope\n")
    job = tmp_path / "fs/system.slice/job.scope"
    _control_files(job, memory__max="max\n", cpu__max="350000 100000\n")
    _control_files(job.parent, memory__max=f"{8 << 30}\n", cpu__max="max 100000\n")

    here = usable(cgroup=tmp_path / "cgroup", mount=tmp_path / "fs")

    assert here == Usable(cores=3, memory_bytes=8 << 30)


@pytest.mark.usefixtures("big_machine")
def test_limits_of_control_groups_v1_seen_from_inside_a_container(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text(
        "12:cpu,cpuacct:/docker/ab:cd\n4:memory:/docker/ab:cd\n1:name=systemd:/x\n0::/\n"
    )
    fs = tmp_path / "fs"
    _control_files(fs / "cpu,cpuacct", cpu__cfs_quota_us="50000\n", cpu__cfs_period_us="100000\n")
    _control_files(fs / "memory/docker/ab:cd", memory__limit_in_bytes="9223372036854771712\n")
    _control_files(fs / "memory", memory__limit_in_bytes=f"{3 << 30}\n")

    here = usable(cgroup=tmp_path / "cgroup", mount=fs)

    assert here == Usable(cores=1, memory_bytes=3 << 30)


@pytest.mark.usefixtures("big_machine")
def test_a_quota_of_minus_one_is_no_limit(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("2:cpu:/\n")
    _control_files(tmp_path / "cpu", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")

    assert usable(cgroup=tmp_path / "cgroup", mount=tmp_path).cores == 32


def test_here_there_is_something_to_use() -> None:
    here = config_package.usable()

    assert 1 <= here.cores <= (os.cpu_count() or 1)
    assert here.memory_bytes > 64 << 20
