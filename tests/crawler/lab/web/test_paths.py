import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.lab.web.paths import Paths


@given(st.integers(0, 10**5), st.integers(1, 10**9), st.data())
def test_number_and_path_say_each_other(host: int, urls: int, data: st.DataObject) -> None:
    """Of any host of any size, also where the digits have to be ten."""
    number = data.draw(st.integers(0, urls - 1))
    paths = Paths(host, urls, data.draw(st.integers(1, urls)))
    assert paths.number(paths.url(number)) == number


@pytest.mark.parametrize("urls", [9_999_990, 9_999_991])
def test_no_two_numbers_share_a_path_where_the_digits_become_ten(urls: int) -> None:
    """The first and the last numbers of a host, just below the prime of seven digits and at it."""
    paths = Paths(3, urls, urls)
    numbers = [*range(1_000), *range(urls - 1_000, urls)]
    assert len({paths.url(number) for number in numbers}) == 2_000


def test_pages_and_embeds_look_like_those_of_portals() -> None:
    """Dated articles, lists and directories; pictures and style sheets."""
    paths = Paths(0, 4_000, 2_000)
    pages, embeds = (
        [paths.url(number) for number in range(1, 2_000)],
        [paths.url(number) for number in range(2_000, 4_000)],
    )
    assert {path.rpartition(".")[2].rpartition("/")[2] for path in pages} == {"html", "shtml", "htm", ""}
    assert {path.rpartition(".")[2] for path in embeds} == {"jpg", "gif", "css"}
    assert any(path.startswith("/2012/") for path in pages)


@given(st.text())
def test_any_other_text_is_no_path(text: str) -> None:
    """Unless it is the very path of the number that it says."""
    paths = Paths(1, 500, 400)
    number = paths.number(text)
    assert number is None or paths.url(number) == text
