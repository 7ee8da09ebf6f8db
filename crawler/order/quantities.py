"""Durations and sizes as people write them: read (`parse_*`), written without loss (`exact_*`), and rounded (`format_*`)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

#: Seconds per unit, the largest first.
_DURATIONS: Mapping[str, float] = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}

#: Bytes per unit, the largest first. IEC 80000-13: KiB is 1024, KB is 1000.
_SIZES: Mapping[str, int] = {
    "TiB": 1 << 40,
    "TB": 10**12,
    "GiB": 1 << 30,
    "GB": 10**9,
    "MiB": 1 << 20,
    "MB": 10**6,
    "KiB": 1 << 10,
    "KB": 1000,
    "B": 1,
}
_SIZES_BY_LOWER_NAME = {name.lower(): unit for name, unit in _SIZES.items()}

#: Larger numbers are typing errors, and floats do not hold them exactly.
_TOO_MUCH = float(1 << 53)

_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", re.ASCII | re.IGNORECASE)

_DURATION_FORMS = "a number of seconds, or like 500ms, 3s, 2m, 1h, 1d"
_SIZE_FORMS = "a number of bytes, or like 8KB, 10MB, 16MiB, 1GB"


def parse_duration(value: object) -> float:
    """Seconds, from a number of seconds or from text like `500ms`, `3s`, `2m`, `1h`, `1d`. Raises: ValueError."""
    amount, unit = _read(value, _DURATION_FORMS)
    name = unit.lower() or "s"
    # Milliseconds are divided: 9 * 0.001 is not 0.009.
    seconds = amount / 1000 if name == "ms" else amount * _DURATIONS.get(name, math.inf)
    if not seconds < _TOO_MUCH:
        raise ValueError(f"must be {_DURATION_FORMS}; not {value!r}")
    return seconds


def parse_size(value: object) -> int:
    """Bytes, rounded, from a whole number or from text like `16MiB`, `10MB`, `8KB`. Raises: ValueError."""
    amount, unit = _read(value, _SIZE_FORMS)
    size_bytes = amount * _SIZES_BY_LOWER_NAME.get(unit.lower() or "b", math.inf)
    if not size_bytes < _TOO_MUCH or not (unit or size_bytes.is_integer()):
        raise ValueError(f"must be {_SIZE_FORMS}; not {value!r}")
    return round(size_bytes)


def exact_duration(seconds: float) -> str:
    """The shortest text in one unit that `parse_duration` reads as the same float: `90s`, `2m`, `500ms`."""
    for unit, factor in _DURATIONS.items():
        count = round(seconds / factor)
        if count and parse_duration(f"{count}{unit}") == seconds:
            return f"{count}{unit}"
    return f"{seconds!r}s" if seconds else "0s"


def exact_size(size_bytes: int) -> str:
    """The text with the largest unit that divides the size: `16MiB`, `10MB`, `1025B`."""
    for unit, factor in _SIZES.items():
        count, rest = divmod(size_bytes, factor)
        if count and not rest:
            return f"{count}{unit}"
    return "0B"


def format_bytes(size_bytes: int) -> str:
    """A size in binary units with one decimal: `17 B`, `1.5 KiB`, `2.0 GiB`."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    unit = next(name for name in ("TiB", "GiB", "MiB", "KiB") if size_bytes >= _SIZES[name])
    return f"{size_bytes / _SIZES[unit]:.1f} {unit}"


def _read(value: object, forms: str) -> tuple[float, str]:
    """Amount and unit; the unit is empty if none is given."""
    if isinstance(value, str):
        found = _QUANTITY.fullmatch(value)
        if found is not None:
            return float(found[1]), found[2]
    elif isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _TOO_MUCH:
        return float(value), ""
    raise ValueError(f"must be {forms}; not {value!r}")
