"""The errors of the frontier room."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

E = TypeVar("E", bound=Exception)


class FrontierError(Exception):
    """Root of all errors of the Frontier."""


class PolicyError(FrontierError):
    """The order has a policy that does not exist, or a value that makes no sense."""


class Passing(Exception):
    """Raised by a user function that cannot answer now, such as because a service is away. It is asked again later."""


class UnknownQueue(FrontierError):
    """There is no work queue of this name."""


class DumpDamaged(FrontierError):
    """A line of a dump, not its last, cannot be read; all lines before it have been loaded."""


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


#: Why nothing more can be written to a disk: it is full or read-only, or this user may not.
_FULL = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR
})  # fmt: skip
#: Errors of a disk, or of a process's resources, by which all later writes may fail, too.
_LASTING = frozenset({
    errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM
})  # fmt: skip


def first_cause(error: E, counts: Callable[[BaseException], bool]) -> E:
    """The earliest error that `counts` of those that were being handled when this one was raised; this one if there is none.

    An error that was raised `from` another one is that one in better words, and counts as the same. Pure.
    """
    first, is_same = error, True  #: is_same: `at` is `first` in other words
    at: BaseException = error
    seen: set[int] = set()
    while id(at) not in seen:
        seen.add(id(at))
        if not is_same and counts(at):
            first, is_same = cast(E, at), True
        before, cause = at.__context__, at.__cause__
        if before is None or (cause is None and at.__suppress_context__):  # `from None` hides what came before
            before = cause
        if before is None:
            break
        is_same = is_same and before is cause
        at = before
    return first


@contextmanager
def errors_after(earlier: BaseException | None) -> Iterator[None]:
    """Inside, parts are closed after an error: `first_cause` finds that error behind theirs.

    Python chains them by itself, but not if an exit stack has caught the earlier one, or another thread closes the part.
    """
    try:
        yield
    except Exception as error:
        last: BaseException = error
        seen: set[int] = set()
        while last is not earlier and last.__context__ is not None and id(last) not in seen:
            seen.add(id(last))
            last = last.__context__
        if last is not earlier and last.__context__ is None:
            last.__context__ = earlier
        raise


def unwritable(what: str, error: OSError) -> StoreUnavailable:
    """The error for a file that cannot be written, by the cause; to be raised `from` the `OSError`."""
    error = first_cause(error, lambda one: isinstance(one, OSError) and one.errno in _LASTING)
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
    if error.errno is None or error.errno in _FULL:  # a user's filter may raise one without a number
        return StoreFull(message)
    return StoreUnavailable(f"{message}; look at the disk and run again")


def caused_by(failure: E, cause: Exception) -> E:
    """The failure with its cause, as `raise failure from cause` sets it, for an error that is raised later."""
    failure.__cause__ = cause
    return failure
