"""A corpus of real TIFFs, packed: what tests of whole runs and of readers begin with.

The corpus is a folder with ``index.csv`` and ``files/``, named by the environment variable
DECANT_CORPUS.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from decant_batch.batch import run
from decant_batch.batch.config import load
from decant_batch.batch.model import Summary

CONFIG = """
source: {source}
destination: archive
others: verbatim
settle: 0s
cluster: {{kind: local, workers: 2, memory: 1GiB}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """The corpus after one run."""

    root: Path
    config: Path
    summary: Summary

    @property
    def files(self) -> list[str]:
        """Paths of all files of the corpus below its root."""
        found = (path for path in self.root.rglob("*") if path.is_file())
        return sorted(path.relative_to(self.root).as_posix() for path in found)

    def archive(self, relpath: str) -> Path:
        """Where the archive of one file is."""
        return self.config.parent / "archive" / f"{relpath}.zarr.zip"


SERIES = r"""
source: {source}
destination: archive
settle: 0s
cluster: {{workers: 1, memory: 1GiB}}
series:
  - match: '(?P<p>neubias[^/]*/.+--W\d+--P\d+)--T(?P<t>\d+)--Z(?P<z>\d+)--C\.tif'
    archive: '{{p}}'
  - match: '(?P<p>oad[^/]*/\w+)_t(?P<t>\d+)z(?P<z>\d+)c(?P<c>\d+)_ORG\.tif'
    archive: '{{p}}'
  - match: '(?P<p>faim_cv\w*)/.+_(?P<w>\w\d\d)_T(?P<t>\d+)F(?P<f>\d+).+Z(?P<z>\d+)C(?P<c>\d+)\.tif'
    archive: '{{p}}/{{w}}_{{f}}'
  - match: '(?P<p>faim_ix[^/]*)/.+/TimePoint_(?P<t>\d+)/.+_(?P<w>\w\d\d_s\d+)_w(?P<c>\d).+\.tif'
    archive: '{{p}}/{{w}}'
  - match: '(?P<p>scifio[^/]*)/img_(?P<t>\d+)_(?P<c>\w+)_(?P<z>\d+)\.tif'
    archive: '{{p}}'
  - match: '(?P<p>prairie[^/]*)/.+_Cycle(?P<t>\d+)_(?P<c>Ch\d)_(?P<z>\d+)\.ome\.tif'
    archive: '{{p}}'
  - match: '(?P<p>ome_multi[^/]*)/multifile-Z(?P<z>\d+)\.ome\.tiff'
    archive: '{{p}}'
  - match: '(?P<p>oiio[^/]*)/(?P<z>\d+)\.tif'
    archive: '{{p}}'
"""
# Of each consolidated series its members and the leading axes of its array; of each nested one its
# members and why.
CONSOLIDATED: dict[str, tuple[int, dict[str, int]]] = {
    "neubias_mitocheck_WPTZC/EMBO_2012_Group3--empty--empty--W0002--P001": (30, {"t": 30, "z": 1}),
    "oad_mitosis_tzc/Detailed_stack": (74, {"t": 1, "c": 2, "z": 37}),
    "faim_ix_zmix_guid/C07_s1": (6, {"t": 2, "c": 3}),
    "faim_ix_zmix_guid/C07_s2": (6, {"t": 2, "c": 3}),
    "prairie_ome_cycle_ch": (24, {"t": 3, "c": 2, "z": 4}),
    "ome_multifile_master": (5, {"z": 5}),
}
NESTED = {
    "scifio_mm1_t_c_z": (20, "is empty-file"),
    "oiio_miplevels_mixed_shapes": (13, "nothing between 2 and 4"),
} | {
    f"faim_cv8000_plate/{well}_00{field}": (8, "is compressed")
    for well in ("D08", "E03", "F08")
    for field in (1, 2, 3, 4)
}


def pack_series(corpus: Path, folder: Path) -> Summary:
    """What a run made of the corpus' series, in ``folder``/archive."""
    config = folder / "c.yaml"
    config.write_text(SERIES.format(source=corpus / "files" / "_series"))
    return run.execute(load(config), watch=lambda _tick: None)
