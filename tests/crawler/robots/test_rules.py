"""Lines and groups of robots.txt: who is spoken to, and what is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.robots.rules import (
    ALLOW_ALL,
    DISALLOW_ALL,
    MAX_LINE_OCTETS,
    MAX_ROBOTS_BYTES,
    MAX_SITEMAPS,
    RobotsRules,
    agent_of,
    explain_rules,
    lines_of,
    parse_robots,
    path_of,
)
from tests.rows import each_row


def rules(text: str | bytes, product: str = "FooBot") -> RobotsRules:
    return parse_robots(text if isinstance(text, bytes) else text.encode(), product)


def allowed(text: str | bytes, *paths: str, product: str = "FooBot") -> list[bool]:
    """Return whether each path is allowed, in order."""
    found = rules(text, product)
    return [found.allows(f"http://foo.bar{path}") for path in paths]


def explain(body: bytes, url: str, product: str, *, is_cut: bool = False) -> list[str]:
    return explain_rules(parse_robots(body, product, is_cut=is_cut), url, body)


# The mistakes of others


def test_a_longer_sibling_does_not_hide_the_rule_for_everything() -> None:
    """Heritrix looks at the rule that sorts next to the path, and so lets `/blog` pass."""
    assert allowed("User-agent: *\nDisallow: /\nDisallow: /admin\n", "/blog", "/admin/x", "/") == [False] * 3
    assert allowed("User-agent: *\nDisallow: /private\nDisallow: /private/x\n", "/private/z", "/public") == [
        False,
        True,
    ]


def test_an_agent_matches_in_whatever_case_either_is_written() -> None:
    """Heritrix writes the groups' names small, but not its own."""
    for name in ("MyBot", "mybot", "MYBOT"):
        assert allowed(f"User-agent: {name}\nDisallow: /\n", "/", product="MyBot") == [False]
        assert allowed(f"User-agent: {name}\nDisallow: /\n", "/", product="mybot") == [False]


def test_a_group_speaks_to_a_whole_product_only() -> None:
    """Not to every crawler whose User-agent contains the name somewhere, nor to one whose name begins with it."""
    text = "User-agent: foo\nDisallow: /\n"
    assert allowed(text, "/", product="foo") == [False]
    for other in ("foobar", "barfoo", "fo", "foo-bar", "foo_bar", "foo.bar"):
        assert allowed(text, "/", product=other) == [True]


# Groups (RFC 9309, 2.1 and 2.2.1)

GROUPS = """\
allow: /foo/bar/

user-agent: FooBot
disallow: /
allow: /x/
user-agent: BarBot
disallow: /
allow: /y/


allow: /w/
user-agent: BazBot

user-agent: FooBot
allow: /z/
disallow: /
"""


def test_groups_of_one_agent_are_one_group() -> None:
    """Rules outside any group are nobody's; empty lines end nothing; agents in a row share what follows."""
    paths = ("/x/b", "/z/d", "/y/c", "/w/a", "/foo/bar/")
    assert allowed(GROUPS, *paths) == [True, True, False, False, False]
    assert allowed(GROUPS, *paths, product="BarBot") == [False, False, True, True, False]
    assert allowed(GROUPS, *paths, product="BazBot") == [False, True, False, False, False]
    assert allowed(GROUPS, *paths, product="QuxBot") == [True] * 5


def test_the_products_own_group_speaks_alone() -> None:
    """The group of `*` is only for those who have none of their own, wherever it stands, and however little theirs says."""
    text = "User-agent: *\nDisallow: /x/\nUser-agent: FooBot\nDisallow: /y/\nUser-agent: *\nDisallow: /z/\n"
    assert allowed(text, "/x/p", "/y/p", "/z/p") == [True, False, True]
    assert allowed(text, "/x/p", "/y/p", "/z/p", product="other") == [False, True, False]
    assert allowed("User-agent: *\nDisallow: /\nUser-agent: FooBot\n", "/") == [True]
    assert allowed("User-agent: *\nDisallow: /\nUser-agent: FooBot\nDisallow:\n", "/") == [True]


def test_without_a_group_for_it_nothing_is_forbidden() -> None:
    """An empty file, and one that speaks to others."""
    assert allowed("", "/") == allowed("User-agent: BarBot\nDisallow: /\n", "/") == [True]
    assert rules("").group == rules("User-agent: BarBot\nDisallow: /\n").group == ""


