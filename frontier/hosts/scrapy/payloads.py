"""Keeps a queued request of Scrapy on disk as the JSON of its `to_dict`. Reading it runs no code.

JSON has no bytes, no tuples, and no dictionary with keys other than text: such a value becomes an object with the one
key "", which holds its kind and its content. JSON must hold every other value exactly: it cannot hold a set, an item or
a subclass of `str`, and a request with one stays in the process.

Earlier versions wrote pickles, which run code when they are read. A job that has some is refused unless the variable
ANABRANCH_UNPICKLE is 1: then they are converted, and those that JSON cannot hold are read as they are in that run.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from scrapy import Request

from anabranch.dedup.files.locks import LockHeld
from anabranch.frontier.errors import FormatMismatch
from anabranch.frontier.jobfolder import STATE, STORE_FILE, has_store, is_embedded, take_lock
from anabranch.frontier.stores.sql.payloads import has_payload, rewrite

logger = logging.getLogger(__name__)

#: The first byte of a payload: its form.
PICKLE: Final = b"p"
_JSON: Final = b"j"
#: The variable that allows pickles.
UNPICKLE: Final = "ANABRANCH_UNPICKLE"


def pack(fields: Mapping[str, Any]) -> bytes:
    """The payload of a request's `to_dict`. Raises: TypeError, ValueError, RecursionError for what JSON cannot hold."""
    return _JSON + json.dumps(_plain(dict(fields)), separators=(",", ":")).encode()


def unpack(payload: bytes, *, may_unpickle: bool) -> dict[str, Any]:
    """The fields of a payload. A pickle is read only if it may be. Raises: ValueError, or what the pickle's code raises."""
    if payload[:1] == PICKLE and may_unpickle:
        fields = pickle.loads(payload[1:])  # noqa: S301 - the operator trusts the job
    elif payload[:1] == PICKLE:
        raise ValueError(f"its payload is a pickle, which may run code; {UNPICKLE}=1 reads it")
    elif payload[:1] == _JSON:
        fields = _whole(json.loads(payload[1:]))
        _check_class(fields)
    else:
        raise ValueError("its payload is not Scrapy's")
    if not isinstance(fields, dict):
        raise TypeError("its payload is no request")
    return fields


def may_unpickle() -> bool:
    """Whether the operator trusts the pickles of the job."""
    return os.environ.get(UNPICKLE) == "1"


def settle_pickles(directory: Path) -> None:
    """Refuse a job with pickles, or convert them (blocks). Raises: FormatMismatch in one line; as a store that is opened."""
    if not (is_embedded(directory) and has_store(directory / STATE)):
        return
    try:
        lock = take_lock(directory)
    except (LockHeld, OSError):
        return  # opening it says why
    try:
        file = directory / STATE / STORE_FILE
        if not has_payload(file, PICKLE):
            return
        if not may_unpickle():
            raise FormatMismatch(
                f"{directory}: its requests are pickles of an earlier version, and reading one may run any code; if you "
                f"trust the folder, run the crawl once with {UNPICKLE}=1, which converts them to JSON"
            )
        done, left = rewrite(file, PICKLE, _converted)
        logger.info("%d pickled requests were converted to JSON", done)
        if left:
            words = "%d pickled requests cannot be written as JSON: they are read in this run, and a later one needs %s=1 again"
            logger.warning(words, left, UNPICKLE)
    finally:
        os.close(lock)


def _converted(payload: bytes) -> bytes | None:
    """Convert a pickled request to JSON; None if JSON cannot hold it, or it cannot be read."""
    try:
        return pack(unpack(payload, may_unpickle=True))
    except Exception as error:  # noqa: BLE001 - a pickle may raise anything
        logger.debug("a pickled request stays as it is: %s", error)
        return None


_ITSELF: Final = (str, int, float, bool, type(None))


def _plain(value: Any) -> Any:
    """The value as JSON holds it. Raises: TypeError."""
    kind = type(value)
    if kind in _ITSELF:
        return value
    if kind is list:
        return list(map(_plain, value))
    if kind is dict:
        return _plain_dict(value)
    if kind is tuple:
        return {"": ["tuple", list(map(_plain, value))]}
    if kind is bytes:
        return {"": ["bytes", b64encode(value).decode()]}
    raise TypeError(f"JSON cannot hold a {kind.__module__}.{kind.__qualname__}")


def _plain_dict(value: dict[Any, Any]) -> dict[str, Any]:
    if "" not in value and {str}.issuperset(map(type, value)):
        return {key: _plain(one) for key, one in value.items()}
    return {"": ["dict", [[_plain(key), _plain(one)] for key, one in value.items()]]}


def _whole(value: Any) -> Any:
    """The value that `_plain` was given. Raises: ValueError, TypeError for another text."""
    if isinstance(value, list):
        return [_whole(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "" not in value:
        return {key: _whole(one) for key, one in value.items()}
    kind, content = value[""]
    if kind == "bytes":
        return b64decode(content, validate=True)
    if kind == "tuple":
        return tuple(_whole(one) for one in content)
    if kind == "dict":
        return {_whole(key): _whole(one) for key, one in content}
    raise ValueError(f"its payload has a value of the kind {kind!r}")


def _check_class(fields: Any) -> None:
    """Scrapy imports the class that the fields name. Raises: ValueError unless the project has loaded it already."""
    name = fields.get("_class") if isinstance(fields, dict) else None
    if name is None:
        return
    kinds, found = [Request], set[str]()
    while kinds:
        kind = kinds.pop()
        found.add(f"{kind.__module__}.{kind.__name__}")
        kinds += kind.__subclasses__()
    if name not in found:
        raise ValueError(f"the class {name!r} is no request's that the project has imported")
