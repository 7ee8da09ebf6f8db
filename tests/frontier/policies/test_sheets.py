"""Settings per site."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.hosts import SurtPrefix, parse_surt
from anabranch.frontier.policies.sheets import NOTHING, HostTable, Override, Settings, Sheets, _Paths
from anabranch.frontier.records import QueueKey
from tests.rows import each_row

USUAL = Settings(5.0, 3.0, 30.0)

HOSTS = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(".".join)
PATHS = st.text("/ab", max_size=5).map(lambda text: f"/{text}")
NUMBERS = st.none() | st.integers(0, 255)
SETTINGS = st.builds(lambda uri, factor: Settings(uri_precedence=uri, delay_factor=factor), NUMBERS, NUMBERS)
OF_HOSTS = st.builds(SurtPrefix, HOSTS, st.booleans(), st.none(), st.sampled_from(["", "/"])) | st.just(
    parse_surt("http://(")
)
OF_URLS = st.builds(SurtPrefix, HOSTS, st.just(False), st.sampled_from([None, 81]), PATHS)
ENTRIES = st.tuples(OF_HOSTS, SETTINGS) | st.tuples(OF_URLS, NUMBERS.map(lambda uri: Settings(uri_precedence=uri)))


def override(*surts: str, **fields: Any) -> Override:
    """One entry of an order."""
    return Override(surts, Settings(**fields))


def covers(prefix: SurtPrefix, host: str, port: int | None, path: str) -> bool:
    """Whether a prefix covers a URL, by looking at both."""
    is_below = prefix.with_subdomains and (not prefix.host or host.endswith(f".{prefix.host}"))
    return (host == prefix.host or is_below) and prefix.port in {None, port} and path.startswith(prefix.path)


def length(prefix: SurtPrefix) -> tuple[int, bool, int, bool]:
    """By which of two prefixes of one URL the longer is told: host, alone, path, port."""
    path = "" if prefix.covers_hosts else prefix.path
    return len(prefix.host), not prefix.with_subdomains, len(path), prefix.port is not None


def looked_for(entries: list[tuple[SurtPrefix, Settings]], host: str, port: int | None, path: str) -> Settings:
    """Find the settings of a URL by comparing it with every entry."""
    fitting = [entry for entry in entries if covers(entry[0], host, port, path)]
    found = NOTHING
    for entry in sorted(fitting, key=lambda entry: length(entry[0])):
        found = entry[1].over(found)
    return found


@given(st.lists(ENTRIES, max_size=12), HOSTS, st.sampled_from([None, 81]), PATHS)
def test_the_longest_prefix_wins_for_each_setting(
    entries: list[tuple[SurtPrefix, Settings]], host: str, port: int | None, path: str
) -> None:
    """The answer equals that of a comparison with every entry, for URLs and hosts; of equal prefixes the later wins."""
    entries = [(prefix, settings) for prefix, settings in entries if settings != NOTHING]
    entries = [
        (prefix, settings) for prefix, settings in entries if prefix.covers_hosts or settings.delay_factor is None
    ]
    sheets = Sheets([Override((str(prefix),), settings) for prefix, settings in entries])
    url = f"http://{host}{'' if port is None else ':81'}{path}"
    assert sheets.for_url(url) == looked_for(entries, host, port, path)
    whole = [entry for entry in entries if entry[0].covers_hosts]
    assert sheets.for_host(host) == looked_for(whole, host, port, path)
    assert bool(sheets) == bool(entries)


def test_what_an_entry_leaves_open_comes_from_a_shorter_one() -> None:
    """Each setting by itself."""
    sheets = Sheets(
        [
            override("www.a.test", max_connections=2),
            override("http://(", delay_factor=1.0, session_budget=10),
            override("a.test", "b.test", delay_factor=2.0, total_budget=-1),
        ]
    )
    assert sheets.for_host("x.www.a.test") == Settings(
        delay_factor=2.0, max_connections=2, session_budget=10, total_budget=-1
    )
    assert sheets.for_host("b.test") == Settings(delay_factor=2.0, session_budget=10, total_budget=-1)
    assert sheets.for_host("test") == Settings(delay_factor=1.0, session_budget=10)


def test_of_two_entries_for_one_prefix_the_later_wins() -> None:
    """However the prefix is written."""
    sheets = Sheets(
        [override("a.test", min_delay_s=1.0, max_connections=2), override("http://(test,a,", min_delay_s=2.0)]
    )
    assert sheets.for_host("a.test") == Settings(min_delay_s=2.0, max_connections=2)


def test_the_later_wins_with_the_slash_or_without_it() -> None:
    """Both are the whole host, so they are one prefix."""
    surts = ("http://a.test/", "(test,a,)", "http://a.test/")
    sheets = Sheets([override(surt, max_connections=number) for number, surt in enumerate(surts, 1)])
    assert sheets.for_host("a.test") == Settings(max_connections=3)


def test_a_host_alone_is_covered_with_every_port() -> None:
    """A gate is a host, whatever the port."""
    sheets = Sheets([override("http://a.test/", max_connections=2)])
    assert sheets.for_url("https://a.test:81/x") == sheets.for_host("a.test") == Settings(max_connections=2)
    assert sheets.for_host("www.a.test") is NOTHING


def test_a_host_alone_stands_upon_the_host_with_all_below_it() -> None:
    """Never the other way round, in whatever order they come; with the slash or without it is one prefix."""
    entries = [override("http://a.test/", max_connections=2), override("a.test", delay_factor=1.0)]
    for order in (entries, entries[::-1]):
        sheets = Sheets([*order, override("(test,a,)", uri_precedence=7)])
        assert sheets.for_host("a.test") == Settings(delay_factor=1.0, max_connections=2, uri_precedence=7)
        assert sheets.for_host("www.a.test") == Settings(delay_factor=1.0)


def test_a_path_without_a_port_holds_on_every_port() -> None:
    """And where a port has the same path, the port's setting wins."""
    sheets = Sheets(
        [
            override("(test,a,:81)/x", uri_precedence=1),
            override("(test,a,)/x", uri_precedence=2, key=QueueKey("x")),
        ]
    )
    assert sheets.for_url("http://a.test:81/x") == Settings(uri_precedence=1, key=QueueKey("x"))
    assert sheets.for_url("http://a.test:82/x") == Settings(uri_precedence=2, key=QueueKey("x"))