@each_row(
    "line", ["Sitemap: http://foo.bar/s.xml", "Host: foo.bar", "Crawl-delay: 5", "Request-rate: 1/5", "what: ever", "x"]
)
def test_a_line_that_is_no_rule_ends_no_group(line: str) -> None:
    """Neither the list of its agents nor its rules (RFC 9309, 2.2.4)."""
    assert allowed(f"User-agent: FooBot\n{line}\nUser-agent: BarBot\nDisallow: /\n", "/") == [False]
    assert allowed(f"User-agent: FooBot\nAllow: /a\n{line}\nDisallow: /\n", "/", "/a") == [False, True]


def test_an_empty_rule_ends_the_list_of_agents() -> None:
    """`Disallow:` is a rule that forbids nothing; the next agent begins a group of its own."""
    assert allowed("User-agent: FooBot\nDisallow:\nUser-agent: BarBot\nDisallow: /\n", "/") == [True]


@each_row(
    ("value", "agent"),
    [
        ("FooBot", "foobot"),
        ("foo bar", "foo"),
        ("Foo/2.1 (x)", "foo"),
        ("foo2", "foo2"),
        ("*", "*"),
        ("* x", "*"),
        ("*foo", ""),
        ("", ""),
        ("ツ", ""),
        ("foo*", "foo"),
    ],
)
def test_an_agent_is_the_product_token_of_its_line(value: str, agent: str) -> None:
    """Without version, comment or what else stands behind it; a star with a tail is everybody."""
    assert agent_of(value) == agent


# Lines


def test_names_are_read_in_any_case() -> None:
    """Values of rules are not."""
    for text in ("USER-AGENT: F\nALLOW: /x/\nDISALLOW: /\n", "uSeR-aGeNt: F\naLLoW: /x/\ndIsAllOw: /\n"):
        assert allowed(text, "/x/y", "/a/b", "/X/y", product="f") == [True, False, False]


@each_row(
    "text",
    [
        "user-agent FooBot\ndisallow /\n",
        "useragent: FooBot\ndissallow: /\n",
        "user agent: FooBot\ndissalow: /\n",
        "User-agent\t:\tFooBot\nDisalow:/\n",
        "  User-Agents: FooBot  \n\tDiasllow:\t/ \n",
        "user-agent: FooBot # us\ndisallaw: / # everything\n",
        "user-agent: FooBot/1.0\ndisallow : /\n",
    ],
)
def test_what_is_written_wrong_but_meant_clearly_is_obeyed(text: str) -> None:
    """A forgotten colon, the misspellings that Google takes, blanks, a version."""
    assert allowed(text, "/x") == [False]


@each_row(
    "text",
    [
        "foo: FooBot\nbar: /\n",
        "user agent FooBot\ndisallow: /\n",
        "user-agent: FooBot\ndisallow / now\n",
        "user-agent: FooBot\n: /\n",
        "user-agent: FooBot\ndisallow: x\n",
        "user-agent: FooBot\ndisallow: http://foo.bar/\n",
        "user-agent: FooBot\n#disallow: /\n",
        "disallow: /\n",
    ],
)
def test_what_makes_no_sense_says_nothing(text: str) -> None:
    """Without a colon a line is two words; a rule begins at the root or with a star, and belongs to somebody."""
    assert allowed(text, "/x") == [True]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_lines_end_with_lf_cr_or_both(end: str) -> None:
    """And are counted alike; the last need not end at all. Other breaks that Python knows are none."""
    text = end.join(["User-agent: FooBot", "Allow: /a", "User-agent: bar", "", "", "Disallow: /"]).encode()
    assert [line.number for line in lines_of(text)] == [1, 2, 3, 6]
    assert [line.number for line in lines_of(b"Allow: /\n\r\n\rAllow: /\x0b\x85\n")] == [1, 4]
    assert allowed("User-agent: *\nDisallow: /a\x0bb\n", "/a", "/a%0Bb") == [True, False]


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\xef\xbb", b"\xef"])
def test_a_byte_order_mark_does_not_hide_the_first_line(mark: bytes) -> None:
    """Whole or cut; anything else in front of a name spoils its line, and a mark elsewhere is none."""
    text = b"User-agent: FooBot\nDisallow: /\n"
    assert allowed(mark + text, "/") == [False]
    assert allowed(b"\xef\x11\xbf" + text, "/") == [True]
    assert allowed(b"User-agent: FooBot\n" + mark + b"Disallow: /\n", "/") == [True]


