"""A table of rows is one test, in which no row hides another."""

import inspect

import pytest

from tests.rows import each_row


def test_every_row_is_run():
    """Also those behind a row that fails; the values of each that fails are named."""
    seen = []

    @each_row("number, word", [(1, "a"), (2, "b"), (3, "c")])
    def test(number, word):
        seen.append((number, word))
        assert number == 2
        with pytest.raises(ValueError, match="x"):
            raise ValueError("x")

    with pytest.raises(BaseExceptionGroup, match="2 of 3 rows failed") as raised:
        test()
    assert seen == [(1, "a"), (2, "b"), (3, "c")]
    notes = [note for failure in raised.value.exceptions for note in failure.__notes__]
    assert notes == ["row {'number': 1, 'word': 'a'}", "row {'number': 3, 'word': 'c'}"]


def test_an_error_that_was_expected_and_did_not_come_fails_its_row():
    """Pytest's own failures are no exceptions like others."""

    @each_row("number", [1])
    def test(number):
        with pytest.raises(ValueError, match="x"):
            pass

    with pytest.raises(BaseExceptionGroup, match="1 of 1 rows failed"):
        test()


def test_tables_above_each_other_give_all_pairs():
    """And rows may have a name; what is no name of the table stays an argument."""
    seen = []

    @each_row("left", ["a", pytest.param("b", id="second")])
    @each_row("right", range(2), ids=["zero", "one"])
    def test(self, left, right):
        seen.append(left + str(right))
        assert left == "a", self

    assert [*inspect.signature(test).parameters] == ["self"]
    with pytest.raises(BaseExceptionGroup) as raised:
        test(None)
    assert seen == ["a0", "a1", "b0", "b1"]
    assert raised.value.exceptions[0].__notes__ == ["row second"]