def test_an_entry_in_the_old_form_still_holds_for_a_host_with_a_comma() -> None:
    """Unless one in today's form names the host."""
    old = Sheets([override("http://(test,a,b,)", max_connections=2)])
    assert {old.for_host(host).max_connections for host in ("b.a.test", "a,b.test")} == {2}
    assert old.for_host("c,d.test") == NOTHING
    both = Sheets([override("(test,a,b,)", max_connections=2), override("(test,a%2Cb,)", max_connections=3)])
    assert [both.for_host(host).max_connections for host in ("b.a.test", "a,b.test")] == [2, 3]


@pytest.mark.parametrize("wider", ["com,example,", "http://(com,", "http://("])
def test_a_wider_entry_holds_only_for_hosts_below_it(wider: str) -> None:
    """`example,evil.com` is not below `example.com`, though its old form `com,example,evil,` begins like it."""
    sheets = Sheets([override(wider, max_connections=2)])
    expected = NOTHING if wider == "com,example," else Settings(max_connections=2)
    assert sheets.for_host("example,evil.com") == expected
    assert sheets.for_host("evil.example.com").max_connections == 2


def test_a_url_without_host_has_no_settings() -> None:
    """Not even those of everything: it is refused anyway."""
    assert Sheets([override("http://(", max_connections=2)]).for_url("mailto:me@a.test") is NOTHING


def test_no_overrides_cost_nothing() -> None:
    """The table is false, and says of each kind of setting that nobody set it."""
    sheets = Sheets()
    assert not sheets
    assert [sheets.has_keys, sheets.has_uri_precedence, sheets.has_host_settings, sheets.has_queue_settings] == [
        False
    ] * 4
    assert sheets.for_host("a.test") is sheets.for_url("http://a.test/") is NOTHING


