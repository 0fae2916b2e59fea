"""The config: YAML in, one frozen value out, every default resolved.

Nothing here looks at the share: whether the source exists is ``run``'s to find out. Modules::

    reading     load: the YAML file, and a line number for every fault
    model       Config: keys, defaults, what is refused
    machine     usable: cores and memory that "auto" goes by
    quantities  sizes like 8GiB and durations like 15m
"""

from decant_batch.batch.config.machine import Usable, usable
from decant_batch.batch.config.model import Archive, Cluster, Config
from decant_batch.batch.config.reading import load

__all__ = ["Archive", "Cluster", "Config", "Usable", "load", "usable"]
