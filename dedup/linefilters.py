"""The filters of the room behind one interface for a stream of lines (`stream.py`), chosen by name.

A filter's folder records its parameters. So a later run names only the folder; parameters that it names must agree.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.dedup import uniq
from anabranch.dedup.bloom.formulas import DsbfParameters
from anabranch.dedup.errors import BadParameters, DedupError, FormatMismatch
from anabranch.dedup.files import formatfile
from anabranch.dedup.keys import BoolArray
from anabranch.dedup.smm.addresses import full_name, levels_for
from anabranch.dedup.uniq import UniqFilter, UniqParameters

if TYPE_CHECKING:
    from anabranch.dedup.bloom.sharedfilter import SharedDsbf
    from anabranch.dedup.similarity.filter import SimilarityFilter, SimilarityParameters

#: The filter that drops similar URLs; the others drop equal keys and are modes of `UniqFilter`. Its module is imported by
#: those who use it: its data base takes longer to import than a short list to pass.
SIMILAR = "similar"
DEFAULT = "both"
#: The filter that several crawlers share by servers.
SHARED = "dsbf"

#: Filter -> its choices, by the names of `Choice`.
CHOICES: Mapping[str, frozenset[str]] = {
    "smm": frozenset({"signature", "levels", "expected", "false_positive"}),
    "dsbf": frozenset({"expected", "false_positive", "leaf_kind", "leaf_bits", "split_fan_out"}),
    "both": frozenset({"signature", "levels", "expected", "false_positive", "leaf_kind", "leaf_bits", "split_fan_out"}),
    "exact": frozenset({"signature", "levels", "expected"}),
    SIMILAR: frozenset({"expected", "false_positive", "features", "site_bound", "drop_query"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The parameters that a user gives; None: as in the folder, or else the default."""

    kind: str | None = None  #: a name in CHOICES
    signature: str | None = None  #: of the SMM
    levels: tuple[int, ...] | None = None  #: of the SMM
    expected: int | None = None  #: keys
    #: Of each leaf of the DSBF, or of the similarity filter, or the fill of an SMM alone.
    false_positive: float | None = None
    leaf_kind: str | None = None  #: of the DSBF
    leaf_bits: int | None = None  #: of the DSBF
    split_fan_out: int | None = None  #: of the DSBF
    features: tuple[str, ...] | None = None  #: of the similarity filter
    site_bound: bool | None = None  #: of the similarity filter: compare within a site alone
    drop_query: bool | None = None  #: of the similarity filter

    def given(self) -> dict[str, Any]:
        """The given parameters by name, without the kind."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "kind"}
        if self.signature is not None:
            values["signature"] = full_name(self.signature)
        return {name: value for name, value in values.items() if value is not None}


class ChoiceError(DedupError):
    """A choice is impossible; `choice` is its name in `Choice`."""

    def __init__(self, choice: str, message: str) -> None:
        super().__init__(message)
        self.choice = choice


class Contradiction(ChoiceError, FormatMismatch):
    """The folder was made with another choice."""


class NoSuchChoice(ChoiceError, BadParameters):
    """The filter does not have this choice."""


class LineFilter(ABC):
    """One filter of any kind, with the methods that a stream of lines calls."""

    kind: str  #: a name in CHOICES
    warning = ""  #: that more is expected to be lost than `false_positive` allows
    can_check = True  #: it can be verified

    @abstractmethod
    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        """True where a key is new; nothing is changed."""

    @abstractmethod
    def mark(self, keys: Sequence[bytes]) -> None:
        """Make keys known. Raises: StoreFull, OSError."""

    @abstractmethod
    def sync(self) -> None:
        """Make marked keys durable, if `mark` does not. Raises: OSError."""

    @abstractmethod
    def check(self) -> None:
        """Verify the filter by reading all of it. Raises: InvariantBroken."""

    @abstractmethod
    def facts(self) -> Mapping[str, float | str]:
        """The figures that it knows of itself, as `UniqStatistics.facts`."""

    @abstractmethod
    def close(self) -> None:
        """Sync and close. Raises: OSError."""


def open_filter(folder: Path, choice: Choice) -> LineFilter:
    """Open the folder's filter, of the kind that it records; make the chosen one if the folder is new or empty.

    Raises: as `UniqFilter.open`, and BadParameters for a choice that the filter does not have. An OSError names a path.
    """
    with _naming(folder):
        is_new = _recorded(folder) is None
        given = _parameters(folder, choice)
        made = _open_uniq(folder, given) if isinstance(given, UniqParameters) else _open_similar(folder, given)
    return _InFolder(folder, made, _warning(given, choice) if is_new or choice.expected is not None else "")


def _warning(given: UniqParameters | SimilarityParameters, choice: Choice) -> str:
    """The `loss_warning` for the chosen sizes, because the folder of an SMM does not keep how many keys it was made for."""
    return replace(given, **_sizes(choice)).loss_warning if isinstance(given, UniqParameters) else ""


def _sizes(choice: Choice) -> dict[str, Any]:
    return {name: value for name, value in choice.given().items() if name in {"expected", "false_positive"}}


def behind_similar(known: LineFilter, folder: Path, choice: Choice) -> LineFilter:
    """The filter with a similarity filter before it, in this folder: a line is new if it is new to both.

    `check` verifies the filter behind. Raises: as `open_filter`.
    """
    return _BehindSimilar(known, open_filter(folder, replace(choice, kind=SIMILAR)))


class _BehindSimilar(LineFilter):
    """A filter with a similarity filter before it."""

    def __init__(self, known: LineFilter, similar: LineFilter) -> None:
        self.kind, self.warning, self.can_check = known.kind, known.warning, known.can_check
        self._known = known
        self._similar = similar

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        # The similarity filter goes by the lines that may be kept: a known one must not hide a new one that is like it.
        new = self._known.unseen(keys).copy()
        new[new] = self._similar.unseen(list(compress(keys, new)))
        return new

    def mark(self, keys: Sequence[bytes]) -> None:
        self._known.mark(keys)  # first: what only the similarity filter knows would be dropped and never recorded
        self._similar.mark(keys)

    def sync(self) -> None:
        self._known.sync()  # the similarity filter is durable when it has marked

    def check(self) -> None:
        self._known.check()

    def facts(self) -> Mapping[str, float | str]:
        return {**self._known.facts(), "similar_keys": self._similar.facts()["keys"]}

    def close(self) -> None:
        try:
            self._known.close()
        finally:
            self._similar.close()


class _InFolder(LineFilter):
    """The filter of a folder: an OSError that names no file names the folder."""

    def __init__(self, folder: Path, made: LineFilter, warning: str) -> None:
        self.kind, self.warning, self.can_check = made.kind, warning, made.can_check
        self._folder = folder
        self._made = made

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        with _naming(self._folder):
            return self._made.unseen(keys)

    def mark(self, keys: Sequence[bytes]) -> None:
        with _naming(self._folder):
            self._made.mark(keys)

    def sync(self) -> None:
        with _naming(self._folder):
            self._made.sync()

    def check(self) -> None:
        with _naming(self._folder):
            self._made.check()

    def facts(self) -> Mapping[str, float | str]:
        return self._made.facts()

    def close(self) -> None:
        with _naming(self._folder):
            self._made.close()


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Inside, an OSError that names no file names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(folder)
        raise


def open_shared(urls: Sequence[str], name: str, choice: Choice) -> LineFilter:
    """Open the filter of that name on Redis servers, or make it. Raises: BadParameters, FormatMismatch, StoreUnavailable."""
    if choice.kind not in (None, SHARED):
        raise NoSuchChoice(
            "kind",
            f"only {SHARED} can be shared by servers: what the others saw is in the servers, not in a local filter",
        )
    parameters = DsbfParameters(**_given(SHARED, choice))
    from anabranch.dedup.bloom.sharedfilter import SharedDsbf  # noqa: PLC0415 - only a shared filter needs the client library

    return _Shared(SharedDsbf.open(urls, name=name, parameters=parameters))


class _Shared(LineFilter):
    """A filter on Redis servers, which make keys durable as they mark them."""

    kind = SHARED

    def __init__(self, made: SharedDsbf) -> None:
        self._made = made

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        return self._made.unseen(keys)

    def mark(self, keys: Sequence[bytes]) -> None:
        self._made.mark(keys)

    def sync(self) -> None:
        """`mark` does it."""

    def check(self) -> None:
        self._made.check()

    def close(self) -> None:
        self._made.close()

    def facts(self) -> Mapping[str, float | str]:
        now = self._made.statistics()
        return {"filter": SHARED, "keys": now.elements, "false_drop_probability": now.mean_rate}


def _open_uniq(folder: Path, parameters: UniqParameters) -> LineFilter:
    return _Uniq(parameters.mode, UniqFilter.open(folder, parameters))


class _Uniq(LineFilter):
    """A filter that drops equal keys."""

    def __init__(self, kind: str, made: UniqFilter) -> None:
        self.kind = kind
        self._made = made

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        return self._made.unseen(keys)

    def mark(self, keys: Sequence[bytes]) -> None:
        self._made.mark(keys)

    def sync(self) -> None:
        self._made.sync()

    def check(self) -> None:
        self._made.check()

    def facts(self) -> Mapping[str, float | str]:
        return self._made.statistics().facts()

    def close(self) -> None:
        self._made.close()


def _open_similar(folder: Path, parameters: SimilarityParameters) -> LineFilter:
    from anabranch.dedup.similarity.filter import SimilarityFilter  # noqa: PLC0415 - see SIMILAR

    return _Similar(SimilarityFilter.open(folder, parameters))


class _Similar(LineFilter):
    """A filter that drops similar URLs. It makes keys durable as it marks them."""

    kind = SIMILAR
    can_check = False

    def __init__(self, made: SimilarityFilter) -> None:
        self._made = made

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        return ~self._made.are_similar(keys)

    def mark(self, keys: Sequence[bytes]) -> None:
        self._made.add_all(keys)

    def sync(self) -> None:
        """`mark` does it."""

    def check(self) -> None:
        raise NotImplementedError("a filter of similar URLs keeps nothing to verify it by")

    def facts(self) -> Mapping[str, float | str]:
        now = self._made.statistics()
        return {"filter": SIMILAR, "keys": now.urls, "false_drop_probability": now.false_similar}

    def close(self) -> None:
        self._made.close()


def _parameters(folder: Path, choice: Choice) -> UniqParameters | SimilarityParameters:
    """The parameters of the folder's filter, or of a new one. Raises: Contradiction, NoSuchChoice, FormatMismatch."""
    recorded = _recorded(folder)
    if recorded is None:
        kind = DEFAULT if choice.kind is None else choice.kind
        given = _given(kind, choice)
        if kind != SIMILAR:
            return UniqParameters(mode=kind, **given)
        from anabranch.dedup.similarity.filter import SimilarityParameters  # noqa: PLC0415 - see SIMILAR

        return SimilarityParameters(**given)
    kind = recorded.mode if isinstance(recorded, UniqParameters) else SIMILAR
    values = {name: getattr(recorded, name) for name in CHOICES[kind]}
    if choice.kind not in (None, kind):
        raise _contradiction(folder, "kind", kind, choice.kind)
    for name, value in _given(kind, choice).items():
        if values[name] == value or _is_former(kind, name, values[name], choice):
            continue
        if name in choice.given():
            raise _contradiction(folder, name, values[name], value)
        # The levels of an SMM follow from its sizes.
        sizes = "expected" if choice.expected is not None else "false_positive"
        raise _contradiction(folder, sizes, f"{name} {_shown(values[name])}", f"{name} {_shown(value)}")
    _refuse_unnamed(folder, values, choice)
    return recorded


