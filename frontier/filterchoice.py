"""Which filter a Frontier has: a mode of dedup's UniqFilter or a plug-in, by the names that a crawl order uses.

A job's filter is fixed, since another one would know none of its URLs. An order that names another filter than the folder
has is refused; `anabranch frontier rebuild-filter` makes the new one from the rows of the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, Final, TypeAlias

from anabranch.dedup.errors import BadParameters
from anabranch.dedup.files.formatfile import NAME as FORMAT_FILE
from anabranch.dedup.recent import RecentFront
from anabranch.dedup.uniq import MODES, UniqFilter, UniqParameters, format_of, recorded
from anabranch.dedup.userfunctions import found
from anabranch.frontier.errors import FormatMismatch, PolicyError
from anabranch.frontier.filters import DedupFilter, kept_name
from anabranch.frontier.jobfolder import STATE
from anabranch.frontier.seen import SeenFilter

#: Parameters of a UniqFilter, or the name of a plug-in, `package.module:Class`.
FilterChoice: TypeAlias = UniqParameters | str

#: Where a plug-in has its files, in the filter's folder.
PLUGIN_FOLDER: Final = "plugin"

#: The names of an order -> those of `UniqParameters`.
FILTER_PARAMETERS: Final[Mapping[str, str]] = {
    "filter": "mode",
    "signature": "signature",
    "levels": "levels",
    "leaf_kind": "leaf_kind",
    "leaf_bits": "leaf_bits",
    "split_fan_out": "split_fan_out",
    "false_positive": "false_positive",
    "expect": "expected",
    "mapped_limit": "mapped_limit_bytes",
}
#: Of an opening, and no part of what the folder records.
_OF_OPENING: Final = frozenset({"mapped_limit_bytes"})

_SIMILAR = (
    'is a stage in front of a filter, which forgets: write similar = "published" or "site-bound", and leave filter out'
)


def filter_choice(settings: Mapping[str, Any]) -> FilterChoice:
    """The choice that these settings make, by the names of `FILTER_PARAMETERS`; the others have their defaults.

    A plug-in takes none of the others. Raises: PolicyError, which names the wrong setting.
    """
    given = {FILTER_PARAMETERS[name]: value for name, value in settings.items()}
    mode = given.get("mode", "both")
    if isinstance(mode, str) and ":" in mode:
        return checked_choice(mode)
    if levels := given.pop("levels", None):
        given["levels"] = tuple(levels)
    for name in ("signature", "leaf_kind"):
        given[name] = given.get(name) or None
    return checked_choice(UniqParameters(**given))


def checked_choice(uniq: object) -> FilterChoice:
    """The choice of a `FrontierOrder`: parameters, the name of a mode or plug-in, None: the default. Raises: PolicyError."""
    if uniq is None:
        return UniqParameters()
    if isinstance(uniq, str) and ":" not in uniq:
        uniq = UniqParameters(mode=uniq)
    try:
        if isinstance(uniq, UniqParameters):
            if uniq.mode == "similar":
                raise PolicyError(f"filter similar {_SIMILAR}")
            if uniq.mode not in MODES:
                raise PolicyError(
                    f"filter {uniq.mode!r} is unknown; choose one of {', '.join(MODES)}, or package.module:Class"
                )
            _ = uniq.format
            return uniq
        if isinstance(uniq, str):
            found(uniq, "filter", MODES)
            return uniq
    except BadParameters as error:
        raise PolicyError(str(error)) from error
    raise PolicyError(f"uniq {uniq!r}: give UniqParameters of anabranch.dedup.uniq, a name, or None")


def name_of(choice: FilterChoice) -> str:
    """The name of a mode or a plug-in."""
    return choice if isinstance(choice, str) else choice.mode


def loss_warning(uniq: object) -> str:
    """A sentence if the filter of a `FrontierOrder` is expected to lose more URLs than `false_positive` allows; else empty."""
    choice = checked_choice(uniq)
    return "" if isinstance(choice, str) else choice.loss_warning


def require_same(folder: Path, choice: FilterChoice) -> None:
    """Raise FormatMismatch, which names both, if the folder has another filter than the chosen one. Raises: OSError."""
    if isinstance(choice, UniqParameters):
        choice = choice.as_in(recorded(folder))
    there = _filter_in(folder, choice)
    if there is None or there == _words(choice):
        return
    raise FormatMismatch(
        f"{folder} has the filter {there}, the order asks for {_words(choice)}: keep the first, or {_remedy(folder, choice)}"
    )


def _filter_in(folder: Path, choice: FilterChoice) -> str | None:
    """The folder's filter in words; None if it has none yet. Raises: FormatMismatch if its record is missing; OSError."""
    parameters, name = recorded(folder), kept_name(folder)
    if name is not None and ":" in name:
        return name
    if parameters is not None:
        return _words(parameters)
    if name is not None:
        raise FormatMismatch(f"{folder / FORMAT_FILE} is missing: the filter is damaged; {_remedy(folder, choice)}")
    is_plugin = (folder / PLUGIN_FOLDER).exists() and not isinstance(choice, str)
    return "of a plug-in" if is_plugin else None  # its process ended before the name was kept