def test_octets_that_are_no_text_spoil_only_their_own_line() -> None:
    """Octets that are not UTF-8 stand for themselves in a rule; a NUL ends its line, as in Google's parser."""
    text = b"User-agent: FooBot\nDisallow: /\xff\xfe\nDis\x00allow: /a\nDisallow: /n\x00\nDisallow: /b\n"
    assert allowed(text, "/%FF%FE", "/%FF", "/a", "/n", "/n%00", "/b") == [False, True, True, False, False, False]


def test_what_stands_behind_a_nul_is_not_read() -> None:
    """Neither the rest of a rule nor another name; the next line is."""
    text = b"User-agent: FooBot\nDisallow: /a\0b\nDisallow: /c\0\0#\nAllow\0: /\nDisallow: /d\n"
    assert allowed(text, "/ax", "/a", "/cx", "/d", "/e") == [False, False, False, False, True]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_utf_16_with_a_byte_order_mark_is_decoded(encoding: str, end: str) -> None:
    """Editors save files so; without decoding nothing would be forbidden."""
    text = f"\ufeffUser-agent: FooBot{end}Disallow: /a{end}Disallow: /\u00e4{end}"
    assert allowed(text.encode(encoding), "/a", "/%C3%A4", "/b") == [False, False, True]
    assert allowed(text.encode(encoding) + b"\0", "/a") == [False]


def test_of_a_long_line_only_the_beginning_is_read() -> None:
    """16,663 octets, the name with them."""
    assert MAX_LINE_OCTETS == 16_663
    head = "Disallow: /x/"
    long = "a" * (MAX_LINE_OCTETS - len(head))
    text = f"User-agent: FooBot\n{head}{long}/qux\n"
    assert allowed(text, f"/x/{long}/fux", f"/x/{long[1:]}", "/fux") == [False, True, True]


# The limit of 500 KiB


def padded(tail: bytes, size: int) -> bytes:
    """A file in which `tail` ends at this octet."""
    head = b"User-agent: *\n"
    return head + b"#" * (size - len(head) - len(tail) - 1) + b"\n" + tail


def test_the_first_500_kib_are_read_to_the_last_line() -> None:
    """A rule that ends at the limit counts, whatever follows."""
    body = padded(b"Disallow: /a\n", MAX_ROBOTS_BYTES)
    assert allowed(body, "/a") == [False]
    assert allowed(body + b"Disallow: /b\n", "/a", "/b") == [False, True]


def test_the_line_in_which_the_limit_falls_is_not_read() -> None:
    """Half a rule is another rule: `Disallow: /a/b` must not become `Disallow: /`."""
    body = padded(b"Disallow: /a\nDisallow: /b/c\n", MAX_ROBOTS_BYTES + 3)
    assert allowed(body, "/a", "/b", "/b/c") == [False, True, True]
    whole = padded(b"Disallow: /a", MAX_ROBOTS_BYTES)
    assert allowed(whole, "/a") == [False], "a file that ends at the limit is whole"
    assert allowed(b"User-agent: *\nDisallow: /" + b"a" * MAX_ROBOTS_BYTES, "/aa") == [True]


def test_a_body_that_was_cut_loses_its_last_line() -> None:
    """Whoever fetched it read no further."""
    body = b"User-agent: *\nDisallow: /a\nDisallow: /"
    assert parse_robots(body, "x").allows("http://foo.bar/") is False
    cut = parse_robots(body, "x", is_cut=True)
    assert (cut.allows("http://foo.bar/"), cut.allows("http://foo.bar/a")) == (True, False)


# What else is said


@each_row(
    ("lines", "delay_s"),
    [
        ("Crawl-delay: 3", 3.0),
        ("crawl-delay:2.5", 2.5),
        ("Crawl-delay: .5", 0.5),
        ("Crawl-delay: 0", 0.0),
        ("Crawl-delay: 10s", 10.0),
        ("Crawl-delay: 2\nDisallow: /\nCrawl-delay: 9\nCrawl-delay: 4", 9.0),
        ("Crawl-delay: soon", None),
        ("Crawl-delay: -1", None),
        ("Crawl-delay: 1e9", None),
        ("Crawl-delay: inf", None),
        ("Crawl-delay: nan", None),
        ("Crawl-delay: 99999999999999", None),
        ("Crawl-delay: 1.2.3", None),
        ("Crawl-delay: ٣", None),
        ("Crawl-delay:", None),
        ("Request-rate: 1/10", None),
    ],
)
def test_the_crawl_delay_is_the_longest_that_is_a_number_of_seconds(lines: str, delay_s: float | None) -> None:
    """Decimals count; what is no number, or one beyond all sense, says nothing. Request-rate is not read."""
    assert rules(f"User-agent: FooBot\n{lines}\n").crawl_delay_s == delay_s


