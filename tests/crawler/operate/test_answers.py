"""`retry` goes on call after call, and says what it did."""

from anabranch.crawler.operate.answers import VerbAnswer, has_failed, retried_all, retried_lines

NONE = {"start": "", "queued": 0, "unknown_hops": 0, "undated": 0, "retired": 0, "paused": 0, "blocked": 0, "note": ""}


def test_calls_go_on_where_the_one_before_ended_and_are_summed() -> None:
    """Each takes what failed before the first of them."""
    asked = []

    def answer(verb, given):
        asked.append((verb, given))
        more = [7, 9, None][len(asked) - 1]
        return VerbAnswer({**NONE, "queued": 2, "retired": 1, "more": more, "before_s": 5.0}, is_running=True)

    found = retried_all(answer, {"host": "a.test"})
    assert found == VerbAnswer({**NONE, "queued": 6, "retired": 3}, is_running=True)
    assert asked == [
        ("retry", {"host": "a.test"}),
        ("retry", {"host": "a.test", "after": 7, "before_s": 5.0}),
        ("retry", {"host": "a.test", "after": 9, "before_s": 5.0}),
    ]


def test_the_answer_names_all_that_holds_them_back() -> None:
    """A line each, and none about what is not so."""
    facts = {"queued": 9, "unknown_hops": 1, "undated": 2, "retired": 3, "paused": 4, "blocked": 5, "note": "a limit"}
    first, *held, last = retried_lines({**facts, "start": "start a (host)"})
    assert first == "9 failures queued again"
    assert [line[0] for line in held] == ["1", "2", "3", "4", "5", "a"]
    assert last == "start a (host)"
    assert list(retried_lines({**NONE, "queued": 1})) == ["1 failure queued again"]
    assert list(retried_lines(NONE)) == ["no failure that fits; nothing is queued again"]


def test_only_a_url_that_was_given_up_has_failed() -> None:
    """A queued one and one that was fetched have not."""
    assert has_failed({"state": "ended", "reason": "it failed: 404"})
    assert not has_failed({"state": "ended", "reason": "it was fetched: 200"})
    assert not has_failed({"state": "queued", "reason": "it failed once"})
