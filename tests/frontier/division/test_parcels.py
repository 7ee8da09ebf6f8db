"""Links on their way to another share lose nothing."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.division.parcels import Consigned, packed, unpacked
from anabranch.frontier.records import Candidate

CANDIDATES = st.builds(
    Candidate,
    url=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    key=st.none() | st.binary(),
    hops=st.text("LREXSMP"),
    payload=st.none() | st.binary(),
    front=st.booleans(),
    force=st.booleans(),
    precedence=st.none() | st.integers(0, 255),
)


@given(st.lists(st.tuples(st.none() | st.text("ab\n/é"), st.lists(CANDIDATES, min_size=1)), min_size=1))
def test_what_is_unpacked_is_what_was_packed(pages: list[tuple[str | None, list[Candidate]]]) -> None:
    """Each field of each link, page by page, however contents are joined."""
    content = b"".join(packed(page, links) for page, links in pages)
    assert list(unpacked(content)) == [Consigned(page, links) for page, links in pages]


def test_a_plain_link_is_short() -> None:
    """What says nothing takes no room: there are many links."""
    assert packed("http://a/", [Candidate("http://b/", hops="L")]) == b'["http://a/",["http://b/","L"]]\n'
