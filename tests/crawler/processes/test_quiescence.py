"""When a crawl of several shares is over."""

from anabranch.crawler.processes.quiescence import Quiet, is_over


def answers(*stirred: int, quiet: bool = True, life: int = 1) -> dict[int, Quiet]:
    return {share: Quiet(quiet, times, life) for share, times in enumerate(stirred)}


def test_two_equal_rounds_of_quiet_shares_are_the_end() -> None:
    """Nothing came to any of them in between, so nothing is under way."""
    assert is_over(answers(3, 5), answers(3, 5))


def test_a_share_that_was_stirred_in_between_may_have_stirred_others() -> None:
    """Quiet again it may be, but what it sent meanwhile is not known."""
    assert not is_over(answers(3, 5), answers(3, 6))


def test_a_share_that_works_or_has_died_is_not_the_end() -> None:
    """Nor is a process that began anew, or no answer at all."""
    assert not is_over(answers(3, 5, quiet=False), answers(3, 5, quiet=False))
    assert not is_over(answers(3, 5, life=1), answers(3, 5, life=2))
    assert not is_over({}, {})
