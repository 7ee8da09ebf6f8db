"""The errors of the room: one root, one class per reaction of a caller."""

from __future__ import annotations

#: Message on a file with a missing end, after its name.
CUT_OFF = "is shorter than it was when it was synced: it is damaged; restore it from a copy, or start over"


class DedupError(Exception):
    """Root of all errors that filters raise by themselves."""


class BadParameters(DedupError, ValueError):
    """A filter cannot be built with these numbers; the message names the number and its bounds."""


class FormatMismatch(DedupError):
    """A folder or file belongs to another program, is damaged, or was made with other parameters; the message names them."""


class FilterInUse(DedupError):
    """Another process, or another filter of this one, has the folder open."""


class FilterClosed(DedupError):
    """The filter was closed; open it again."""


class InvariantBroken(DedupError):
    """`check()` found two parts of a filter that contradict each other; the message names both."""


class StoreFull(DedupError, OSError):
    """The disk, the quota or the file size limit is used up (ENOSPC, EDQUOT, EFBIG). Free space and repeat the call."""


class StoreUnavailable(DedupError):
    """A server is down, was restarted without its data, or was flushed; the message names it and what to do."""
