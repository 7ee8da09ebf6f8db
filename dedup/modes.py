"""What a UniqFilter is made of: its mode names its stages, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from anabranch.dedup import folderformat
from anabranch.dedup.dsbf.bloom import DsbfParameters
from anabranch.dedup.errors import BadParameters, FormatMismatch
from anabranch.dedup.smm.fileindex import levels_for
from anabranch.dedup.smm.store import shape

MAGIC = "anabranch uniq filter"
VERSION = 2

#: Stages of each mode. Each stage keeps its files in a folder of its name.
MODES: dict[str, tuple[str, ...]] = {
    "smm": ("smm",),
    "dsbf": ("dsbf",),
    "both": ("smm", "dsbf"),
    "exact": ("smm", "exact"),  # a DSBF between them would save fewer questions than it costs
}

#: The parameters that concern a stage.
_CONCERN: dict[str, tuple[str, ...]] = {
    "smm": ("signature", "levels"),
    "dsbf": ("expected", "false_positive", "leaf_bits", "split_fan_out"),
    "exact": (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqParameters:
    """The shape of a filter; what concerns its mode is recorded in its folder. The defaults are for 10 million URLs."""

    mode: str = "both"  #: which stages there are: a name in `MODES`
    signature: str = "crc32"  #: of the SMM: a name in `dedup.smm.signature.SIGNATURES`
    #: Of the SMM: bytes of the signature that each level takes; None: by `expected`.
    levels: tuple[int, ...] | None = None
    expected: int = 10_000_000  #: n: keys that the DSBF holds before its first split
    false_positive: float = 1e-3  #: f: bound of the rate of each leaf of the DSBF
    leaf_bits: int = 1 << 23  #: m: bits of one leaf of the DSBF, a power of two
    split_fan_out: int = 4  #: children that a full leaf of the DSBF gets

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages, in the order in which they are asked. Raises: BadParameters."""
        try:
            return MODES[self.mode]
        except KeyError:
            raise BadParameters(f"mode {self.mode!r} is unknown; there are: {', '.join(MODES)}") from None

    @property
    def smm_levels(self) -> tuple[int, ...]:
        """The levels as given, or those that fit the expected keys."""
        return levels_for(self.expected) if self.levels is None else self.levels

    @property
    def dsbf(self) -> DsbfParameters:
        """The part that concerns the DSBF. Raises: BadParameters."""
        return DsbfParameters(
            expected=self.expected,
            false_positive=self.false_positive,
            leaf_bits=self.leaf_bits,
            split_fan_out=self.split_fan_out,
        )

    @property
    def format(self) -> folderformat.Format:
        """What the FORMAT file of a folder with this filter says.

        Raises: BadParameters if a stage cannot be made of it, so that no folder is spoilt by what it records.
        """
        if "smm" in self.stages:
            shape(self.signature, self.smm_levels)
        if "dsbf" in self.stages:
            _ = self.dsbf
        return _written(self)


def _written(given: UniqParameters) -> folderformat.Format:
    """The format of these parameters, whether or not the stages can be made of them."""
    resolved: dict[str, Any] = {field.name: getattr(given, field.name) for field in fields(given)}
    resolved["levels"] = list(given.smm_levels)
    names = ["mode", *(name for stage in given.stages for name in _CONCERN[stage])]
    return folderformat.Format(magic=MAGIC, version=VERSION, parameters={name: resolved[name] for name in names})


def recorded(folder: Path) -> UniqParameters | None:
    """The parameters of the filter in a folder, None if there is none; what its mode does not need is the default.

    Raises: FormatMismatch if the folder's FORMAT file is of something else, of another version or damaged; OSError.
    """
    path = folder / folderformat.NAME
    if not path.exists():
        return None
    found = folderformat.read_record(path)
    given = found.get("parameters")
    parameters: Mapping[str, Any] = given if isinstance(given, dict) else {}
    folderformat.Format(magic=MAGIC, version=VERSION, parameters=parameters).require(path, found)
    try:
        levels = tuple(parameters["levels"]) if "levels" in parameters else None
        read = replace(UniqParameters(), **{**parameters, "levels": levels})
        _written(read).require(path, found)
        _ = read.dsbf  # what is no number within its bounds was not written by a filter
    except (TypeError, BadParameters) as error:
        raise FormatMismatch(f"{path} is damaged: its parameters are not those of a filter") from error
    return read
