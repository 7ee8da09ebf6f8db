"""Processors of the operator's own: found by name, checked at the start, their faults kept apart from ours."""

import pytest

from crawler.chain import Step
from crawler.outcomes.errors import OrderError
from crawler.outcomes.failures import Unfetchable
from crawler.outcomes.ownfunctions import OwnFunctionFailed
from crawler.processors.own import own_processor, own_processors
from crawler.reporting.statistics import step_name
from tests.crawler.builder import visit

HERE = __name__


async def quiet(visit):
    visit.notes += ("seen",)


async def stop(visit):
    return Step.STOP


async def broken(visit):
    raise KeyError("x")


async def refusing(visit):
    raise Unfetchable("not for us")


async def chatty(visit):
    return "yes"


def plain(visit):
    return None


class Callable:
    async def __call__(self, visit):
        return Step.STOP


called = Callable()


@pytest.mark.parametrize(("name", "step"), [("quiet", Step.PROCEED), ("stop", Step.STOP), ("called", Step.STOP)])
async def test_it_goes_on_or_stops_as_it_answers(name, step) -> None:
    """Nothing means to go on; an object with an async call is as good as a function."""
    one = visit()
    assert await own_processor(f"{HERE}:{name}")(one) is step
    assert one.notes == (("seen",) if name == "quiet" else ())


async def test_several_keep_their_order_and_have_their_names_in_reports() -> None:
    """As the order names them."""
    names = [f"{HERE}:stop", f"{HERE}:quiet"]
    assert [step_name(processor) for processor in own_processors(names)] == names


@pytest.mark.parametrize(
    ("name", "words"), [("broken", "failed: KeyError: 'x'"), ("chatty", "answered 'yes'; it must be")]
)
async def test_what_it_does_wrong_is_said_with_its_name(name, words) -> None:
    """The worker takes it as it takes any processor's fault."""
    with pytest.raises(OwnFunctionFailed, match=f"^{HERE}:{name} {words}"):
        await own_processor(f"{HERE}:{name}")(visit())


async def test_it_may_end_a_url_as_a_fetch_does() -> None:
    """With an error that has a status of its own."""
    with pytest.raises(Unfetchable):
        await own_processor(f"{HERE}:refusing")(visit())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{HERE}:plain", "is not async; write `async def plain"),
        (f"{HERE}:nothing", "cannot be imported: AttributeError"),
        (f"{HERE}:HERE", "is not a function"),
        ("nonsense", "is not of the form package.module:function"),
    ],
)
def test_what_is_no_async_function_is_refused_at_the_start(name, words) -> None:
    """In one line that names the key."""
    with pytest.raises(OrderError, match=r"^\[job\] processors ") as refused:
        own_processor(name)
    assert words in str(refused.value)
