"""Names that operators and their functions give to queues and groups."""

from __future__ import annotations

from anabranch.frontier.errors import PolicyError

MOST_CHARS = 10_000


def check_name(name: object, whose: str) -> str:
    """The name, if it is one: text of 1 to 10,000 printable characters that UTF-8 can hold.

    Raises: PolicyError, which begins with `whose` ("policy my.module:key for http://a.test/").
    """
    if not isinstance(name, str):
        raise PolicyError(f"{whose} gave {type(name).__name__}; text is needed")
    if not 1 <= len(name) <= MOST_CHARS:
        raise PolicyError(f"{whose} gave {len(name)} characters; 1 to {MOST_CHARS} are allowed")
    if not name.isprintable():
        raise PolicyError(f"{whose} gave {name[:100]!r}, which has characters that cannot be printed")
    return name