@each_row(
    ("entry", "flags"),
    [
        (override("a.test", key=QueueKey("a"), total_budget=5), (True, False, True, False)),
        (override("http://a.test/x/", key=QueueKey("a")), (True, False, False, False)),
        (override("http://a.test/x/", uri_precedence=0), (False, True, False, False)),
        (override("a.test", max_connections=2), (False, False, True, False)),
        (override("a.test", session_budget=2), (False, False, True, True)),
        (override("a.test", total_budget=0), (False, False, True, True)),
        (override("a.test", queue_precedence=0), (False, False, True, True)),
    ],
)
def test_a_table_says_what_kinds_of_settings_it_has(entry: Override, flags: tuple[bool, ...]) -> None:
    """Keys, URI precedences, settings of hosts, and settings of queues without a key."""
    sheets = Sheets([entry])
    has = (sheets.has_keys, sheets.has_uri_precedence, sheets.has_host_settings, sheets.has_queue_settings)
    assert has == flags
    assert sheets


def test_a_queue_that_is_named_has_the_settings_of_where_it_is_named() -> None:
    """Budgets that stand beside a key, or above it, are those of that queue."""
    sheets = Sheets(
        [
            override("test", session_budget=10),
            override("a.test", key=QueueKey("ours"), total_budget=5),
            override("http://b.test/x/", key=QueueKey("ours")),
        ]
    )
    ours = sheets.for_key(QueueKey("ours"))
    assert ours is not None
    assert (ours.session_budget, ours.total_budget) == (10, 5)
    assert sheets.for_key(QueueKey("a.test")) is None


def test_a_budget_below_a_key_is_refused() -> None:
    """The queue holds more than that host, so the budget could not be the host's."""
    with pytest.raises(PolicyError, match=r"a wider one sets the key ours; set it there"):
        Sheets([override("a.test", key=QueueKey("ours")), override("www.a.test", total_budget=5)])


@each_row(
    ("fields", "delays"),
    [
        ({}, (5.0, 3.0, 30.0)),
        ({"delay_factor": 0.0}, (0.0, 3.0, 30.0)),
        ({"min_delay_s": 60.0}, (5.0, 60.0, 60.0)),
        ({"max_delay_s": 1.0}, (5.0, 1.0, 1.0)),
        ({"min_delay_s": 1.0, "max_delay_s": 2.0}, (5.0, 1.0, 2.0)),
        ({"max_connections": 7}, (5.0, 3.0, 30.0)),
    ],
)
def test_a_delay_that_is_set_wins_over_the_usual_other_one(fields: dict[str, Any], delays: tuple[float, ...]) -> None:
    """A least delay of a minute stays a minute, even if the order's longest is half of it; and the reverse."""
    assert Settings(**fields).over(USUAL)[:3] == delays


def test_a_delay_of_a_longer_prefix_wins_over_the_other_one_of_a_shorter() -> None:
    """One override wins over another as it does over the order."""
    sheets = Sheets(
        [
            override("test", min_delay_s=2.0, max_delay_s=5.0),
            override("a.test", min_delay_s=60.0),
            override("b.test", max_delay_s=1.0),
        ]
    )
    assert sheets.for_host("a.test").over(USUAL)[:3] == (5.0, 60.0, 60.0)
    assert sheets.for_host("b.test").over(USUAL)[:3] == (5.0, 1.0, 1.0)


