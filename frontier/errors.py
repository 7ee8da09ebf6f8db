"""The errors of the frontier room."""

from __future__ import annotations

import errno
from typing import TypeVar

E = TypeVar("E", bound=Exception)


class FrontierError(Exception):
    """Root of all errors of the Frontier."""


class PolicyError(FrontierError):
    """The order has a policy that does not exist, or a value that makes no sense."""


class UnknownQueue(FrontierError):
    """There is no work queue of this name."""


class LeaseLost(FrontierError):
    """The lease is not out: it was finished, released or lost, or belongs to another Frontier."""


class LifecycleError(FrontierError):
    """A step that the state of a work queue does not allow: a defect of the Frontier."""


class InvariantBroken(FrontierError):
    """Two facts contradict each other, as `Operations.check` finds them: a defect, or damage."""


class FormatMismatch(FrontierError):
    """The state was written by another version or with another policy or filter."""


class FilterAhead(FormatMismatch):
    """The filter may know URLs that its store does not have, such as after the store was restored from a copy."""

    def __init__(self, why: str = "") -> None:
        super().__init__(
            f"the filter belongs to another state of the crawl{why and f' ({why})'}, and URLs that only it knows would be "
            "lost; restore store and filter from the same copy, or remove the filter, which is then made again from the store"
        )
        self.why = why or "it belongs to another state of the crawl"  #: in words


class StoreUnavailable(FrontierError):
    """The store cannot be read or written. Acknowledged changes are safe; the crawl can be resumed."""


class StoreDamaged(StoreUnavailable):
    """The store has lost or changed data that was written."""


class StoreFull(StoreUnavailable):
    """The disk of the store is full or read-only."""


class StoreInUse(StoreUnavailable):
    """Another process holds the store."""


class SharesLost(StoreInUse):
    """The worker was away for longer than its lease, and others have its shares. It may join again."""


class StoreSetBack(StoreUnavailable):
    """The store is in an older state than this process has seen: it was restored, or a standby took over that lacked commits.

    What it lacks is lost; open the Frontier again, with what the store has.
    """


def unwritable(what: str, error: OSError) -> StoreUnavailable:
    """The error for a file that cannot be written, by the cause; to be raised `from` the `OSError`."""
    file = f" ({error.filename})" if error.filename else ""
    message = f"{what} cannot be written: {error.strerror or error}{file}"
    if error.errno in {errno.EMFILE, errno.ENFILE}:  # of the process, of the system
        return StoreUnavailable(f"{message}; raise the limit of open files (ulimit -n) and run again")
    if error.errno == errno.ENOMEM:
        return StoreUnavailable(f"{message}; raise the limit of memory (ulimit -v), or free some, and run again")
    if error.errno == errno.EISDIR:
        return StoreDamaged(f"{message}; move that folder away and run again")
    if error.errno == errno.ENAMETOOLONG:
        return StoreUnavailable(f"{message}; choose a folder with a shorter name")
    return StoreFull(message)


def caused_by(failure: E, cause: Exception) -> E:
    """The failure with its cause, as `raise failure from cause` sets it, for an error that is raised later."""
    failure.__cause__ = cause
    return failure
