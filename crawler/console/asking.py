"""Asks many jobs the same at the same time. One that does not answer in time holds up neither the others nor whoever asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from threading import Lock, Thread
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

import structlog

from anabranch.crawler.operate import FrontierError
from anabranch.crawler.outcomes.errors import CrawlerError

log = structlog.get_logger(__name__)

T = TypeVar("T")

#: A job is given this long. A crawl answers in milliseconds; a scrape of Prometheus waits for 10 s.
PATIENCE_S = 4.0


class Silent(CrawlerError):
    """A job did not answer in time."""


class _Question(NamedTuple):
    answer: Future[object]
    asked_s: float


class Asking(Generic[T]):
    """One question, to any job by its name. A job that has not answered yet is not asked again, so each holds one thread."""

    def __init__(self, ask: Callable[[str], T], patience_s: float = PATIENCE_S) -> None:
        self._ask = ask
        self._patience_s = patience_s
        self._asked: dict[str, _Question] = {}
        self._turn = Lock()

    def answers(self, names: Iterable[str]) -> dict[str, T | CrawlerError | FrontierError]:
        """Ask the jobs and wait. Return each one's answer or its error; `Silent` is the error of one that is late."""
        with self._turn:
            questions = {name: self._question(name) for name in names}
            unanswered = {name: one for name, one in self._asked.items() if not one.answer.done()}
            self._asked = unanswered | questions
        return {name: self._answer(name, question) for name, question in questions.items()}

    def _question(self, name: str) -> _Question:
        """The one that the job has not answered yet, or a new one."""
        before = self._asked.get(name)
        if before is not None and not before.answer.done():
            return before
        question = _Question(Future(), monotonic())
        Thread(target=self._find, args=(name, question.answer), daemon=True).start()  # the console ends without it
        return question

    def _find(self, name: str, answer: Future[object]) -> None:
        try:
            answer.set_result(self._ask(name))
        except BaseException as error:  # noqa: BLE001 - it is raised where the answer is read
            answer.set_exception(error)

    def _answer(self, name: str, question: _Question) -> T | CrawlerError | FrontierError:
        left_s = question.asked_s + self._patience_s - monotonic()
        wait_for([question.answer], max(left_s, 0.0))
        if not question.answer.done():
            return Silent(f"{name}: the job does not answer; look at its log, or stop its process")
        try:
            return question.answer.result()  # type: ignore[return-value]  # what `ask` returned
        except (CrawlerError, FrontierError) as error:
            return error
        except Exception as error:  # a defect, or a job of another version: the others are answered
            log.exception("a job cannot be read", job=name)
            return CrawlerError(f"{name}: cannot be read: {error!r}; the console's log tells more")
