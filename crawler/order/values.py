"""The types of an order's values: what is read from text, what is refused, and how a value is written back."""

from __future__ import annotations

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from anabranch.crawler.fetch.addresses import parse_address
from anabranch.crawler.order.quantities import exact_duration, exact_size, parse_duration, parse_size
from anabranch.frontier.policies.userfunctions import is_user_function, shown

T = TypeVar("T", str, Path)


def _checked_endpoint(text: str) -> str:
    parse_address(text)
    return text


def _checked_listener(text: str) -> str:
    if not text:
        return text
    try:
        has_port = parse_address(text).port is not None
    except ValueError:
        has_port = False
    if not has_port:
        raise ValueError(f"must be ip:port, like 127.0.0.1:9400 or [::1]:9400; not {text!r}")
    return text


def _number(value: object) -> object:
    """Refuse truth values, which are numbers in Python."""
    if isinstance(value, bool):
        raise ValueError(f"must be a number; not {str(value).lower()}")  # noqa: TRY004 - pydantic wants it
    return value


_STATUS_RANGE = re.compile(r"([1-9]\d\d)(?:-([1-9]\d\d))?|([1-9])xx", re.ASCII)


def status_range(text: str) -> tuple[int, int]:
    """The first and the last status of `404`, `500-599` or `4xx`. Raises: ValueError."""
    found = _STATUS_RANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"must be HTTP statuses, like 404, 4xx or 500-599; not {text!r}")
    if found[3]:
        return 100 * int(found[3]), 100 * int(found[3]) + 99
    low, high = int(found[1]), int(found[2] or found[1])
    if low > high:
        raise ValueError(f"must be HTTP statuses, like 404, 4xx or 500-599; {text!r} holds none")
    return low, high


def _status_texts(value: object) -> object:
    """One status or several, as numbers or texts."""
    listed = value if isinstance(value, list | tuple) else (value,)
    return tuple(str(one) if isinstance(one, int) and not isinstance(one, bool) else one for one in listed)


def _checked_status(text: str) -> str:
    status_range(text)
    return text


def _checked_network(text: str) -> str:
    try:
        ip_network(text)
    except ValueError as error:
        raise ValueError(f"must be IP ranges, like 192.0.2.0/24 or 2001:db8::/32; {error}") from None
    return text


def _folder_name(name: str) -> str:
    if not name.strip() or name.startswith(".") or "/" in name or not name.isprintable():
        raise ValueError(f"must be a name for a folder, without / and not beginning with a dot; not {name!r}")
    return name


def path_without_nul(path: T) -> T:
    """The path. Raises: ValueError if no file can have it."""
    if "\0" in str(path):
        raise ValueError(f"must not have a NUL; not {str(path)!r}")
    return path


#: A quantity in the JSON Schema: a number, or text with a unit.
_QUANTITY_SCHEMA = WithJsonSchema({"type": ["number", "string"]})

Duration = Annotated[float, BeforeValidator(parse_duration), PlainSerializer(exact_duration), _QUANTITY_SCHEMA]
PositiveDuration = Annotated[Duration, Field(gt=0)]
Size = Annotated[int, BeforeValidator(parse_size), PlainSerializer(exact_size), _QUANTITY_SCHEMA]
PositiveSize = Annotated[Size, Field(gt=0)]
#: Larger numbers are typing errors, and not exact in JSON.
Whole = Annotated[int, BeforeValidator(_number), Field(le=1 << 53)]
Count = Annotated[Whole, Field(ge=0)]
Positive = Annotated[Whole, Field(ge=1)]
Budget = Annotated[Whole, Field(ge=-1)]  #: cost units; -1: without end
Connections = Annotated[Positive, Field(le=10_000)]
Precedence = Annotated[Whole, Field(ge=0, le=255)]
Factor = Annotated[float, BeforeValidator(_number), Field(ge=0, allow_inf_nan=False)]
Share = Annotated[Factor, Field(le=1)]
Part = Annotated[Factor, Field(gt=0, le=1)]
#: HTTP statuses, one or several: 404, "4xx", "500-599".
Statuses = Annotated[tuple[Annotated[str, AfterValidator(_checked_status)], ...], BeforeValidator(_status_texts)]
#: IP ranges, one or several.
Networks = Annotated[
    tuple[Annotated[str, AfterValidator(_checked_network)], ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
]
Endpoint = Annotated[str, AfterValidator(_checked_endpoint)]
ListenAddressOrNone = Annotated[str, AfterValidator(_checked_listener)]
Name = Annotated[str, StringConstraints(min_length=1, pattern=r"^\S+$")]
NameOrNone = Annotated[str, StringConstraints(pattern=r"^\S*$")]
#: An optional file, kept by its full name because a dumped order is in another folder.
FileOrNone = Annotated[
    str, AfterValidator(path_without_nul), AfterValidator(lambda path: path and str(Path(path).absolute()))
]
#: SURT prefixes, hosts or URLs; a single one needs no brackets.
Prefixes = Annotated[
    tuple[Name, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value), Field(min_length=1)
]
#: The same of other texts; none is needed.
Texts = Annotated[tuple[Name, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
FolderName = Annotated[str, AfterValidator(_folder_name)]
# A dumped order is in another folder, so it has full paths.
SeedFile = Annotated[Path, AfterValidator(path_without_nul), PlainSerializer(lambda path: str(path.absolute()))]
UserFolder = SeedFile


def _user_function(name: str) -> str:
    if not is_user_function(name):
        raise ValueError(f"has {shown(name)!r}, which is not of the form package.module:function")
    return name


UserFunctionName = Annotated[Name, AfterValidator(_user_function)]


class Section(BaseModel):
    """A table of the order: frozen, unknown keys are refused. A key is the name of its field without the unit."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=lambda field: field.removesuffix("_s").removesuffix("_bytes")
    )


def contradiction(message: str, *keys: str) -> PydanticCustomError:
    """The error for keys that exclude each other. The line that reports it names the first of them that was given."""
    return PydanticCustomError("contradiction", "{message}", {"keys": keys, "message": message})


def check_bounds(section: Section, least: str, most: str) -> None:
    """Raises: PydanticCustomError, which names both keys, if the lower bound is above the upper one."""
    least_s, most_s = getattr(section, f"{least}_s"), getattr(section, f"{most}_s")
    if least_s is not None and most_s is not None and least_s > most_s:
        bounds = f"{most} ({exact_duration(most_s)}) is less than {least} ({exact_duration(least_s)})"
        raise contradiction(f"{bounds}; raise the one or lower the other", most, least)
