"""What an error says of a lack of files, memory or threads."""

import errno

import pytest

from anabranch.crawler.outcomes.exhaustion import exhausted, lacks_memory
from anabranch.crawler.outcomes.failures import Unfetchable


@pytest.mark.parametrize(
    ("error", "words", "is_memory"),
    [
        (MemoryError(), "not enough memory", True),
        (RuntimeError("can't start new thread"), "no thread can be started", True),
        (ImportError("x.so: failed to map segment from shared object"), "not enough memory", True),
        (OSError(errno.ENOMEM, "no"), "not enough memory", False),
        (OSError(errno.EMFILE, "no"), "too many open files", False),
    ],
)
def test_what_is_lacking_is_told_in_one_line(error: Exception, words: str, *, is_memory: bool) -> None:
    """Also if it is the cause of another error, or one of several."""
    caused = ValueError("odd")
    caused.__cause__ = error
    for raised in (error, caused, ExceptionGroup("some", [error])):
        assert (exhausted(raised) or "").startswith(words)
    assert lacks_memory(error) is is_memory


@pytest.mark.parametrize("error", [RuntimeError("odd"), BlockingIOError(errno.EAGAIN, "later"), Unfetchable("no host")])
def test_other_errors_are_not_explained(error: Exception) -> None:
    """They are defects, or somebody else's to tell."""
    assert exhausted(error) is None
    assert not lacks_memory(error)
