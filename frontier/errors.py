"""What can go wrong in the frontier room; the docstring of a class is its meaning."""

from __future__ import annotations

import errno
from typing import TypeVar

E = TypeVar("E", bound=Exception)

#: What the system says when no more files and sockets may be opened: by the process, by all of them.
_TOO_MANY_FILES = frozenset({errno.EMFILE, errno.ENFILE})


class FrontierError(Exception):
    """Root of all errors of this room."""


class PolicyError(FrontierError):
    """The order asks for a policy, a delay or a number that does not exist or makes no sense."""


class UnknownQueue(FrontierError):
    """There is no work queue of this name."""


class LeaseLost(FrontierError):
    """The lease is not out: it was finished, released, or belongs to another Frontier."""


class LifecycleError(FrontierError):
    """A work queue was asked for a step that its state does not allow: a defect of the Frontier."""


class InvariantBroken(FrontierError):
    """`Frontier.check()` found two facts that contradict each other."""


class FormatMismatch(FrontierError):
    """The state was written by another version or with another policy or filter."""


class StoreUnavailable(FrontierError):
    """The store cannot be read or written; what was acknowledged is safe, the crawl can be resumed."""


class StoreDamaged(StoreUnavailable):
    """The store is not what was written to it."""


class StoreFull(StoreUnavailable):
    """The disk of the store is full or read-only."""


class StoreInUse(StoreUnavailable):
    """Another process holds the store."""


def unwritable(what: str, error: OSError) -> StoreUnavailable:
    """The error of a file that cannot be written; to be raised `from` the `OSError`.

    Too many open files, too little memory, or a folder that has the name of a file, are no full disk.
    """
    file = f" ({error.filename})" if error.filename else ""
    message = f"{what} cannot be written: {error.strerror or error}{file}"
    if error.errno in _TOO_MANY_FILES:
        return StoreUnavailable(f"{message}; raise the limit of open files (ulimit -n) and run again")
    if error.errno == errno.ENOMEM:
        return StoreUnavailable(f"{message}; raise the limit of memory (ulimit -v), or free some, and run again")
    if error.errno == errno.EISDIR:
        return StoreDamaged(f"{message}; move that folder away and run again")
    if error.errno == errno.ENAMETOOLONG:
        return StoreUnavailable(f"{message}; choose a folder with a shorter name")
    return StoreFull(message)


def caused_by(failure: E, cause: Exception) -> E:
    """The failure, with its cause, for an error that is not raised at once: as `raise failure from cause` notes it."""
    failure.__cause__ = cause
    return failure
