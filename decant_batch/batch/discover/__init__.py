"""The walk: every source under the root, in a stable order; nothing is opened but folders.

What is left out, and what cannot be read, is yielded as well: the balance sheet needs all three.
Modules::

    walking   walk: the one way through a share
    rules     what is left out, and why; LITTER
    globs     patterns like raw/** as regular expressions
    folders   opening and listing folders, however deep
"""

from decant_batch.batch.discover.rules import LITTER
from decant_batch.batch.discover.walking import walk

__all__ = ["LITTER", "walk"]
