"""The candidates of an image, against the state machine of the standard."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.extracting.srcset import srcset_urls

SPACE = "\t\n\f\r "


def by_the_letter(text: str) -> list[str]:
    """The standard's steps, one character at a time, descriptors unjudged."""
    urls, position = [], 0
    while True:
        while position < len(text) and text[position] in SPACE + ",":
            position += 1
        if position == len(text):
            return urls
        start = position
        while position < len(text) and text[position] not in SPACE:
            position += 1
        url = text[start:position]
        if url.endswith(","):
            urls.append(url.rstrip(","))
            continue
        urls.append(url)
        in_parens = False
        while position < len(text):
            character = text[position]
            position += 1
            if in_parens:
                in_parens = character != ")"
            elif character == ",":
                break
            else:
                in_parens = character == "("


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("a", ["a"]),
        ("a 1x, b 2x", ["a", "b"]),
        ("a,b 2x", ["a,b"]),
        ("a, b", ["a", "b"]),
        ("data:image/png;base64,AAA= 1x, b", ["data:image/png;base64,AAA=", "b"]),
        ("a (x, y) 1x, b", ["a", "b"]),
        (" ,, a ,,b", ["a", "b"]),
        ("a,,, b", ["a", "b"]),
        ("", []),
        (" , ", []),
    ],
)
def test_commas_part_candidates_only_where_they_may(text, urls) -> None:
    """Not inside a URL, not inside parentheses."""
    assert list(srcset_urls(text)) == urls


@given(st.text(alphabet="ab, (),\t\n1x\u00a0", max_size=60))
def test_it_is_the_algorithm_of_the_standard(text) -> None:
    """On any text whatever."""
    assert list(srcset_urls(text)) == by_the_letter(text)


@pytest.mark.parametrize("piece", [",", "a,", "(", "a (", "a ,", "a 1x,", ",,a"])
def test_a_megabyte_is_read_once(piece) -> None:
    """No comma is looked at twice (else this test does not end)."""
    assert all(srcset_urls(piece * (1_000_000 // len(piece))))
