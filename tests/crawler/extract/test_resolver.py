"""The resolver answers as the parser does, is bounded in what it remembers, and keeps each URL once."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.crawler.extract.links import EMBED, INFERRED, NAVIGATION, Link, Reference
from anabranch.crawler.extract.resolver import (
    CHARS_A_LINK,
    NAMES,
    NO_LINK,
    PATHS,
    RESOLVED_A_KEPT,
    LinkResolver,
    Spelling,
    gathered,
    is_plain_name,
    is_plain_path,
    merged,
    origin_if_plain,
    urls_of,
)
from anabranch.crawler.urls.parsing import canonical
from tests.rows import each_row

ORIGIN = "http://a.test:81"
SPELLED_PIECES = st.sampled_from(
    ["/", "//", "a", "B-1", ".", "..", "a.", ":", "80", "%2e", "?", "q=1", "&", "'", "@x", "#f", "|", "ß", "\n", " ", "\\",
     "http:", "x/y.html", ORIGIN, f"{ORIGIN}/", "http://a.test:8", ""]
)  # fmt: skip
SPELLED_TEXTS = st.lists(st.lists(SPELLED_PIECES, max_size=5).map("".join), min_size=1, max_size=5)


@given(SPELLED_TEXTS)
@example(["a?"])
@example(["/?"])
@pytest.mark.parametrize(
    ("spelling", "is_plain"), [(PATHS, is_plain_path), (NAMES, is_plain_name), (urls_of(ORIGIN), origin_if_plain)]
)
def test_many_are_plain_only_if_each_is(spelling: Spelling, is_plain, texts: list[str]) -> None:
    """Whatever they hold, line ends and nothing at all included."""
    if spelling.are_plain(texts):
        assert all(spelling.begins(text) and is_plain(text) for text in texts)


@given(SPELLED_TEXTS)
@example(["a?"])
@example(["/?"])
@pytest.mark.parametrize(("spelling", "place"), [(PATHS, ORIGIN), (NAMES, f"{ORIGIN}/b/"), (urls_of(ORIGIN), "")])
def test_behind_its_place_each_is_what_parsing_makes_of_it(spelling: Spelling, place: str, texts: list[str]) -> None:
    """So nobody need parse them."""
    if spelling.are_plain(texts):
        assert [place + text for text in texts] == [canonical(text, f"{ORIGIN}/b/c?d/e") for text in texts]


@given(SPELLED_TEXTS)
def test_a_text_begins_in_one_way(texts: list[str]) -> None:
    """So each is looked at once."""
    for text in texts:
        assert sum(spelling.begins(text) for spelling in (PATHS, NAMES, urls_of(ORIGIN))) <= 1


@pytest.mark.parametrize(
    ("spelling", "texts"),
    [
        (PATHS, ["/", "/a/b.html", "/a:b/?c=d/e", "/a//b"]),
        (NAMES, ["a.html", "b/c/", "_d?e"]),
        (urls_of(ORIGIN), [f"{ORIGIN}/", f"{ORIGIN}/a;b?c@d"]),
    ],
)
def test_usual_ones_are_plain(spelling: Spelling, texts: list[str]) -> None:
    """They are what sites are made of."""
    assert spelling.are_plain(texts)


@pytest.mark.parametrize(
    ("spelling", "odd"),
    [
        (PATHS, ["//b.test/", "/a/../b", "/a/.b", "/%41", "/a#b", "/ä", "/a b", "/a\n/b", "", "a"]),
        (NAMES, ["", "a:b", "/a", ".a", "..", "?a", "a/./b", "a\nb", "a#"]),
        (urls_of(ORIGIN), [ORIGIN, "http://a.test/", "http://a.test:812/", f"{ORIGIN}/a\n{ORIGIN}/b", f"{ORIGIN}/.."]),
    ],
)
def test_one_odd_one_is_enough(spelling: Spelling, odd: list[str]) -> None:
    """The others are looked at one by one then."""
    plain = {PATHS: "/x", NAMES: "x"}.get(spelling, f"{ORIGIN}/x")
    assert spelling.are_plain([plain])
    assert not any(spelling.are_plain([plain, text, plain]) for text in odd)


PIECES = st.sampled_from(
    ["http:", "https:", "HTTP:", "javascript:", "/", "//", "\\", "?", "#", "@", ":", "80", "443", "..", ".", "%2e", "%", "%41",
     "[::1]", "[", "]", "a.test", "A.Test", "bücher", "xn--", "1.2", "0x7f", " ", "\t", "\n", "\0", "x", "u:p@", ";", "&", "ß",
     "\u200d"]
)  # fmt: skip
MESSY = st.lists(PIECES, max_size=12).map("".join)
RAW = st.one_of(
    MESSY, st.text(max_size=30), MESSY.map("http://a.test".__add__), st.text(max_size=20).map("http://".__add__)
)

BASES = ["http://a.test/", "http://a.test/b/c?d/e", "http://a.test/b/f", "https://a.test/b/f", "http://a.test/b/f?g",
         "http://a.test:81/b/", "http://b.test/b/c", "https://[::1]/b//"]  # fmt: skip


def resolved(resolver: LinkResolver, base: str, texts: list[str]) -> list[str | None]:
    """Their URLs; None for those that have none."""
    links = resolver.resolve(base, [(text, NAVIGATION, "a/@href") for text in texts])
    assert all(link is NO_LINK or link[1:] == (NAVIGATION, "a/@href") for link in links)
    return [link.url or None for link in links]


@given(st.lists(st.tuples(st.sampled_from(BASES), st.lists(RAW, max_size=8)), max_size=12))
def test_the_resolver_answers_as_canonical_does(pages: list[tuple[str, list[str]]]) -> None:
    """Whatever it remembers, in whatever order pages come: the answers are those of a fresh parse."""
    resolver = LinkResolver(max_entries=20)
    for base, links in pages:
        for _ in range(2):
            assert resolved(resolver, base, links) == [canonical(link, base) for link in links]


ORIGINS = ["http://a.test", "https://a.test:81", "http://a.test:80", "http://1.2", "http://127.0.0.1", "https://[::1]:8",
           "http://a..test", "http://xn--a", "http://a.test:", "http://0x7f"]  # fmt: skip
PARTS = st.sampled_from(
    [
        "/",
        "/a",
        "/B-1",
        "/.",
        "/..",
        "/...",
        "/.a",
        "/a.",
        "/a..",
        "/%2e",
        "?",
        "?q=1",
        "&a=/../",
        "'",
        ":80",
        "@x",
        "//",
        "|",
        "^",
    ]
)


@given(
    st.lists(st.builds(str.__add__, st.sampled_from(ORIGINS), st.lists(PARTS, max_size=5).map("".join)), max_size=20)
)
def test_a_url_that_needs_no_parsing_is_what_parsing_makes_of_it(links: list[str]) -> None:
    """Whatever origin it has, and whatever was met of that origin before."""
    resolver = LinkResolver(max_entries=10)
    for link in links:
        assert resolved(resolver, "http://b.test/", [link]) == [canonical(link)]


def test_urls_of_a_known_origin_are_not_parsed_if_they_can_only_be_written_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a large site most links are new to the resolver, and nearly all of them plain."""
    resolver = LinkResolver()
    resolved(resolver, "http://b.test/", ["http://a.test:81/"])
    monkeypatch.delattr("anabranch.crawler.extract.resolver.canonical")
    plain = ["http://a.test:81/x/y.html", "http://a.test:81/x?a=b&c=d"]
    assert resolved(resolver, "http://b.test/", plain) == plain