def test_the_crawl_delay_is_that_of_the_products_group() -> None:
    """A product without a group has the delay of `*`. A delay of another group or before all groups does not count."""
    text = "Crawl-delay: 7\nUser-agent: *\nCrawl-delay: 5\nDisallow: /x\nUser-agent: BarBot\nDisallow: /\n"
    assert (rules(text).crawl_delay_s, rules(text, "BarBot").crawl_delay_s) == (5.0, None)
    assert ALLOW_ALL.crawl_delay_s is DISALLOW_ALL.crawl_delay_s is None


def test_sitemaps_are_collected_wherever_they_stand() -> None:
    """In order, for every product, with or without rules; they hold a colon, and may be no ASCII."""
    text = "Sitemap: http://a.test/1.xml\nUser-agent: x\nSite-map: http://a.test/é\nDisallow: /\nsitemap:/2.xml\nSitemap:\n"
    assert rules(text).sitemaps == ("http://a.test/1.xml", "http://a.test/é", "/2.xml")
    assert rules(text, "x").sitemaps == rules(text).sitemaps
    assert rules(b"Sitemap: /caf\xe9.xml").sitemaps == ("/caf\udce9.xml",), "odd bytes as in header fields"


def test_a_file_of_sitemaps_only_is_bounded() -> None:
    """The first hundreds, none longer than a URL may be."""
    many = "".join(f"Sitemap: http://a.test/{number}\n" for number in range(MAX_SITEMAPS + 5))
    assert len(rules(many).sitemaps) == MAX_SITEMAPS
    assert rules(f"Sitemap: http://a.test/{'x' * 9000}\n").sitemaps == ()


def test_who_allows_an_index_page_allows_its_folder() -> None:
    """Google reads `/a/index.html` as the page that `/a/` shows; nothing else in the folder is allowed."""
    text = "User-agent: *\nAllow: /a/index.html\nDisallow: /\n"
    assert allowed(text, "/a/", "/a/index.html", "/a/index.htm", "/a/b", "/a", "/") == [True, True] + [False] * 4


# Judging


def test_the_longest_rule_decides_and_a_tie_allows() -> None:
    """RFC 9309, 2.2.2, through the whole reader."""
    text = "User-agent: FooBot\nDisallow: /p\nAllow: /private/x\nDisallow: /*.pdf$\nDisallow: /tie\nAllow: /tie\n"
    paths = ("/private/x", "/private/y", "/a.pdf", "/a.pdf?x", "/tie", "/other")
    assert allowed(text, *paths) == [True, False, False, True, True, True]


def test_the_query_belongs_to_the_path_and_the_fragment_does_not() -> None:
    """Rules are compared with what is sent."""
    text = "User-agent: *\nDisallow: /?\nDisallow: /a?b=\n"
    assert allowed(text, "/?x", "/?", "/", "/a?b=1", "/a", "?x", "/#?", "") == [
        *(False, False, True, False, True, False, True, True)
    ]


@each_row(
    ("url", "path"),
    [
        ("http://a.test/", "/"),
        ("http://a.test", "/"),
        ("http://a.test?x", "/?x"),
        ("http://a.test/b/c?d=http://e/#f", "/b/c?d=http://e/"),
        ("http://[::1]:81//a", "//a"),
    ],
)
def test_the_path_of_a_url_begins_with_a_slash(url: str, path: str) -> None:
    """With its query, without its fragment."""
    assert path_of(url) == path


def test_robots_txt_itself_may_always_be_fetched() -> None:
    """RFC 9309, 2.2.2; and nothing that only looks like it."""
    text = "User-agent: *\nDisallow: /\n"
    assert allowed(text, "/robots.txt", "/robots.txt?x", "/robots.txt/x", "/a/robots.txt") == [True, True, False, False]
    assert not DISALLOW_ALL.allows("http://a.test/robots.txt"), "there it could not be had"


def test_rules_that_cost_too_much_forbid() -> None:
    """In doubt we stay away; other URLs of the host are judged as ever."""
    text = "User-agent: *\n" + "".join(f"Allow: /*aaa{number}\n" for number in range(20_000))
    found = rules(text)
    assert found.decide("http://a.test/" + "a" * 100) == (
        False,
        None,
        "the rules cost too much to match, so the URL is refused",
    )
    assert found.allows("http://a.test/b")


