"""The stages of a UniqFilter: how each is opened, and how those that know keys by their fingerprints are asked and told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np

from anabranch.dedup import folderformat
from anabranch.dedup.batch import BoolArray, Fingerprints
from anabranch.dedup.dsbf.filter import Dsbf
from anabranch.dedup.dsbf.manifest import NAME as DSBF_MANIFEST
from anabranch.dedup.errors import FormatMismatch
from anabranch.dedup.exact.index import ExactIndex
from anabranch.dedup.exact.runfolder import MANIFEST as EXACT_MANIFEST
from anabranch.dedup.modes import UniqParameters
from anabranch.dedup.smm.store import Smm

Stage: TypeAlias = Smm | Dsbf | ExactIndex

_Kind = TypeVar("_Kind")
#: The file without which a stage's folder is not one.
_VITAL = {"smm": folderformat.NAME, "dsbf": DSBF_MANIFEST, "exact": EXACT_MANIFEST}


def open_stage(folder: Path, name: str, given: UniqParameters, leaves: str) -> Stage:
    """Open the stage of this name, or make it. Raises: as `UniqFilter.open`."""
    if name == "smm":
        return Smm.open(folder, given.signature, given.smm_levels, alone=len(given.stages) > 1)
    return Dsbf.open(folder, given.dsbf, leaves) if name == "dsbf" else ExactIndex.open(folder)


def require_stages(folder: Path, names: Sequence[str]) -> None:
    """Raise `FormatMismatch` if a stage of a filter that was whole is not there."""
    for path in (folder / name / _VITAL[name] for name in names):
        if not path.exists():
            raise FormatMismatch(f"{path} is missing: the filter is damaged")


def of_kind(kind: type[_Kind], stages: Sequence[object]) -> _Kind | None:
    """The stage of this kind, None if there is none."""
    return next((stage for stage in stages if isinstance(stage, kind)), None)


def ask(stages: Sequence[Dsbf | ExactIndex], elements: Fingerprints) -> BoolArray:
    """True where one of the stages never had the element; each is asked only what all before it know."""
    new = stages[0].unseen_elements(elements)
    for stage in stages[1:]:
        if np.count_nonzero(new) < len(new):
            known = ~new
            new[known] = stage.unseen_elements(elements[known])
    return new


def tell(stages: Sequence[Dsbf | ExactIndex], elements: Fingerprints, is_first: BoolArray) -> None:
    """Put the elements into all stages; `is_first` says which stand first in their batch."""
    for stage in stages:
        stage.mark_elements(elements, is_first)
