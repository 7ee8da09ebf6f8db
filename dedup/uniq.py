"""UniqFilter: has this URL been seen? Asked before a URL is enqueued; marked after the URL is stored.

The filter is a chain of stages, which its mode selects: the SMM (`smm/`), then the DSBF (`bloom/`) or an exact index
(`exact/`), which is asked only about the keys that the SMM knows. A key is dropped only if all stages know it, so their
error probabilities multiply: CRC-32 and XXH3 are independent, and the exact index does not err.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from itertools import compress
from pathlib import Path
from typing import Any, Self

import numpy as np

from anabranch.dedup.bloom.filter import Dsbf, DsbfStatistics
from anabranch.dedup.bloom.formulas import BLOCK_BITS, BLOCKED, CLASSIC, LEAF_KINDS, DsbfParameters
from anabranch.dedup.bloom.splitting import MANIFEST_FILE
from anabranch.dedup.bookkeeping import Answers, LossCount, Position
from anabranch.dedup.errors import BadParameters, FormatMismatch
from anabranch.dedup.exact.index import ExactIndex, ExactStatistics
from anabranch.dedup.exact.runfolder import MANIFEST as EXACT_MANIFEST
from anabranch.dedup.files import Closing, formatfile
from anabranch.dedup.files.locks import folder_turn
from anabranch.dedup.files.mapped import MappedLimit
from anabranch.dedup.keys import BoolArray, are_distinct, fingerprints, first_of_each
from anabranch.dedup.smm.addresses import full_name, levels_for, planned_loss
from anabranch.dedup.smm.store import Smm, SmmStatistics, shape

MAGIC = "anabranch uniq filter"
#: With classic leaves, or none; blocked ones add to it (`LEAF_KINDS`).
VERSION = 2

#: Stages of each mode. Each stage keeps its files in a folder of its name.
MODES: dict[str, tuple[str, ...]] = {
    "smm": ("smm",),
    "dsbf": ("dsbf",),
    "both": ("smm", "dsbf"),
    "exact": ("smm", "exact"),  # a DSBF between them would save fewer questions than it costs
}

#: The parameters of a stage.
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "smm": ("signature", "levels"),
    "dsbf": ("expected", "false_positive", "leaf_bits", "split_fan_out"),  # and leaf_kind, if it is not classic
    "exact": (),
}


#: The sizes of a DSBF are found by a search, and its parameters are asked for several times.
_dsbf = lru_cache(maxsize=16)(DsbfParameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqParameters:
    """The shape of a filter; its folder records the parameters of its mode. The defaults are for 10 million URLs."""

    mode: str = "both"  #: selects the stages: a name in `MODES`
    #: Of the SMM: a name in `smm.addresses.SIGNATURES`; None: xxh3-64 where the SMM is the only record, else crc32.
    signature: str | None = None
    #: Of the SMM: bytes of the signature that each level takes; None: by `expected`, and where it is the only record, by
    #: `false_positive`.
    levels: tuple[int, ...] | None = None
    expected: int = 10_000_000  #: n: keys that the DSBF holds before its first split
    #: f: bound of the rate of each leaf of the DSBF, and of the fill of an SMM that is alone.
    false_positive: float = 1e-3
    leaf_bits: int = 1 << 23  #: m: bits of one leaf of the DSBF, a power of two
    split_fan_out: int = 4  #: children that a full leaf of the DSBF gets
    #: Of the DSBF: "blocked", "classic", or None: as in the folder, and in a new one blocked. A blocked leaf has all bits of a
    #: key in one cache line: it answers sooner, and takes 8 % more memory at the same rate.
    leaf_kind: str | None = None
    #: Of one opening, and not recorded: once more of the filter's mapped pages are resident, they are given back to the
    #: kernel before the next call, which costs time to map them again; 0: never.
    mapped_limit_bytes: int = 0

    def __post_init__(self) -> None:
        if self.signature is not None:
            object.__setattr__(self, "signature", full_name(self.signature))

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
        if self.levels is not None:
            return self.levels
        return levels_for(self.expected, self.false_positive) if self.stages == ("smm",) else levels_for(self.expected)

    @property
    def smm_signature(self) -> str:
        """The signature as given, or the one of the mode.

        CRC-32 is linear: two sites whose names collide lose every path that they have in common. Before a second stage that
        costs some questions to it; alone it would lose whole sites.
        """
        if self.signature is not None:
            return self.signature
        return "xxh3-64" if self.stages == ("smm",) else "crc32"

    @property
    def planned_loss(self) -> float:
        """The keys that are expected to be dropped once the expected ones are marked, at most. Raises: BadParameters."""
        if self.mode == "exact":
            return 0.0
        by_smm = planned_loss(self.expected, self.smm_levels) if "smm" in self.stages else float(self.expected)
        return by_smm * (self.false_positive if "dsbf" in self.stages else 1.0)

    @property
    def loss_warning(self) -> str:
        """A sentence if more URLs are expected to be lost than `false_positive` allows; else empty. Raises: BadParameters."""
        lost, allowed = self.planned_loss, self.false_positive * self.expected
        if lost <= allowed:
            return ""
        return (
            f"filter {self.mode} is expected to lose {lost:,.0f} of {self.expected:,} URLs, more than false_positive allows "
            f"({allowed:,.0f}); choose filter both or exact, or expect fewer"
        )

    @property
    def dsbf_leaf_kind(self) -> str:
        """The kind of leaves as given, or blocked ones, unless they are too small for that."""
        if self.leaf_kind is not None:
            return self.leaf_kind
        return BLOCKED if self.leaf_bits >= BLOCK_BITS else CLASSIC

    def as_in(self, there: UniqParameters | None) -> UniqParameters:
        """With the defaults of the version that made the folder with these parameters: a filter keeps its shape."""
        if there is None or there.mode != self.mode:
            return self
        if "dsbf" in self.stages and self.leaf_kind is None:
            return replace(self, leaf_kind=there.leaf_kind)
        if self.stages != ("smm",):
            return self
        former = replace(self, signature=self.signature or "crc32", levels=self.levels or levels_for(self.expected))
        return former if (former.signature, former.levels) == (there.signature, there.levels) else self

    @property
    def dsbf(self) -> DsbfParameters:
        """The parameters of the DSBF. Raises: BadParameters."""
        return _dsbf(**{name: getattr(self, name) for name in _PARAMETERS["dsbf"]}, leaf_kind=self.dsbf_leaf_kind)

    @property
    def format(self) -> formatfile.Format:
        """The content of the FORMAT file of a folder with this filter. Raises: BadParameters if a stage is impossible."""
        return _possible_format(self)


@lru_cache(maxsize=16)  # an order is checked several times before its filter is opened
def _possible_format(given: UniqParameters) -> formatfile.Format:
    stages = given.stages
    if "smm" in stages:
        shape(given.smm_signature, given.smm_levels)
    if "dsbf" in stages:
        given.dsbf.require_few_leaves()
    return format_of(given)


def format_of(given: UniqParameters) -> formatfile.Format:
    """The format of these parameters, whether or not the stages can be made of them; imports no user function."""
    resolved: dict[str, Any] = {field.name: getattr(given, field.name) for field in fields(given)}
    resolved |= {"levels": list(given.smm_levels), "signature": given.smm_signature}
    stages, leaf_kind = given.stages, given.dsbf_leaf_kind
    names = ["mode", *(name for stage in stages for name in _PARAMETERS[stage])]
    parameters, version = {name: resolved[name] for name in names}, VERSION
    if "dsbf" in stages and leaf_kind != CLASSIC:
        parameters["leaf_kind"] = leaf_kind
        version += LEAF_KINDS.get(leaf_kind, 0)
    return formatfile.Format(magic=MAGIC, version=version, parameters=parameters)


def recorded(folder: Path) -> UniqParameters | None:
    """The parameters of a folder's filter, None without one; those that its mode does not need are the defaults.

    Raises: FormatMismatch if the FORMAT file is of something else, of another version or damaged; OSError.
    """
    path = folder / formatfile.NAME
    if not path.exists():
        return None
    found = formatfile.read_record(path)
    given = found.get("parameters")
    parameters: Mapping[str, Any] = given if isinstance(given, dict) else {}
    blocked = VERSION + LEAF_KINDS[BLOCKED]
    version = blocked if found.get("version") == blocked else VERSION
    formatfile.Format(magic=MAGIC, version=version, parameters=parameters).require(path, found)
    try:
        levels = tuple(parameters["levels"]) if "levels" in parameters else None
        read = replace(UniqParameters(), **{**parameters, "levels": levels})
        if "dsbf" in read.stages and read.leaf_kind is None:
            read = replace(read, leaf_kind=CLASSIC)
        there = format_of(read)
        _ = read.dsbf  # a filter writes only numbers within their bounds
    except (TypeError, BadParameters) as error:
        raise FormatMismatch(f"{path} is damaged: its parameters are not those of a filter") from error
    if there.version != version:
        raise FormatMismatch(f"{path} is damaged: its parameters are not those of a filter of version {version}")
    there.require(path, found)
    return read


def _require_same(folder: Path, given: UniqParameters) -> None:
    """Raise FormatMismatch if the folder's filter has other stages or leaves: all other differences follow from them."""
    there = recorded(folder)
    for name in ("mode", "leaf_kind") if there is not None else ():
        found, asked = getattr(there, name), getattr(given, name)
        if found != asked and (name == "mode" or "dsbf" in given.stages):
            raise FormatMismatch(f"{folder} was made with other parameters: {name} is {found!r} there, {asked!r} here")


