"""Names of queues and groups."""

import pytest

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.names import MOST_CHARS, check_name


def test_a_name_is_printable_text() -> None:
    """Of one character or ten thousand, in any script."""
    for name in ("a", "公司 1", "x" * MOST_CHARS):
        assert check_name(name, "it") is name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "it gave 0 characters; 1 to 10000 are allowed"),
        ("x" * 10_001, "it gave 10001 characters"),
        (None, "it gave NoneType; text is needed"),
        (b"x", "it gave bytes; text is needed"),
        ("a\nb", r"it gave 'a\\nb', which has characters that cannot be printed"),
        ("\ud800", "cannot be printed"),
    ],
)
def test_anything_else_is_refused(name: object, reason: str) -> None:
    """The error begins with whose name it is, and stays one line."""
    with pytest.raises(PolicyError, match=reason) as refused:
        check_name(name, "it")
    assert "\n" not in str(refused.value)
