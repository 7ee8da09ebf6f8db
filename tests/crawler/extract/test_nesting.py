"""The guard in front of the tree builder: honest documents pass, bombs are flattened, in linear work."""

import re

import pytest

from anabranch.crawler.extract.nesting import (
    HUGE_BYTES,
    LIGHT_BYTES,
    LIGHT_TAGS,
    MAX_BARE_BYTES,
    MAX_DISORDER,
    PIECE_BYTES,
    SMALL_BYTES,
    SMALL_TAGS,
    Disorder,
    is_light,
    tame,
)
from tests.rows import each_row

NEEDED = frozenset({b"a", b"frame", b"script", b"img"})
#: Enough to make a document large, without a tag.
TEXT = b"x" * (SMALL_BYTES + 1)
MANY = MAX_DISORDER + 1


def whole(document: bytes) -> bytes:
    return b"".join(tame(document, NEEDED))


def flattened(document: bytes) -> bytes:
    return whole(document + TEXT)


def is_untouched(document: bytes) -> bool:
    return flattened(document) == document + TEXT


def test_a_small_document_is_not_looked_at() -> None:
    """Below both sizes a document passes, however it is nested."""
    small = b"<div>" * SMALL_TAGS
    assert whole(small) == small


def test_many_start_tags_make_a_document_worth_a_look() -> None:
    """The size in bytes is not all: short tags do the same harm."""
    assert whole(b"<b>" * (SMALL_TAGS + 1) + b"<a href=x>") == b"<a href=x></a>"


def test_a_large_honest_document_is_not_touched() -> None:
    """Depth is measured, not length: what is closed costs nothing."""
    assert is_untouched(b"<div><p>one<p>two<ul><li>a<li>b</ul><br><img src=x></div>" * 5000)


@each_row(
    "bomb",
    [
        b"<div>" * MANY,
        b"<b id=1><p>" * MANY,
        b"<z>" * MANY + b"</z>" * MANY,
        b"</y>" * MANY,
        b"<b><i></b></i>" * MANY,
        b"<div/>" * MANY,
        b"<html>" * MANY,
        b"<svg><p></p><path/></svg>" + b"<path/>" * MANY,
        b"<svg><div></div>" + b"<path/>" * MANY,
        b"<svg><p>" + b"<path/>" * MANY,
    ],
    ids=lambda bomb: bomb[:20].decode(),
)
def test_what_stays_open_is_flattened(bomb: bytes) -> None:
    """More open elements or stray end tags than a browser would nest: only the needed tags stay, each closed."""
    assert flattened(b"<a href=1>" + bomb + b"<a href='2'>") == b"<a href=1></a><a href='2'></a>"


def test_the_limit_itself_is_allowed() -> None:
    """Exactly as many open elements as the limit are honest."""
    assert is_untouched(b"<div>" * MAX_DISORDER)
    assert not is_untouched(b"<div>" * (MAX_DISORDER + 1))


def test_self_closed_elements_of_svg_are_closed() -> None:
    """A drawing of many `<path/>` is an honest page; svg ends and begins again."""
    assert is_untouched(
        (b"<svg><cc:work></cc:work></svg><svg><g>" + b"<path d='M0'/>" * MANY + b"</g></svg><div></div>") * 3
    )


def test_a_bomb_of_attributes_is_dropped() -> None:
    """A tag with thousands of attributes is not given to the parser; a long quoted value is no such tag."""
    attributes = b" x".join(b"%d" % number for number in range(MAX_BARE_BYTES))
    assert flattened(b"<a x" + attributes + b"><a href=2>") == b"<a href=2></a>"
    assert is_untouched(b"<img src='" + b"a" * 2 * MAX_BARE_BYTES + b"'>")


def test_comments_and_raw_text_hold_no_tags() -> None:
    """Tags in a comment, a script or a title are text; comments end where the standard ends them."""
    document = (
        b"<!-- <a href=no> --><!--><a href=1><!---><a href=2><!-- --!><a href=3>"
        b"<script>'<a href=no>'</script><TITLE><a href=no></title><a href=4>"
    )
    assert flattened(b"<i>" * MANY + document) == (b"<a href=1></a><a href=2></a><a href=3></a><a href=4></a>")


def test_a_quote_counts_only_in_a_value() -> None:
    """A stray quote does not swallow the document; a > in a quoted value ends no tag."""
    document = b"""<a href="x"">one<a href='>'>two<a href = "3">"""
    assert flattened(b"<i>" * MANY + document) == b"""<a href="x""></a><a href='>'></a><a href = "3"></a>"""


def test_a_frame_becomes_an_iframe() -> None:
    """Outside a frameset a frame is no element to the parser."""
    assert flattened(b"<i>" * MANY + b"<FRAME src=x>") == b"<iframe src=x></iframe>"