#: The file without which a stage's folder is damaged.
_VITAL = {"smm": formatfile.NAME, "dsbf": MANIFEST_FILE, "exact": EXACT_MANIFEST}

_LOSSES = "LOSSES"
_FEW_KEYS = 1000  # of so few that are missing chance may be the cause


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqStatistics:
    """A filter at one moment."""

    mode: str  #: the stages, as in `MODES`
    keys: int  #: distinct keys marked: exactly, or as the DSBF counts them, or as bits of the SMM
    false_drop: float  #: probability that a new key is dropped now: the product of the stages' error rates
    expected_lost: float  #: sum of that probability over all new keys so far, each taken to be asked for once
    planned_keys: int  #: the keys that the filter is made for
    planned_false_drop: float  #: probability that a new key is dropped once it has so many
    #: Of the process's own memory: leaves that are not mapped, and addresses of an SMM while it is small.
    memory_bytes: int
    mapped_bytes: int  #: of mapped files, the bytes that exist: at most so many are resident
    answers: Answers  #: who answered how many questions
    smm: SmmStatistics | None  #: bits, fill, disk; None without an SMM
    dsbf: DsbfStatistics | None  #: leaves, splits, rates; None without a DSBF
    exact: ExactStatistics | None  #: runs and tail; None without an exact index

    def facts(self) -> dict[str, float | str]:
        """The figures that this mode has, in one flat table for reports.

        Names that end in `_rate`, `_fill` and `_probability` are shares from 0 to 1.
        """
        answers, behind = self.answers, "dsbf" if self.exact is None else "exact"
        facts: dict[str, float | str] = {
            "filter": self.mode,
            "keys": self.keys,
            "memory_bytes": self.memory_bytes,
            "mapped_bytes": self.mapped_bytes,
            "asked": answers.asked,
            "memory_known": answers.memory_known,
        }
        if self.smm is not None:
            facts |= {"smm_new": answers.smm_new, "smm_known": answers.smm_known}
        if self.mode != "smm":
            facts |= {f"{behind}_asked": answers.set_asked, f"{behind}_new": answers.set_new}
        facts |= {"dropped": answers.dropped}
        for name, stage in (("smm", self.smm), ("dsbf", self.dsbf), ("exact", self.exact)):
            values = {} if stage is None else asdict(stage)
            facts |= {f"{name}_{key}": value for key, value in values.items() if isinstance(value, int | float | str)}
        if self.smm is not None:
            facts["smm_levels"] = ",".join(map(str, self.smm.levels))
        return facts | {
            "false_drop_probability": self.false_drop,
            "expected_lost": self.expected_lost,
            "planned_keys": self.planned_keys,
            "planned_false_drop_probability": self.planned_false_drop,
        }


