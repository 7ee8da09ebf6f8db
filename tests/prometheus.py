"""Prometheus' own programs, `prometheus` and `promtool`: from PATH, or from Debian's package, unpacked below the cache folder.

`.ci/run` unpacks it there. Where neither is found, a test is skipped.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
#: Where the package is unpacked.
FOLDER = _CACHE / "anabranch" / "prometheus"


def program(name: str) -> str:
    """The path of the program. Skips the test if there is none."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), str(FOLDER / "usr" / "bin")]))
    if found is None:
        pytest.skip(f"no {name}: install Debian's package prometheus, or unpack it with dpkg -x into {FOLDER}")
    return found