def _is_former(kind: str, name: str, value: object, choice: Choice) -> bool:
    """Whether an earlier version made the folder for as many keys. It made an SMM alone no larger than a first stage."""
    is_sized = (kind, name) == ("smm", "levels") and choice.expected is not None
    return is_sized and not (choice.levels or choice.false_positive) and value == levels_for(choice.expected or 0)


def _refuse_unnamed(folder: Path, values: Mapping[str, Any], choice: Choice) -> None:
    """Raises: NoSuchChoice if the folder's filter needs a user function that the choice does not name; it would run."""
    for name in ("signature", "features"):
        value = values.get(name, ())
        functions = [one for one in ([value] if isinstance(value, str) else value) if ":" in one]
        if functions and getattr(choice, name) is None:
            raise NoSuchChoice(
                name, f"{folder} was made with {_shown(value)}, which is code that only the folder names; name it, too"
            )


def _given(kind: str, choice: Choice) -> dict[str, Any]:
    """The chosen parameters of the filter of that kind. Raises: NoSuchChoice."""
    if kind not in CHOICES:
        raise NoSuchChoice("kind", f"{kind!r} is unknown; there are: {', '.join(CHOICES)}")
    given = choice.given()
    for name in given.keys() - CHOICES[kind]:
        raise NoSuchChoice(name, f"the filter {kind} has no such choice; leave it out")
    sizes = _sizes(choice)
    if sizes and kind in {"smm", "exact"}:
        # Without Bloom leaves only the levels depend on the numbers, and only they are kept.
        planned = UniqParameters(mode=kind, **sizes)
        _ = planned.dsbf  # refuses impossible numbers
        given = {"levels": planned.smm_levels} | {name: given[name] for name in given.keys() - sizes.keys()}
    return given