def test_a_ruling_names_its_line() -> None:
    """And the group its lines, for whoever asks why."""
    found = rules("# hello\nUser-agent: foobot\nUser-agent: FooBot\n\nDisallow: /a\n")
    assert (found.group, found.agents) == ("foobot", (2, 3))
    assert found.decide("http://a.test/ab")[:2] == (False, 5)
    assert found.decide("http://a.test/b")[:2] == (True, None)


def test_rules_show_what_they_are() -> None:
    """The repr names the kind and the delay."""
    assert repr(ALLOW_ALL) == "<RobotsRules allow all, crawl delay None>"
    assert repr(DISALLOW_ALL) == "<RobotsRules disallow all, crawl delay None>"
    assert repr(rules("User-agent: *\nDisallow: /\nCrawl-delay: 3")) == "<RobotsRules 1 rules, crawl delay 3.0>"


@given(st.binary(max_size=400))
def test_no_file_breaks_the_reader(body: bytes) -> None:
    """Whatever octets a site sends, there are rules, and they judge."""
    found = parse_robots(body, "x")
    assert found.decide("http://a.test/x?y").allowed in {True, False}


_LINES = st.sampled_from(
    ["User-agent: x", "User-agent: y", "User-agent: *", "Allow: /a", "Disallow: /", "Disallow:", "Host: h"]
)


@given(st.lists(_LINES, max_size=14))
def test_groups_are_read_as_the_rfc_describes_them(lines: list[str]) -> None:
    """Against a reader that keeps all groups and merges them in the end."""
    groups: list[tuple[set[str], list[str]]] = []
    is_head = False
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "User-agent":
            if not is_head:
                groups.append((set(), []))
            groups[-1][0].add(value)
            is_head = True
        elif not name.startswith("Host"):
            is_head = False
            if groups:
                groups[-1][1].append(line)
    for agent in ("x", "*"):
        own = [said for agents, said in groups if agent in agents]
        if own:
            break
    said = {line for group in own for line in group}
    expected = {"/b": "Disallow: /" not in said, "/a": "Disallow: /" not in said or "Allow: /a" in said}
    found = parse_robots("\n".join(lines).encode(), "x")
    assert {path: found.allows(f"http://a.test{path}") for path in expected} == expected


BODY = b"""\xef\xbb\xbf# for robots
User-agent: *\r
Disallow: /a  # not this

User-agent: AnaBranch
User-agent: other
Disallow: /b\x1b[31m
Allow: /b/c
Crawl-delay: 2.5
Sitemap: http://a.test/\x1bmap
"""


def test_the_group_and_the_line_that_decide_are_named() -> None:
    """By number, with the text of the line."""
    assert explain(BODY, "http://a.test/b/c/d", "anabranch") == [
        "allowed",
        "group: anabranch (named in line 5)",
        "line 8: Allow: /b/c (this rule has the most octets)",
        "crawl delay: 2.5 s",
        "sitemap: http://a.test/\ufffdmap",
    ]


def test_a_sites_text_does_not_reach_the_terminal_as_it_is() -> None:
    """Control characters are replaced, long lines are cut."""
    assert explain(BODY, "http://a.test/b%1B[31m", "other")[2].startswith("line 7: Disallow: /b\ufffd[31m (")
    long = b"User-agent: *\nDisallow: /" + b"x" * 500
    lines = explain(long, "http://a.test/" + "x" * 500, "other")
    assert lines[2].startswith("line 2: Disallow: /" + "x" * 109 + "… (")


def test_everybodys_group_is_named_as_such_and_so_is_none() -> None:
    """A product without a group has everybody's, if there is one."""
    assert explain(BODY, "http://a.test/a", "third")[:3] == [
        "disallowed",
        "group: * (named in line 2)",
        "line 3: Disallow: /a  # not this (this rule has the most octets)",
    ]
    assert explain(b"", "http://a.test/a", "third") == [
        "allowed",
        "group: none applies to this product",
        "no rule matches",
    ]


def test_rules_that_no_file_says_are_explained_in_words() -> None:
    """There was no robots.txt, or it could not be had."""
    assert explain_rules(ALLOW_ALL, "http://a.test/")[::2] == ["allowed", "everything may be fetched"]
    assert explain_rules(DISALLOW_ALL, "http://a.test/")[::2] == ["disallowed", "nothing may be fetched"]
    assert explain(BODY, "http://a.test/robots.txt", "x")[2] == "robots.txt may always be fetched"


def test_a_group_that_is_named_ten_thousand_times_is_told_shortly() -> None:
    """The first ten lines will do."""
    lines = explain(b"User-agent: *\n" * 10_000, "http://a.test/", "x")
    assert lines[1] == "group: * (named in line 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …)"
