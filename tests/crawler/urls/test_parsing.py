"""URLs: the canonical form, its parts, and seeds as people type them."""

from hypothesis import assume, given
from hypothesis import strategies as st

from anabranch.crawler.urls.parsing import MAX_URL_CHARS, authority_of, canonical, host_of, refusal, seed_url
from tests.rows import each_row

BASE = "http://a.test/b/c/d?q=1"


@each_row(
    ("raw", "expected"),
    [
        ("x", "http://a.test/b/c/x"),
        ("./x", "http://a.test/b/c/x"),
        ("../x", "http://a.test/b/x"),
        ("../../../../x", "http://a.test/x"),
        ("%2e%2E/x", "http://a.test/b/x"),
        ("x/..", "http://a.test/b/c/"),
        ("/x", "http://a.test/x"),
        ("//b.test/x", "http://b.test/x"),
        ("?p", "http://a.test/b/c/d?p"),
        ("?", "http://a.test/b/c/d?"),
        ("", "http://a.test/b/c/d?q=1"),
        ("#f", "http://a.test/b/c/d?q=1"),
        ("x#f?g", "http://a.test/b/c/x"),
        ("http:x", "http://a.test/b/c/x"),
        ("https:x", "https://x/"),
        (r"\x\y", "http://a.test/x/y"),
        (r"\\b.test\x?a\b", "http://b.test/x?a\\b"),
        ("  \t/x\n ", "http://a.test/x"),
        ("/x\ty\r\nz", "http://a.test/xyz"),
        ("/x y", "http://a.test/x%20y"),
        ("x:y/z", None),
        ("./x:y", "http://a.test/b/c/x:y"),
        ("/\0x\0", "http://a.test/%00x"),
    ],
)
def test_relative_references_resolve_as_in_a_browser(raw: str, expected: str | None) -> None:
    """WHATWG URL Standard: dots, queries, backslashes, white space, tabs and newlines."""
    assert canonical(raw, BASE) == expected


@each_row(
    ("raw", "expected"),
    [
        ("HTTP://A.Test", "http://a.test/"),
        ("http:a.test", "http://a.test/"),
        ("http:///a.test//x", "http://a.test//x"),
        ("http://a.test:80/", "http://a.test/"),
        ("https://a.test:443", "https://a.test/"),
        ("https://a.test:80", "https://a.test:80/"),
        ("http://a.test:0080/", "http://a.test/"),
        ("http://a.test:/", "http://a.test/"),
        ("http://a.test./", "http://a.test./"),
        ("http://bücher.test/ä?ö#ü", "http://xn--bcher-kva.test/%C3%A4?%C3%B6"),
        ("http://中国.test/", "http://xn--fiqs8s.test/"),
        ("http://ex%41mple.test/", "http://example.test/"),
        ("http://a.test/%7e%zz%2F%2f", "http://a.test/%7e%zz%2F%2f"),
        ("http://a.test/~b?c=%20+d&&e", "http://a.test/~b?c=%20+d&&e"),
        ("http://u:p@a.test/x@y", "http://a.test/x@y"),
        ("http://u@v:p@a.test:81?x@y", "http://a.test:81/?x@y"),
        ("http://@a.test/", "http://a.test/"),
        ("http://[2001:DB8::0:1]:8080/", "http://[2001:db8::1]:8080/"),
        ("http://u@[::1]/", "http://[::1]/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://a.test/#", "http://a.test/"),
        ("http://a.test/?", "http://a.test/?"),
        ("http://a.test/?b#c#d", "http://a.test/?b"),
    ],
)
def test_the_canonical_form_is_the_href_without_fragment_and_userinfo(raw: str, expected: str) -> None:
    """Case, default ports, hosts and encoding as the standard has them; nothing is changed beyond that."""
    assert canonical(raw) == expected


@each_row(
    "raw",
    ["javascript:void(0)", "JavaScript:x", "mailto:a@b.test", "data:text/html,x", "tel:1", "ftp://a.test/", "file:///x", "ws://a/",
     "blob:http://a.test/x", "about:blank", "http://", "http://a b/", "http://a.test:65536/", "http://[::1/", "http://a%00b/",
     "http://1.2.3.256/", "/x\ud800"],
)  # fmt: skip
def test_what_is_no_web_url_has_no_canonical_form(raw: str) -> None:
    """Other schemes, and what does not parse, also against a base."""
    assert canonical(raw, BASE) is None


@each_row(
    ("raw", "expected"),
    [
        ("/caf\udce9?\udcff", "http://a.test/caf%E9?%FF"),
        ("/é\udce9", "http://a.test/%C3%A9%E9"),
        ("http://b.test/\udc80", "http://b.test/%80"),
        ("http://b\udce9.test/", None),
        ("/\udce9\ud800", None),
    ],
)
def test_bytes_that_are_no_utf8_are_percent_encoded_one_by_one(raw: str, expected: str | None) -> None:
    """Header fields have them as surrogates. No host has any, and other surrogates stand for no byte."""
    assert canonical(raw, BASE) == expected


def test_a_relative_reference_alone_is_no_url() -> None:
    """Without a base there is nothing to resolve it against; a base that is none is no help."""
    assert canonical("/x") is None
    assert canonical("x", "y") is None


