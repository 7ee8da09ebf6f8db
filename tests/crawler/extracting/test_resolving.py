"""References: the resolver answers as the parser does, and is bounded in what it remembers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.extracting.links import EMBED, INFERRED, NAVIGATION, Link
from anabranch.crawler.extracting.resolving import NO_LINK, LinkResolver
from anabranch.crawler.urls.parsing import canonical

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
    monkeypatch.delattr("anabranch.crawler.extracting.resolving.canonical")
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
    monkeypatch.setattr(
        "anabranch.crawler.extracting.resolving.canonical", lambda raw, base=None: "http://parsed.test/"
    )
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


@pytest.mark.parametrize("link", ["", "?p", "#f", " ?p", "\t", "http:", "HTTPS:?p", "h\nttp:#f"])
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

    monkeypatch.setattr("anabranch.crawler.extracting.resolving.canonical", counted)
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
    monkeypatch.delattr("anabranch.crawler.extracting.resolving.canonical")
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
    """The same text may stand in several places of a page; a link that is met again is the same object."""
    resolver = LinkResolver()
    references = [(text, NAVIGATION, "a/@href"), (text, EMBED, "img/@src"), (text, NAVIGATION, "area/@href")]
    links = resolver.resolve("http://a.test/", references)
    assert links == [Link("http://a.test/x", hop, context) for _, hop, context in references]
    again = resolver.resolve("http://a.test/", references)
    assert all(one is other for one, other in zip(links, again, strict=True))
