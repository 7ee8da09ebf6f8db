"""What to say of an error that comes of too few files, too little memory or too few threads; it imports nothing for it."""

from __future__ import annotations

import errno

#: What the system says when a process may have no more of something -> what to do.
_ADVICE = {
    errno.EMFILE: "too many open files; raise the limit (ulimit -n) and run the same command again",
    errno.ENFILE: "the system has too many open files; end what needs them and run the same command again",
    errno.ENOMEM: "not enough memory; raise the limit (ulimit -v), or free some, and run the same command again",
    errno.EAGAIN: "no thread can be started; raise the limit of memory (ulimit -v) or of threads (ulimit -u) and run "
    "the same command again",
}
#: What the loader says of a library that finds no room.
_NO_ROOM = ("failed to map segment", "Cannot allocate memory")
#: What Python says of a thread that finds none.
_NO_THREAD = "can't start new thread"


def exhausted(error: BaseException | None) -> str | None:
    """What to say of the error; None if it comes of something else. One that another error caused counts as that one."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if (number := _number(error)) in _ADVICE:
            return _ADVICE[number]
        error = error.__cause__ or error.__context__
    return None


def lacks_memory(error: BaseException) -> bool:
    """The error says that the process has no memory for an object or a thread, so that anything else would fail, too."""
    return _number(error) in {errno.ENOMEM, errno.EAGAIN} and not isinstance(error, OSError)


def _number(error: BaseException) -> int:
    if isinstance(error, MemoryError) or (
        isinstance(error, ImportError) and any(words in str(error) for words in _NO_ROOM)
    ):
        return errno.ENOMEM
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return errno.EAGAIN
    number = getattr(error, "errno", None)
    return number if isinstance(number, int) and number != errno.EAGAIN else 0