class UniqFilter(Closing):
    """Has this key been seen? `UniqFilter.open` gives a lasting one.

    A key marked and synced is known forever. A new key is taken for known with the probability that `statistics` reports.
    Marking and asking belong to one thread; `sync` may run in another one at the same time. A folder belongs to one filter at
    a time; in mode "smm" several processes may share it, and `add` returns True for a key in exactly one of them.
    """

    def __init__(self, folder: Path, given: UniqParameters, stages: Sequence[Smm | Dsbf | ExactIndex]) -> None:
        self._folder = folder
        self._mode = given.mode
        self._expected = given.expected
        self._stages = tuple(stages)
        self._smm = next((stage for stage in stages if isinstance(stage, Smm)), None)
        self._dsbf = next((stage for stage in stages if isinstance(stage, Dsbf)), None)
        self._exact = next((stage for stage in stages if isinstance(stage, ExactIndex)), None)
        #: The stage that goes by fingerprints, None without one.
        self._set = self._dsbf if self._exact is None else self._exact
        limit_bytes, releases = given.mapped_limit_bytes, [stage.release_pages for stage in stages]
        self._limit = MappedLimit(limit_bytes, releases) if limit_bytes else None
        self._position = Position(folder)
        if not (folder / _LOSSES).exists():
            self._position.forget()  # an operator who removes that file accepts that keys are lost
        self._losses = LossCount(folder / _LOSSES, self._keys())
        # Replaced as a whole, so that a sync in another thread sees sums that agree.
        self._answers = self._losses.answers
        self._calls = 0  # that marked
        self._synced_calls = 0  # of these, in some sync that has ended
        self._is_closed = False

    @classmethod
    def open(
        cls,
        folder: str | Path,
        parameters: UniqParameters | None = None,
        leaves: str = "memory",
        *,
        alone: bool = False,
    ) -> Self:
        """Open a folder's filter, or make it if the folder is new or empty.

        `alone`: no other process may open it, in mode "smm" too; so its SMM is compact while it is small. Default of
        `parameters`: those that the folder records, else the defaults. `leaves` is where the bits of the DSBF are while it is
        open, "memory" or "mapped". Cost: milliseconds after a clean end, else 0.3 µs per marked key. Raises: FormatMismatch
        if the folder is not ours, is damaged, lost synced keys, or was made with other parameters (it names them);
        BadParameters; FilterInUse; StoreFull, OSError.
        """
        folder = Path(folder)
        given = (parameters or recorded(folder) or UniqParameters()).as_in(recorded(folder))
        wanted = given.format
        folder.mkdir(parents=True, exist_ok=True)
        with folder_turn(folder), ExitStack() as opened:
            _require_same(folder, given)
            is_complete = formatfile.adopt(folder, wanted)
            for path in [folder / name / _VITAL[name] for name in given.stages if is_complete]:
                if not path.exists():
                    raise FormatMismatch(f"{path} is missing: the filter is damaged")
            stages: list[Smm | Dsbf | ExactIndex] = []
            for name in given.stages:
                stages.append(_open_stage(folder / name, name, given, leaves, alone=alone))
                opened.callback(stages[-1].close)
            if not is_complete:
                formatfile.complete(folder, wanted)
            made = cls(folder, given, stages)
            if made._dsbf is not None:
                # One set is counted differently by those falsely known, fewer than 3 f of all; and a part of a batch, 1/40
                # of a leaf, may have been counted and not yet logged when a sync in another thread began.
                few = given.dsbf.split_above // 32 + _FEW_KEYS
                made._losses.require_kept(made._keys(), max(0.01, 3 * given.false_positive), few)
            opened.pop_all()
        return made

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        """True where a key is new; nothing is changed. A new key that is twice in the batch is new twice."""
        if self._limit is not None:
            self._limit.look()
        if len(keys) == 1:
            return np.array([self._is_unseen(keys[0])])
        if self._smm is None or self._set is None:
            new = self._stages[0].unseen(keys)
            self._count(len(keys), int(np.count_nonzero(new)))
            return new
        new = self._smm.unseen(keys)
        known = len(keys) - int(np.count_nonzero(new))
        set_new = 0
        if known == len(keys):
            new = self._set.unseen_elements(fingerprints(keys))
            set_new = int(np.count_nonzero(new))
        elif known:
            of_set = self._set.unseen_elements(fingerprints(list(compress(keys, ~new))))
            set_new = int(np.count_nonzero(of_set))
            new[~new] = of_set
        self._count(len(keys), len(keys) - known, set_new)
        return new

    def count_known(self, keys: int) -> None:
        """Count so many keys as asked and found in a memory in front of this filter. O(1)."""
        asked, memory_known, *others = self._answers
        self._answers = Answers(asked + keys, memory_known + keys, *others)

    def mark(self, keys: Sequence[bytes]) -> None:
        """Put the keys into all stages; the one that errs least comes last, since a key is known only once it has it.

        Raises: StoreFull (an OSError); some keys may then be in some stages only and count as new: repeat the call.
        """
        if self._limit is not None:
            self._limit.look()
        for stage in self._stages:
            if len(keys) == 1:
                stage.mark_one(keys[0])
            else:
                stage.mark(keys)
        self._has_marked()

    def add(self, keys: Sequence[bytes]) -> BoolArray:
        """Test and set: True where a key was new; a key twice in one batch is new once. Raises as `mark`."""
        if self._limit is not None:
            self._limit.look()
        if self._set is not None and len(keys) == 1:
            new = self.unseen(keys)
            if new[0]:
                self.mark(keys)
            return new
        if self._smm is None or self._set is None:
            new = self._stages[0].add(keys)
            self._count(len(keys), int(np.count_nonzero(new)))
        else:  # each key is hashed once for each kind of hash
            elements, addresses = fingerprints(keys), self._smm.addresses(keys)
            by_smm = self._smm.are_clear(addresses)
            new = by_smm.copy()
            if np.count_nonzero(new) < len(new):
                known = ~new
                new[known] = self._set.unseen_elements(elements[known])
            if not are_distinct(addresses):  # else the keys are, too
                new &= first_of_each(keys)
                by_smm &= new
            count, smm_new = int(np.count_nonzero(new)), int(np.count_nonzero(by_smm))
            self._count(len(keys), smm_new, count - smm_new)
            if count:
                self._smm.set(addresses[new])
                self._set.mark_elements(elements[new], np.ones(count, dtype=np.bool_))
        self._has_marked()
        return new

    def position(self) -> str:
        """The position that covers all keys marked before the last `sync` (`bookkeeping.py`); empty before it."""
        return str(self._position)

    def sync(self) -> None:
        """Make all that was marked before this call durable. Raises: OSError; it may be repeated."""
        calls = self._calls  # before the sync, as are the keys: later marks are not covered
        durable = self._keys() if self._dsbf is not None else 0
        answers = self._answers
        for stage in reversed(self._stages):
            stage.sync()
        self._losses.step(self._keys(), self.false_drop())
        with folder_turn(self._folder):
            self._losses.save(durable, answers)
            if calls != self._synced_calls:
                self._position.advance()
        self._synced_calls = calls

    def false_drop(self) -> float:
        """Probability that a key never marked is dropped now; in mode "exact" 0. Cost: O(leaves)."""
        if self._exact is not None:
            return 0.0
        by_smm = self._smm.fill if self._smm is not None else 1.0
        return by_smm * (self._dsbf.rates()[0] if self._dsbf is not None else 1.0)

    def statistics(self) -> UniqStatistics:
        """The filter at this moment; nothing is changed. Cost: O(leaves)."""
        keys, false_drop = self._keys(), self.false_drop()
        dsbf = self._dsbf.statistics() if self._dsbf is not None else None
        return UniqStatistics(
            mode=self._mode,
            keys=keys,
            false_drop=false_drop,
            expected_lost=self._losses.at(keys, false_drop),
            planned_keys=self._expected,
            planned_false_drop=self._planned_false_drop(dsbf),
            memory_bytes=sum(stage.memory_bytes for stage in self._stages),
            mapped_bytes=sum(stage.mapped_bytes for stage in self._stages),
            answers=self._answers,
            smm=self._smm.statistics() if self._smm is not None else None,
            dsbf=dsbf,
            exact=self._exact.statistics() if self._exact is not None else None,
        )

    def check(self) -> None:
        """Read everything and verify it. Raises: InvariantBroken; FormatMismatch for a file cut off or replaced; OSError."""
        for stage in reversed(self._stages):
            stage.check()

    def close(self) -> None:
        """Sync and close all files, once. Raises: OSError, closed."""
        if self._is_closed:
            return
        self._is_closed = True
        with ExitStack() as closing:
            for stage in self._stages:
                closing.callback(stage.close)
            self.sync()

    def __repr__(self) -> str:
        return f"<UniqFilter {self._mode} {' '.join(map(repr, self._stages))}>"

    def _keys(self) -> int:
        """Distinct keys, by the most exact stage."""
        if self._set is not None:
            return len(self._set)
        return self._smm.bits_set if self._smm is not None else 0

    def _planned_false_drop(self, dsbf: DsbfStatistics | None) -> float:
        if self._exact is not None:
            return 0.0
        by_smm = -math.expm1(-self._expected / self._smm.bits) if self._smm is not None else 1.0
        return by_smm * (dsbf.planned_rate if dsbf is not None else 1.0)

    def _is_unseen(self, key: bytes) -> bool:
        """`unseen` of one key."""
        if self._smm is None or self._set is None:
            is_new = self._stages[0].is_unseen(key)
            self._count(1, is_new)
            return is_new
        if self._smm.is_unseen(key):
            self._count(1, 1)
            return True
        is_new = self._set.is_unseen(key)
        self._count(1, 0, is_new)
        return is_new

    def _count(self, keys: int, first_new: int, set_new: int = 0) -> None:
        """Count answers: of so many keys the first stage found so many new, and the second one of the others so many."""
        before, known = self._answers, keys - first_new
        smm_new, smm_known, set_asked = first_new, known, known
        if self._smm is None:  # the first stage is the set
            smm_new, smm_known = 0, 0
            set_asked, set_new, known = keys, first_new, keys
        elif self._set is None:
            set_asked = 0
        self._answers = Answers(
            before.asked + keys,
            before.memory_known,
            before.smm_new + smm_new,
            before.smm_known + smm_known,
            before.set_asked + set_asked,
            before.set_new + set_new,
            before.dropped + known - set_new,
        )

    def _has_marked(self) -> None:
        self._calls += 1  # only now, so that a sync that began during the call does not cover it
        keys = self._keys()
        if self._losses.is_due(keys):
            self._losses.step(keys, self.false_drop())


def _open_stage(folder: Path, name: str, given: UniqParameters, leaves: str, *, alone: bool) -> Smm | Dsbf | ExactIndex:
    if name == "smm":
        return Smm.open(folder, given.smm_signature, given.smm_levels, alone=alone or len(given.stages) > 1)
    return Dsbf.open(folder, given.dsbf, leaves) if name == "dsbf" else ExactIndex.open(folder)