def _remedy(folder: Path, choice: FilterChoice) -> str:
    """How to get the chosen filter."""
    if folder.parent.name != STATE:
        return f"remove {folder}, and the next opening makes the filter from the URLs of the store"
    settings = {"filter": name_of(choice)}
    if isinstance(choice, UniqParameters):
        default = UniqParameters()
        shaping = {name: field for name, field in FILTER_PARAMETERS.items() if field not in {"mode", *_OF_OPENING}}
        given = {name: getattr(choice, field) for name, field in shaping.items()}
        settings |= {name: value for name, value in given.items() if value != getattr(default, FILTER_PARAMETERS[name])}
    options = " ".join(f"-s {quote(f'dedup.{name}={_setting(value)}')}" for name, value in settings.items())
    return f"make the other one from the job's URLs: anabranch frontier rebuild-filter {folder.parent.parent} {options}"


def _setting(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def open_choice(folder: Path, choice: FilterChoice, *, kept: bool) -> SeenFilter:
    """Open or make the folder's filter (blocks). `kept`: a store has its keys, and recent ones are answered from memory.

    Raises: FormatMismatch, PolicyError; dedup's errors; OSError.
    """
    require_same(folder, choice)
    if isinstance(choice, str):
        return _plugin(folder / PLUGIN_FOLDER, choice)
    opened = UniqFilter.open(folder, choice, alone=True)
    return DedupFilter(RecentFront(opened) if kept else opened)


def _plugin(folder: Path, name: str) -> SeenFilter:
    """Raises: PolicyError for a class that fails, is no filter, or blocks."""
    made = found(name, "filter", MODES)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        opened: SeenFilter = made(folder)
        missing = [each for each in _METHODS if not callable(getattr(opened, each, None))]
        blocks = getattr(opened, "blocks", None)
    except OSError:
        raise
    except Exception as error:
        raise PolicyError(f"filter {name}: {type(error).__name__}: {' '.join(str(error).split())}") from error
    if missing or blocks is None:
        lacks = ", ".join([*missing, *(["blocks"] if blocks is None else [])])
        raise PolicyError(f"filter {name} is no SeenFilter: it lacks {lacks}")
    if blocks:
        opened.close()
        raise PolicyError(f"filter {name} blocks: only a program can use it, as open_frontier(…, store=…, seen=…)")
    return opened


_METHODS: Final[Sequence[str]] = ("unseen", "mark", "sync", "position", "close", "facts")


def _words(choice: FilterChoice) -> str:
    """The filter with the parameters that its folder records."""
    if isinstance(choice, str):
        return choice
    given = {there: here for here, there in FILTER_PARAMETERS.items()}
    # Imports nothing: the folder may name a function that its order does not.
    values = {given.get(name, name): value for name, value in format_of(choice).parameters.items() if name != "mode"}
    shown = (
        f"{name} {','.join(map(str, value)) if isinstance(value, list) else value}" for name, value in values.items()
    )
    return f"{choice.mode} ({', '.join(shown)})" if values else choice.mode
