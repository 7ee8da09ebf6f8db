"""Functions of the operator's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.userfunctions import (
    MOST_CHARS,
    accepts,
    answers_later,
    call_user_function,
    check_name,
    is_async,
    is_user_function,
    shown,
    user_function,
)
from tests.rows import each_row


def test_a_name_with_a_module_and_a_function_is_that_of_a_function() -> None:
    """Each part of it is an identifier."""
    names = (
        "my.own:key",
        "own:key",
        "bkdr:997",
        "own",
        ":key",
        "own:",
        "my..own:key",
        "my own:key",
        "a:b:c",
        "a:b.c",
        "1a:b",
        "http://a:b",
    )
    assert [name for name in names if is_user_function(name)] == ["my.own:key", "own:key"]


def test_a_function_is_imported_by_what_was_given_for_it() -> None:
    """Without that it is refused, and the error says what the function would have been."""
    assert user_function("my.own:key", "policy", lambda name: {"my.own:key": len}[name]) is len
    with pytest.raises(PolicyError, match=r"^policy my.own:key: functions cannot be imported here; pass `imported`"):
        user_function("my.own:key", "policy", None)


def test_what_a_function_raises_becomes_one_line() -> None:
    """With the kind of the error, whatever its text; a call that is broken off stays broken off."""

    def fails(error: BaseException) -> None:
        raise error

    assert call_user_function(len, "abc", "it") == 3
    with pytest.raises(PolicyError, match=r"^it failed: KeyError: 'x'$"):
        call_user_function(fails, KeyError("x"), "it")
    with pytest.raises(PolicyError, match=r"^it failed: ValueError: two lines$"):
        call_user_function(fails, ValueError("two\n lines"), "it")
    with pytest.raises(PolicyError, match=r"^it failed: ValueError$"):
        call_user_function(fails, ValueError(), "it")
    with pytest.raises(KeyboardInterrupt):
        call_user_function(fails, KeyboardInterrupt(), "it")


def test_a_long_text_is_cut() -> None:
    """A short one is shown whole."""
    assert shown("x" * 200) == "x" * 200
    assert shown("x" * 9000) == "x" * 200 + "…"


def test_what_an_error_says_is_cut() -> None:
    """An error may bring a whole page along."""

    def fails(_: object) -> None:
        raise ValueError("x" * 9000)

    with pytest.raises(PolicyError) as failed:
        call_user_function(fails, None, "it")
    assert str(failed.value) == "it failed: ValueError: " + "x" * 200 + "…"


class Mute(Exception):
    """An error without words."""

    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize("error", [SystemExit(1), GeneratorExit(), BaseException("x"), Mute()])
def test_what_would_end_a_program_is_a_failure_of_the_function(error: BaseException) -> None:
    """And so is an error that cannot say what it is."""

    def fails(_: object) -> None:
        raise error

    with pytest.raises(PolicyError, match=rf"^it failed: {type(error).__name__}"):
        call_user_function(fails, None, "it")


async def waiting(_: object) -> str:
    return ""


async def yielding(_: object) -> AsyncIterator[str]:
    yield ""


class Waiting:
    """An object whose call is async."""

    async def __call__(self, url: str) -> str:
        return url


class Yielding:
    """An object whose call gives its answers one by one."""

    async def __call__(self, url: str) -> AsyncIterator[str]:
        yield url


ASYNC = [waiting, partial(waiting), Waiting(), Waiting().__call__, partial(Waiting())]


@each_row("function", [*ASYNC, yielding, Yielding()])
def test_an_async_function_is_refused(function: Callable[..., object]) -> None:
    """It would answer with a coroutine, which is no queue."""
    with pytest.raises(PolicyError, match=r"^policy my:f is async, and must answer at once; write a plain `def`$"):
        user_function("my:f", "policy", lambda _: function)


def test_what_is_async_is_told_from_what_is_not() -> None:
    """By what a call of it runs: calling a class makes an instance, at once."""
    assert all(map(is_async, ASYNC))
    assert not any(map(is_async, [yielding, Yielding()]))
    assert not any(map(answers_later, [len, str, Called(), Waiting, partial(len)]))


class Called:
    """An object that is called like a function."""

    def __call__(self, url: str) -> str:
        return url


@each_row(
    ("function", "count", "is_accepted"),
    [
        (waiting, 1, True),
        (waiting, 0, False),
        (waiting, 2, False),
        (lambda *given: given, 3, True),
        (lambda url, hops="": url + hops, 1, True),
        (lambda url, *, hops: url + hops, 1, False),
        (Called(), 1, True),
        (Called, 1, False),
        (dict.fromkeys, 3, False),
        (str, 1, True),
        (min, 7, True),
    ],
)
def test_a_function_accepts_what_it_can_be_called_with(
    function: Callable[..., object], count: int, is_accepted: bool
) -> None:
    """By place; a built-in function that does not tell passes."""
    assert accepts(function, count) is is_accepted


def test_a_function_that_cannot_be_called_is_refused() -> None:
    """Before the first URL, which would end the Frontier."""
    with pytest.raises(PolicyError, match=r"^policy my:f cannot be called .*; write `def f\(url\)`$"):
        user_function("my:f", "policy", lambda _: lambda: "")
    with pytest.raises(PolicyError, match=r"^cost my:f cannot be called .*; write `def f\(url, via, hops\)`$"):
        user_function("my:f", "cost", lambda _: lambda url: 1, "url, via, hops")


def test_a_name_is_printable_text() -> None:
    """It has one character or ten thousand, in any script."""
    for name in ("a", "公司 1", "x" * MOST_CHARS):
        assert check_name(name, "it") is name


@each_row(
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
