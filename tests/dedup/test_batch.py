from hypothesis import given
from hypothesis import strategies as st

from anabranch.dedup.batch import first_of_each


@given(st.lists(st.integers(0, 5)))
def test_each_value_is_first_where_it_was_not_met_before(values: list[int]) -> None:
    """A value is first exactly where no earlier place holds it."""
    assert first_of_each(values).tolist() == [value not in values[:i] for i, value in enumerate(values)]