@each_row(
    ("fields", "words"),
    [
        ({}, "it changes nothing"),
        ({"delay_factor": -1.0}, "delay_factor -1 is not from 0 to inf"),
        ({"min_delay_s": -0.5}, "min_delay_s -0.5 is not from 0"),
        ({"max_delay_s": float("inf")}, "max_delay_s inf is not from 0"),
        ({"delay_factor": float("nan")}, "delay_factor nan is not from 0"),
        ({"max_connections": 0}, "max_connections 0 is not from 1 to 10000"),
        ({"max_connections": 10_001}, "max_connections 10001 is not from 1 to 10000"),
        ({"session_budget": 0}, "session_budget 0 is not from 1"),
        ({"total_budget": -2}, "total_budget -2 is not from -1"),
        ({"queue_precedence": 256}, "queue_precedence 256 is not from 0 to 255"),
        ({"uri_precedence": -1}, "uri_precedence -1 is not from 0 to 255"),
        ({"key": QueueKey("")}, "key gave 0 characters"),
        ({"min_delay_s": 5.0, "max_delay_s": 4.0}, "min_delay 5 s is longer than max_delay 4 s"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(fields: dict[str, Any], words: str) -> None:
    """The error names the entry."""
    with pytest.raises(PolicyError, match=rf"^override a.test: {words}"):
        override("a.test", **fields)


def test_an_entry_without_a_place_is_refused() -> None:
    """It would hold nowhere."""
    with pytest.raises(PolicyError, match="names no SURT prefix"):
        override(max_connections=2)


@each_row("surt", ["http://a.test/x/", "a.test:81"])
@each_row("field", ["delay_factor", "min_delay_s", "max_connections", "total_budget", "queue_precedence"])
def test_settings_of_hosts_cannot_be_set_for_parts_of_them(surt: str, field: str) -> None:
    """A gate or a queue does not know of paths and ports."""
    with pytest.raises(
        PolicyError, match=rf"^override a.test: {surt} does not cover a whole host, and {field} can be set"
    ):
        Sheets([override("a.test", surt, uri_precedence=3, **{field: 1})])


def test_a_prefix_that_cannot_be_read_is_refused() -> None:
    """When the table is built, with the prefix in the error."""
    with pytest.raises(PolicyError, match="SURT prefix 'com,example' is refused"):
        Sheets([override("com,example", max_connections=2)])


def test_many_prefixes_of_one_host_are_told_apart() -> None:
    """Nested ones and neighbours; the query counts, the fragment does not."""
    paths = ["/", "/a", "/a/", "/a/b?c", "/b/", "/a0"]
    sheets = Sheets([override(f"(test,a,){path}", uri_precedence=number) for number, path in enumerate(paths)])
    urls = {"/": 0, "/x": 0, "/ab": 1, "/a/x": 2, "/a/b?cd": 3, "/a/b?d#c": 2, "/b/b": 4, "/b": 0, "/a00": 5, "": 0}
    assert {path: sheets.for_url(f"http://a.test{path}").uri_precedence for path in urls} == urls


def test_a_path_is_not_compared_with_every_prefix() -> None:
    """A look-up compares fewer than ten of 1,000 prefixes, however far away the one that fits is."""

    class Counted(str):
        looks = 0

        def startswith(self, *prefix: Any) -> bool:
            Counted.looks += 1
            return super().startswith(*prefix)

    paths = _Paths(
        {f"/a/{number}": Settings(uri_precedence=1) for number in range(1000)} | {"/a": Settings(max_connections=2)},
        Settings.over,
        NOTHING,
    )
    assert paths.get(Counted("/a/x")) == Settings(max_connections=2)
    assert Counted.looks < 10


SHORT_HOSTS = st.lists(st.sampled_from("ab"), min_size=1, max_size=5).map(".".join)
PREFIXES = st.builds(SurtPrefix, SHORT_HOSTS | st.just(""), st.booleans(), st.none(), st.just("")).filter(
    lambda prefix: prefix.host or prefix.with_subdomains
)


def prefix_covers(prefix: SurtPrefix, host: str) -> bool:
    """Whether a prefix prefix_covers a host, by looking at both."""
    if host == prefix.host:
        return True
    return prefix.with_subdomains and (not prefix.host or host.endswith(f".{prefix.host}"))


@given(st.dictionaries(PREFIXES, st.integers()), SHORT_HOSTS)
def test_the_longest_prefix_decides(values: dict[SurtPrefix, int], host: str) -> None:
    """The answer equals that of a look at every prefix; a host alone is longer than the host with all below it."""
    table: HostTable[int] = HostTable()
    for prefix, value in values.items():
        table.put(prefix, value)
    fitting = [prefix for prefix in values if prefix_covers(prefix, host)]
    best = max(fitting, key=lambda prefix: (len(prefix.host), not prefix.with_subdomains), default=None)
    assert table.get(host) == (None if best is None else values[best])
    assert len(table) == len(values)


def test_a_label_is_matched_whole() -> None:
    """A host that ends with the same letters is another host."""
    table: HostTable[int] = HostTable()
    table.put(parse_surt("a.test"), 1)
    assert [table.get(host) for host in ("a.test", "b.a.test", "ba.test", "test")] == [1, 1, None, None]