BEHIND = st.sampled_from(
    ["/", "//", "a", "B-1", ".", "..", "a.", "a:", "1", ":80", "%2e", "?", "?q=1", "&a=/../", "'", "@x", "|", "^", "http:",
     "x/y"]
)  # fmt: skip


@given(st.sampled_from(BASES), st.lists(st.lists(BEHIND, max_size=5).map("".join), max_size=20))
def test_a_reference_that_needs_no_parsing_is_what_parsing_makes_of_it(base: str, links: list[str]) -> None:
    """A path stands behind the page's origin, a name behind its directory."""
    assert resolved(LinkResolver(), base, links) == [canonical(link, base) for link in links]


def test_plain_paths_and_names_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are most links of most sites. What may be a scheme, another host, or a step upwards is parsed."""
    monkeypatch.setattr("anabranch.crawler.extract.resolver.canonical", lambda raw, base=None: "http://parsed.test/")
    plain = ["/", "/x/y.html?a=b/../", "y.html", "y/z:1/?p", "_1?p"]
    assert resolved(LinkResolver(), "http://a.test/1/a?b/c", plain) == [
        "http://a.test/",
        "http://a.test/x/y.html?a=b/../",
        "http://a.test/1/y.html",
        "http://a.test/1/y/z:1/?p",
        "http://a.test/1/_1?p",
    ]
    odd = ["//b.test/", "y:z", "/x/..", "/x/.y", "..", ".", "?p", "#f", "/x#f", "/%41", "/ä", "y z", "\\x", ""]
    assert resolved(LinkResolver(), "http://a.test/1/a", odd) == ["http://parsed.test/"] * len(odd)


@each_row("link", ["", "?p", "#f", " ?p", "\t", "http:", "HTTPS:?p", "h\nttp:#f"])
def test_a_link_that_shows_the_whole_base_is_not_remembered(link: str) -> None:
    """Two pages of one directory give it two meanings."""
    resolver = LinkResolver()
    for base in ("https://a.test/b/1?x", "https://a.test/b/2", "http://a.test/b/1", "http://a.test/b/2?y"):
        assert resolved(resolver, base, [link]) == [canonical(link, base)]


def test_a_known_link_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute links are known to the whole origin, relative ones to their directory."""
    parsed: list[str] = []

    def counted(raw: str, base: str | None = None) -> str | None:
        parsed.append(raw)
        return canonical(raw, base)

    monkeypatch.setattr("anabranch.crawler.extract.resolver.canonical", counted)
    resolver = LinkResolver()
    links = ["/./x", "http://b.test/", "mailto:a", "./y"]
    resolved(resolver, "http://a.test/1/a", links)
    assert resolved(resolver, "http://a.test/1/b?c/d", links)[3] == "http://a.test/1/y"
    assert sorted(parsed) == sorted(links)
    assert resolved(resolver, "http://a.test/2/", links)[3] == "http://a.test/2/y"
    assert parsed[4:] == ["mailto:a", "./y"]