def test_urls_are_at_most_8192_characters_long() -> None:
    """The limit holds before and after percent-encoding."""
    start = "http://a.test/"
    longest = start + "x" * (MAX_URL_CHARS - len(start))
    assert canonical(longest) == longest
    assert canonical(longest + "x") is None
    assert canonical(start + "ä" * ((MAX_URL_CHARS - len(start)) // 6)) is not None
    assert canonical(start + "ä" * ((MAX_URL_CHARS - len(start)) // 6 + 1)) is None
    assert canonical(longest + "/../y") is None


PIECES = st.sampled_from(
    ["http:", "https:", "HTTP:", "javascript:", "/", "//", "\\", "?", "#", "@", ":", "80", "443", "..", ".", "%2e", "%", "%41",
     "[::1]", "[", "]", "a.test", "A.Test", "bücher", "xn--", "1.2", "0x7f", " ", "\t", "\n", "\0", "x", "u:p@", ";", "&", "ß",
     "\u200d"]
)  # fmt: skip
MESSY = st.lists(PIECES, max_size=12).map("".join)
RAW = st.one_of(
    MESSY, st.text(max_size=30), MESSY.map("http://a.test".__add__), st.text(max_size=20).map("http://".__add__)
)


@given(RAW, st.sampled_from([None, BASE, "https://[::1]:8443/x/"]))
def test_canonical_urls_are_their_own_canonical_form(raw: str, base: str | None) -> None:
    """canonical(canonical(x)) == canonical(x), alone and against any base; and the parts can be read."""
    url = canonical(raw, base)
    assume(url is not None)
    assert url is not None
    assert canonical(url) == url
    assert canonical(url, BASE) == url
    assert url.startswith(("http://", "https://"))
    assert "#" not in url
    assert "@" not in authority_of(url)
    assert authority_of(url).startswith(host_of(url))
    assert host_of(url) == host_of(url).lower() != ""


@each_row(
    ("url", "authority", "host"),
    [
        ("http://a.test/x:1/@", "a.test", "a.test"),
        ("http://a.test:81/", "a.test:81", "a.test"),
        ("http://[::1]/", "[::1]", "[::1]"),
        ("http://[2001:db8::1]:81/", "[2001:db8::1]:81", "[2001:db8::1]"),
        ("https://127.0.0.1:8443/?/", "127.0.0.1:8443", "127.0.0.1"),
    ],
)
def test_host_and_authority_are_read_off_the_url(url: str, authority: str, host: str) -> None:
    """The authority has the port if it is not the default one, the host never; brackets stay."""
    assert (authority_of(url), host_of(url)) == (authority, host)


@each_row(
    ("raw", "expected"),
    [
        ("www.a.test", "http://www.a.test/"),
        ("  www.a.test/x?y \n", "http://www.a.test/x?y"),
        ("https://a.test", "https://a.test/"),
        ("HTTPS://a.test", "https://a.test/"),
        ("localhost:8080", "http://localhost:8080/"),
        ("localhost:8080/x", "http://localhost:8080/x"),
        ("a.test:81?x", "http://a.test:81/?x"),
        ("127.0.0.1:8080/x", "http://127.0.0.1:8080/x"),
        ("[::1]:8080", "http://[::1]:8080/"),
        ("//a.test/x", "http://a.test/x"),
        ("a.test/x:y", "http://a.test/x:y"),
        ("bücher.test", "http://xn--bcher-kva.test/"),
        ("中国.test", "http://xn--fiqs8s.test/"),
        ("ht\ttps://a.test", "https://a.test/"),
        ("", None),
        ("ftp://a.test", None),
        ("mailto:a@b.test", None),
        ("javascript:x", None),
        ("javascript:1", None),
        ("mailto:1", None),
        ("two words", None),
        ("http//a.test", None),
        ("HTTPS//a.test/x", None),
        ("http;//a.test", None),
        ("http//bad one", None),
        ("a.test/two words", None),
        ("http://a.test/two words", "http://a.test/two%20words"),
        ("http.test/x", "http://http.test/x"),
        ("https:8080/x", "http://https:8080/x"),
        ("/etc/seeds", None),
        ("./seeds", None),
        ("+http://(test,a,", None),
        ("-x", None),
        ("http://", None),
        ("a.test:99999", None),
    ],
)
def test_a_seed_without_scheme_is_http(raw: str, expected: str | None) -> None:
    """People type hosts, with ports; other schemes, paths and directives are no seeds."""
    assert seed_url(raw) == expected


@each_row(
    ("raw", "words"),
    [
        ("javascript:1", "javascript: is neither http: nor https:"),
        (" JavaScript:void(0)", "javascript: is neither http: nor https:"),
        ("mailto:x", "mailto: is neither http: nor https:"),
        ("data:,", "data: is neither http: nor https:"),
        ("ftp://a.test/", "ftp: is neither http: nor https:"),
        ("a.test/" + "x" * 9000, "it has 9,007 characters, and a URL has at most 8,192"),
        ("http://a.test/", ""),
        ("a.test:80", ""),
        ("/etc", ""),
        ("http://", "it names no host"),
        ("http://user@:80/", "it names no host"),
        ("http://a.test:99999/", "the port 99999 is not between 0 and 65535"),
        ("a.test:65536", "the port 65536 is not between 0 and 65535"),
        ("https://[::1]:70000/x?y", "the port 70000 is not between 0 and 65535"),
        ("http://a.test:port/", "the port 'port' is not a number"),
        ("http://a b.test/", "the host 'a b.test' has a space"),
        ("http://a.test b.test", "the host 'a.test b.test' has a space"),
        ("two words", "the host 'two words' has a space"),
        ("http://[::1", "the IPv6 address [::1 has no closing bracket"),
        ("[::1/path", "the IPv6 address [::1 has no closing bracket"),
        ("http://[::zz]/", "'[::zz]' is no host or address"),
        ("http://999.1.1.1/", "'999.1.1.1' is no host or address"),
        ("http://%zz/", "'%zz' is no host or address"),
        ("http//a.test", ""),
        ("", ""),
    ],
)
def test_why_a_link_is_no_url_of_a_crawl_is_said(raw, words) -> None:
    """A text that is nonsense gets no reason."""
    assert refusal(raw) == words
