"""The operator's own functions: what they are named like, and how they fail."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.outcomes.userfunctions import KEY, RULE, UserFunction, UserFunctionFailed, user_function
from tests.rows import each_row


@each_row(
    ("name", "words"),
    [
        ("mine", "'mine' is not of the form package.module:function"),
        (
            "no.such:f",
            "no.such:f cannot be imported: ModuleNotFoundError: No module named 'no' (looked first in FIRST)",
        ),
        ("json:nothing", "json:nothing cannot be imported: AttributeError: module 'json' has no attribute 'nothing'"),
        ("json:__name__", "json:__name__ is not a function"),
        (
            "os:getcwd",
            "os:getcwd cannot be called with one argument, as it will be; write `def getcwd(target)`",
        ),
    ],
)
def test_what_cannot_be_had_is_said_with_the_key_of_the_order(name: str, words: str) -> None:
    """One line, before the crawl begins."""
    with pytest.raises(OrderError) as raised:
        user_function(name, RULE)
    assert str(raised.value) == f"[scope] rules {words}".replace(
        "FIRST", f"{sys.path[0]}; PYTHONPATH=FOLDER adds a folder"
    )


def test_what_a_function_raises_is_one_line_that_names_it() -> None:
    """The kind and the text of the error."""
    loads = user_function("json:loads", RULE)
    assert loads("[1]") == [1]
    with pytest.raises(
        UserFunctionFailed, match=r"^rule json:loads failed: JSONDecodeError: Expecting value: line 1"
    ) as failed:
        loads("x")
    assert failed.value.annotation == "rule=json:loads"


class Mute(Exception):
    """An error without words."""

    def __str__(self) -> str:
        raise ValueError


@each_row(
    ("error", "words"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit(), "GeneratorExit"),
        (asyncio.CancelledError(), "CancelledError"),
        (BaseException("odd"), "BaseException: odd"),
        (Mute(), "Mute: its text cannot be read"),
    ],
)
def test_whatever_a_function_raises_is_its_failure(error: BaseException, words: str) -> None:
    """It answers at once, so nobody can have cancelled or closed anything meanwhile."""
    with pytest.raises(UserFunctionFailed) as failed:
        raising(error)(None)
    assert str(failed.value) == f"rule own:it failed: {words}"


def test_who_interrupts_the_program_does_it_from_a_function_too() -> None:
    """Ctrl-C is no defect of what happens to run."""
    with pytest.raises(KeyboardInterrupt):
        raising(KeyboardInterrupt())(None)


def raising(error: BaseException) -> UserFunction:
    def fail(_: object) -> None:
        raise error

    return UserFunction(RULE, "own:it", fail)


async def waiting(_: object) -> bool:
    return True


async def yielding(_: object) -> AsyncIterator[bool]:
    yield True


class Waiting:
    async def __call__(self, _: object) -> bool:
        return True


waiter = Waiting()


@pytest.mark.parametrize("function", ["waiting", "yielding", "waiter"])
def test_an_async_function_is_refused_where_it_must_answer_at_once(function: str) -> None:
    """It would answer with a coroutine for every link, which is neither yes nor no."""
    with pytest.raises(OrderError) as refused:
        user_function(f"{__name__}:{function}", KEY)
    assert str(refused.value) == (
        f"[urls] canonicalization {__name__}:{function} is async, and a key function must answer at once; "
        f"write `def {function}(url)`"
    )


def test_a_module_that_ends_the_program_is_one_that_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script without the guard of its main part, say."""
    (tmp_path / "script_of_mine.py").write_text("import sys\nsys.exit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OrderError, match=r"script_of_mine:f cannot be imported: SystemExit: 7$"):
        user_function("script_of_mine:f", RULE)


@pytest.mark.parametrize("answer", [3, Mute, waiting])
def test_an_answer_that_makes_no_sense_is_shown(answer: object) -> None:
    """The message shows as much as can be shown; a coroutine is closed, so that it causes no warning later."""
    given = answer(None) if answer is waiting else Odd() if answer is Mute else answer
    words = str(UserFunction(RULE, "own:it", bool).answered(given, "True"))
    assert words.startswith("rule own:it answered ")
    assert words.endswith("; it must be True")


class Odd:
    def __repr__(self) -> str:
        raise ValueError