def test_an_absolute_link_is_known_on_every_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """It means the same everywhere, and so does that it is none."""
    resolver = LinkResolver()
    links = ["http://c.test/x/../y", "https://c.test/", "http://["]
    answers = resolved(resolver, "http://a.test/1/a", links)
    monkeypatch.delattr("anabranch.crawler.extract.resolver.canonical")
    assert answers == resolved(resolver, "https://b.test/2/b?x", links) == ["http://c.test/y", "https://c.test/", None]


def test_the_resolver_is_bounded() -> None:
    """Neither many links, nor many directories, nor long links make it grow past its limit and one page."""
    resolver = LinkResolver(max_entries=10)
    for _ in range(8):  # of plain ones those of one call in eight are kept
        resolved(resolver, "http://a.test/", [str(number) for number in range(100)])
    assert len(resolver) == 10
    for number in range(100):
        resolved(resolver, f"http://a.test/{number}/", ["?x"])
        assert len(resolver) <= 11
    kept = len(resolver)
    resolved(
        resolver,
        "http://a.test/99/",
        ["x" * (LinkResolver.MAX_KEPT_CHARS + 1), "ä" * (LinkResolver.MAX_KEPT_CHARS // 3)],
    )
    resolver.resolve("http://a.test/99/", [("/y", INFERRED, f"Link rel={'next ' * 5000}")])
    assert len(resolver) == kept


def test_what_a_mixed_page_has_of_each_kind_is_kept_once() -> None:
    """Some links are kept by origin, some by directory, some for all; who asks again does not fill the room."""
    resolver = LinkResolver()
    page = 2 * [*(f"http://a.test/{number}" for number in range(5)), *(f"/{number}" for number in range(5))]
    for _ in range(40):
        resolved(resolver, "http://a.test/x/", page)
    assert len(resolver) == len(page) // 2 + 2  # and the origin and the directory


def test_what_stands_on_every_page_is_kept_soon() -> None:
    """Whatever else is new on each, and however that is written."""
    resolver, everywhere = LinkResolver(), [f"http://a.test/{number}" for number in range(5)]
    for page in range(8):
        resolved(resolver, "http://a.test/x/", everywhere + [f"/{page}/{number}" for number in range(5)])
    references = [(text, NAVIGATION, "a/@href") for text in everywhere]
    first, second = (resolver.resolve("http://a.test/x/", references) for _ in range(2))
    assert all(one is other for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("begin", ["", "/", "http://a.test/"])
def test_plain_ones_that_are_too_long_are_no_links(begin: str) -> None:
    """Though there are many, and nothing in them is odd."""
    long = [begin + str(number) + "x" * 8200 for number in range(9)]
    assert resolved(LinkResolver(), "http://a.test/", long) == [canonical(text, "http://a.test/") for text in long]
    assert canonical(long[0], "http://a.test/") is None


@pytest.mark.parametrize("place", ["http://a.test/{}/", "http://{}.test/"])
def test_long_links_and_directories_are_bounded_by_their_bytes(place: str) -> None:
    """A site that makes every link and every directory as long as it may does not get more memory for it."""
    resolver = LinkResolver(max_bytes=100_000)
    for number in range(1000):
        directory = place.format(str(number) + "x" * 400)
        resolved(resolver, directory, [f"{number}-{link}-" + "y" * 50 for link in range(10)])
        assert resolver.held_bytes < 102_000


def test_a_directory_that_is_too_long_is_not_remembered() -> None:
    """Its links are resolved all the same; what is of its origin is kept."""
    resolver = LinkResolver()
    base = "http://a.test/" + "d" * LinkResolver.MAX_KEPT_CHARS + "/"
    resolved(resolver, "http://a.test/", ["/x"])
    kept = len(resolver)
    for number in range(10):
        assert resolved(resolver, base, ["../y", "/x"]) == ["http://a.test/y", "http://a.test/x"], number
    assert len(resolver) == kept


@pytest.mark.parametrize("text", ["http://a.test/x", "/x", "x"])
def test_a_link_has_the_hop_and_the_context_of_its_reference(text: str) -> None:
    """One text may occur in several places of a page; a link that is met again is the same object."""
    resolver = LinkResolver()
    references = [(text, NAVIGATION, "a/@href"), (text, EMBED, "img/@src"), (text, NAVIGATION, "area/@href")]
    links = resolver.resolve("http://a.test/", references)
    assert links == [Link("http://a.test/x", hop, context) for _, hop, context in references]
    again = resolver.resolve("http://a.test/", references)
    assert all(one is other for one, other in zip(links, again, strict=True))


BASE = "http://a.test/"
LONG_BASE = f"http://a.test/{'x' * 8000}/"


def references(*texts: str) -> list[Reference]:
    return [(text, NAVIGATION, "a/@href") for text in texts]


def test_each_url_is_a_link_once_and_the_first_hop_wins() -> None:
    """However it is written."""
    found = [("b", EMBED, "img/@src"), ("/b#x", NAVIGATION, "a/@href"), ("mailto:x", NAVIGATION, "a/@href")]
    assert gathered(found, BASE, 10, LinkResolver()) == ([Link("http://a.test/b", EMBED, "img/@src")], 0)


TEXTS = st.sampled_from(["b", "/b#x", "http://a.test/b", "?q", "mailto:x", "http://["])
PLACES = st.sampled_from([(NAVIGATION, "a/@href"), (NAVIGATION, "area/@href"), (EMBED, "img/@src")])
GATHERED_BASES = st.sampled_from([BASE, "http://a.test/d/e?f", "http://a.test/d/g", "http://b.test/d/"])
PAGE = st.tuples(GATHERED_BASES, st.lists(st.tuples(TEXTS, PLACES), min_size=1, max_size=6))


@given(st.lists(PAGE, min_size=2, max_size=8))
def test_pages_before_make_no_difference(pages: list[tuple[str, list[tuple[str, tuple[str, str]]]]]) -> None:
    """The links of a page are its references parsed one by one, whatever is remembered, and shared, of other pages."""
    resolver = LinkResolver(max_entries=30)
    for base, written in pages:
        found = [(text, hop, context) for text, (hop, context) in written]
        expected: dict[str, Link] = {}
        for text, hop, context in found:
            if (url := canonical(text, base)) is not None:
                expected.setdefault(url, Link(url, hop, context))
        for _ in range(2):
            assert gathered(found, base, 100, resolver) == (list(expected.values()), 0)


def test_what_is_too_much_is_counted_by_its_spelling() -> None:
    """The first so many are links."""
    links, dropped = gathered(references(*map(str, range(1000))), BASE, 10, LinkResolver())
    assert [link.url for link in links] == [f"{BASE}{number}" for number in range(10)]
    assert dropped == 990


def test_a_long_base_does_not_make_much_of_little() -> None:
    """Six thousand short links under a base of 8,000 characters would be 48 MB, a quarter of a second of the loop's time."""
    links, dropped = gathered(references(*map(str, range(6000))), LONG_BASE, 6000, LinkResolver())
    assert sum(len(link.url) for link in links) < 2 * 6000 * CHARS_A_LINK
    assert len(links) + dropped == 6000


def test_links_that_are_none_or_all_the_same_do_not_cost_more(monkeypatch) -> None:
    """A reference that has to be parsed costs as much as its base is long, whatever comes of it."""
    parsed = []
    monkeypatch.setattr("anabranch.crawler.extract.resolver.canonical", lambda link, base: parsed.append(link))
    for text in ("mailto:{}", "?{}"):
        parsed.clear()
        gathered(references(*(text.format(number) for number in range(50_000))), LONG_BASE, 6000, LinkResolver())
        assert len(parsed) * len(LONG_BASE) < 1.5 * RESOLVED_A_KEPT * 6000 * CHARS_A_LINK


def test_links_of_usual_length_are_all_taken() -> None:
    """Six thousand of a hundred characters, each twice."""
    texts = [f"/{number:0100}" for number in range(6000) for _ in range(2)]
    links, _ = gathered(references(*texts), BASE, 6000, LinkResolver())
    assert len(links) == 6000


def test_the_links_of_the_header_come_first() -> None:
    """Each URL once."""
    header, body = [Link("http://a.test/1", "R")], [Link("http://a.test/1", "L"), Link("http://a.test/2", "L")]
    assert merged(header, body) == [header[0], body[1]]


def test_references_that_lead_to_few_urls_are_resolved_up_to_a_length() -> None:
    """Each of these makes a URL of 8,000 characters again, in 20 µs; the rest is only counted."""
    base = f"http://a.test/{'d' * 8000}/"
    references = [(f"#{number}", "L", "a/@href") for number in range(1000)]
    links, dropped = gathered(references, base, 10, LinkResolver())
    assert ([link.url for link in links], dropped) == ([base], 1000 - 256)