@each_row("rest", [b"<a href='x", b"<a href=x", b"<script>", b"<!-- ", b"<", b'<a href="x">' + b"<a "])
def test_a_cut_document_ends_in_peace(rest: bytes) -> None:
    """A tag that the end cuts off is not a tag, and text that is never closed reaches to the end."""
    assert b"no" not in whole(TEXT + b"<i>" * MANY + rest + b"<a no")


@pytest.mark.parametrize("piece", [b"<a '", b'<a "', b"<!--", b'<a x="', b"<", b"<a =", b"= ", b"<title>", b"<a b='<"])
def test_a_megabyte_of_openings_is_read_once(piece: bytes) -> None:
    """Nothing is read again from each of a hundred thousand beginnings (else this test does not end)."""
    assert isinstance(whole(piece * (1_000_000 // len(piece))), bytes)


def test_disorder_counts_depth_and_misfits() -> None:
    """The measure is the deepest nesting plus the end tags that fit nothing."""
    disorder = Disorder()
    for name, closes in [(b"div", False), (b"b", False), (b"b", True), (b"i", True), (b"div", True), (b"p", True)]:
        disorder.note(name, closes=closes, closes_itself=False)
    assert disorder.peak == 2 + 1


def test_formatting_that_is_opened_again_and_again_is_flattened() -> None:
    """A few hundred open elements are honest; thousands of paragraphs that open them all again are not."""
    open_ones = b"".join(b"<b id=%d><p>" % number for number in range(400))
    assert flattened(open_ones + b"<a href=1>" + b"<p>" * 1000) == b"<a href=1></a>"
    assert is_untouched(b"".join(b"<b id=%d><p>" % number for number in range(100)))
    assert is_untouched(b"<p><b>one</b><i>two</i>" * 20_000)


def test_a_huge_document_comes_in_pieces() -> None:
    """Whatever is in it: memory does not grow with it. No tag is cut."""
    count = HUGE_BYTES // len(b"<a href=0000000>") + 1
    pieces = list(tame(b"".join(b"<a href=%07d>" % number for number in range(count)), NEEDED))
    assert len(pieces) >= HUGE_BYTES // PIECE_BYTES
    assert all(piece.startswith(b"<a ") and piece.endswith(b"</a>") for piece in pieces if piece)
    assert all(len(piece) < 2 * PIECE_BYTES for piece in pieces)
    assert sum(piece.count(b"<a ") for piece in pieces) == count


def test_a_flattened_style_keeps_its_content() -> None:
    """It has links, too."""
    document = b"<i>" * (SMALL_TAGS + 100) + b"<style>a{b:url(x)}</style>"
    assert b"".join(tame(document, frozenset({b"style"}))) == b"<style>a{b:url(x)}</style>"


def test_other_elements_are_kept_for_their_attributes() -> None:
    """Under a name that may stand anywhere: a cell without a table is dropped."""
    document = b"<i>" * (SMALL_TAGS + 100) + b"<td background=x><p class=y><a href=z>"
    kept = b"".join(tame(document, NEEDED, marked=re.compile(b"background=")))
    assert kept == b"<i background=x></i><a href=z></a>"


def test_documents_inside_keep_their_needed_tags() -> None:
    """Those of conditional comments and of frames' contents, one level deep."""
    document = (
        b"<!--[if IE]><a href=1><p><![endif]--><iframe src=no><a href=2></iframe><noembed><img src=3></noembed>"
        b"<noframes><noframes><a href=no></noframes><!-- <a href=no> --><a href=4>"
    )
    assert flattened(b"<i>" * MANY + document) == (b"<a href=1></a><a href=2></a><img src=3></img><a href=4></a>")


@pytest.mark.parametrize(
    "hidden", [b"<!--[if IE]><p a='-->", b"<noframes><p a='</noframes>", b"<iframe><!-- </iframe>"]
)
def test_a_document_inside_hides_no_disorder(hidden: bytes) -> None:
    """A quote or a comment that is opened in it ends with it, as for the tree builder."""
    assert flattened(hidden + b"<div>" * MANY + b"<a href=1>") == b"<a href=1></a>"


def test_comments_of_a_page_are_no_elements() -> None:
    """Conditional ones are looked into only where a page is flattened."""
    page = b"<!--[if IE]><p><![endif]-->" * (2 * MAX_DISORDER)
    assert len(page) > SMALL_BYTES
    assert list(tame(page, NEEDED)) == [page]


def test_light_documents_are_short_and_have_few_tags() -> None:
    """The two counts that are asked before anything else."""
    assert is_light(b"x" * LIGHT_BYTES)
    assert not is_light(b"x" * (LIGHT_BYTES + 1))
    assert is_light(b"<" * LIGHT_TAGS + TEXT[: LIGHT_BYTES - LIGHT_TAGS])
    assert not is_light(b"<" * (LIGHT_TAGS + 1) + b"x" * SMALL_BYTES)