def _recorded(folder: Path) -> UniqParameters | SimilarityParameters | None:
    """The parameters of the filter in a folder; None without a filter. Raises: FormatMismatch, OSError."""
    path = folder / formatfile.NAME
    if not path.exists() or (record := formatfile.read_record(path)).get("magic") == uniq.MAGIC:
        return uniq.recorded(folder)
    from anabranch.dedup.similarity.filter import MAGIC, SimilarityParameters  # noqa: PLC0415 - see SIMILAR

    if record.get("magic") != MAGIC:
        raise FormatMismatch(f"{folder} holds something else than a filter of URLs; name another folder")
    match record.get("parameters"):
        case {
            "expected": int(expected),
            "false_positive": float(false_positive),
            "features": str(features),
            "mode": "published" | "site-bound" as mode,
            "drop_query": bool(drop_query),
        }:
            return SimilarityParameters(
                expected=expected,
                false_positive=false_positive,
                features=tuple(features.split()),
                site_bound=mode == "site-bound",
                drop_query=drop_query,
            )
    raise FormatMismatch(f"{path} is damaged: its parameters are not those of a filter")


def _contradiction(folder: Path, name: str, there: object, here: object) -> Contradiction:
    return Contradiction(
        name, f"{folder} was made with {_shown(there)}, not {_shown(here)}; leave it out, or name another folder"
    )


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
