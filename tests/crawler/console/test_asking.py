"""Questions to many jobs at the same time, of which some never answer."""

from threading import Barrier, Event

from anabranch.crawler.console.asking import Asking, Silent
from anabranch.crawler.outcomes.errors import UsageError
from tests.patience import HANG_S


def test_all_jobs_are_asked_at_the_same_time():
    """Each answers only when the others are asked, too."""
    everyone = Barrier(5)

    def ask(name):
        everyone.wait(HANG_S)
        return name.upper()

    assert Asking(ask, HANG_S).answers("abcde") == {name: name.upper() for name in "abcde"}


def test_a_job_that_is_late_is_silent_and_asked_once_until_it_has_answered():
    """The others have their answers; what it says in the end answers the question of that time, and no later one."""
    hanging, asked = Event(), []

    def ask(name):
        asked.append(name)
        if name == "hangs":
            hanging.wait(HANG_S)
        return len(asked)

    asking = Asking(ask, 0.0)
    for _ in range(3):
        assert isinstance(asking.answers(["hangs"])["hangs"], Silent)
    assert asked == ["hangs"]
    under_way = asking._asked["hangs"].answer
    hanging.set()
    assert under_way.result(HANG_S) == 1
    patient = Asking(ask, HANG_S)
    assert patient.answers(["hangs", "works"])["works"] > 1
    asking.answers(["hangs"])
    assert asking._asked["hangs"].answer is not under_way


def test_an_error_or_a_defect_of_one_job_is_its_answer():
    """The caller gets the error as a value, and the other jobs are still answered."""

    def ask(name):
        if name == "bad":
            raise UsageError("it is in use")
        return 1 // len(name)

    answers = Asking(ask, HANG_S).answers(["bad", "", "a"])
    assert str(answers["bad"]) == "it is in use"
    assert str(answers[""]).startswith(": cannot be read: ZeroDivisionError")
    assert answers["a"] == 1
