"""What a queue's folder keeps beside the Frontier: the id and the name by which Crawlee knows the queue.

FOLDER/queue.json   {"format": "anabranch crawlee queue", "version": 1, "id": …, "name": …, "created_at": …}
"""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Self

from anabranch.frontier.errors import FormatMismatch, StoreUnavailable

FORMAT = "anabranch crawlee queue"
VERSION = 1
IDENTITY_FILE = "queue.json"
#: What Crawlee's own file storage writes into a queue's folder.
_OTHERS_FILE = "__metadata__.json"


class Identity(NamedTuple):
    """Who a queue is."""

    id: str
    name: str | None
    created_at: datetime

    @classmethod
    def new(cls, name: str | None) -> Self:
        """A queue that is made now."""
        return cls(secrets.token_urlsafe(12), name, datetime.now(UTC))


def identity_in(folder: Path, name: str | None) -> Identity:
    """Who the queue in this folder is, which the caller holds; of a new one `name` is the name (blocks).

    Raises: FormatMismatch, StoreUnavailable.
    """
    file = folder / IDENTITY_FILE
    try:
        if file.is_file():
            return _parsed(file)
        identity = Identity.new(name)
        said = {"format": FORMAT, "version": VERSION, "id": identity.id, "name": name}
        unfinished = file.with_name(f"{IDENTITY_FILE}.new")
        unfinished.write_text(
            json.dumps({**said, "created_at": identity.created_at.isoformat()}) + "\n", encoding="utf-8"
        )
        unfinished.replace(file)
    except OSError as error:
        raise StoreUnavailable(f"{folder}: {error.strerror}; choose a folder that can be written") from error
    return identity


def check_free(folder: Path) -> None:
    """Raises: FormatMismatch if Crawlee's own file storage has a queue there, which would be overlooked."""
    if (folder / _OTHERS_FILE).exists() and not (folder / IDENTITY_FILE).exists():
        raise FormatMismatch(
            f"{folder}: a queue of Crawlee's file storage is there; choose another name or storage_dir"
        )


def with_id(base: Path, wanted: str) -> Path:
    """The folder below this one whose queue has the id (blocks for a look into each). Raises: ValueError, FormatMismatch."""
    for file in sorted(base.glob(f"*/{IDENTITY_FILE}")):
        if _parsed(file).id == wanted:
            return file.parent
    raise ValueError(f'Request queue with ID "{wanted}" not found')


def _parsed(file: Path) -> Identity:
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        if (said["format"], said["version"]) != (FORMAT, VERSION):
            raise FormatMismatch(
                f"{file}: {said['format']!r} version {said['version']!r}, not {FORMAT!r} version {VERSION}"
            )
        return Identity(said["id"], said["name"], datetime.fromisoformat(said["created_at"]))
    except (ValueError, KeyError, TypeError) as error:
        raise FormatMismatch(f"{file}: it is no {FORMAT}; remove it, and the queue gets a new id") from error
