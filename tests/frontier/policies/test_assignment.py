"""Which queue a URL goes to, and which gate it passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.crawler.lab.urls import portal_urls
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies import assignment
from anabranch.frontier.policies.assignment import (
    Hashes,
    _Numbered,
    bkdr,
    bkdr_batch,
    elf,
    elf_batch,
    host_of_queue,
    known_policies,
    parse_policy,
    policy_warning,
    sdbm,
    sdbm_batch,
)
from anabranch.frontier.policies.hosts import KEPT
from anabranch.frontier.policies.sheets import Override, Settings, Sheets
from anabranch.frontier.records import QueueKey
from tests.rows import each_row

ADDRESSES = {"a.test": "192.0.2.1", "b.test": "192.0.2.1"}
EVERY = (
    "host",
    "surt",
    "domain",
    "ip",
    "bucket:7",
    "bkdr:7",
    "bkdr:7:31",
    "elf:7",
    "sdbm:7",
    "parallel:3",
    "length:7",
    "my.own:key",
)
EACH = pytest.mark.parametrize("name", EVERY)

HOSTS = st.sampled_from(["a.test", "b.test:81", "www.c.co.uk", "192.0.2.1", "[::1]:8080", "d.test.", "localhost"])
URLS = st.builds("{}://{}/{}".format, st.sampled_from(["http", "https"]), HOSTS, st.text("ab/?ö公", max_size=40))


def imported(name: str) -> Callable[..., Any]:
    """Gives functions as an import would."""
    functions: dict[str, Callable[..., Any]] = {"my.own:key": first_letter, "my.own:broken": broken}
    if name not in functions:
        raise PolicyError(f"policy {name} cannot be imported")
    return functions[name]


def first_letter(url: str) -> str:
    """A policy of one's own."""
    return f"letter {url.partition('://')[2][:1]}"


def broken(url: str) -> str:
    """Fails for what it is given."""
    raise ValueError(f"no\nkey for {url}")


def assigned(name: str, urls: Sequence[str], overrides: Sheets | None = None) -> list[QueueKey]:
    """The keys that a policy gives."""
    return parse_policy(name, ip_of=ADDRESSES.get, imported=imported, overrides=overrides)(urls)


def own(function: Callable[..., Any], urls: Sequence[str]) -> list[QueueKey]:
    """The keys that a function of one's own gives."""
    return parse_policy("my.own:key", imported=lambda name: function)(urls)


def test_policy_host_gives_one_queue_per_host_and_port() -> None:
    """The queue is the authority; a URL without host has none."""
    assert assigned("host", ["http://a.test/1", "http://A.test.:81/2", "no url"]) == ["a.test", "a.test:81", ""]


def test_policy_surt_turns_the_host_round() -> None:
    """It turns the host as Heritrix does by default; the scheme plays no role."""
    urls = ["http://www.a.test/", "https://www.a.test/", "http://www.a.test:81/", "http://192.0.2.1/", "no url"]
    assert assigned("surt", urls) == ["test,a,www,", "test,a,www,", "test,a,www,#81", "192.0.2.1", ""]


def test_policy_domain_gathers_the_hosts_of_a_registrable_domain() -> None:
    """Whatever the port; a host without one stands for itself."""
    urls = [
        "http://www.a.co.uk/",
        "https://b.a.co.uk:81/",
        "http://co.uk/",
        "http://192.0.2.1:81/",
        "http://localhost/",
    ]
    assert assigned("domain", urls) == ["a.co.uk", "a.co.uk", "co.uk", "192.0.2.1", "localhost"]


def test_policy_ip_is_the_host_until_its_address_is_known() -> None:
    """It asks again with each batch; an address in the URL is the address."""
    known: dict[str, str] = {}
    assign = parse_policy("ip", ip_of=known.get)
    urls = ["http://a.test:81/", "http://[::1]:81/", "no url"]
    assert assign(urls) == ["a.test", "::1", ""]
    known["a.test"] = "::1"
    assert assign(urls) == ["::1", "::1", ""]


@pytest.mark.parametrize(("kind", "function"), [("bkdr", bkdr), ("elf", elf), ("sdbm", sdbm)])
def test_hash_policies_name_the_queue_by_the_hash_of_the_url(kind: str, function: Callable[[bytes], int]) -> None:
    """Queue = hash(URL in UTF-8) mod N, whatever the host and the size of the batch."""
    urls = [f"http://a.test/{'ö' * (n % 7)}{n}" for n in range(100)]
    expected = [f"{kind}:{function(url.encode()) % 7}" for url in urls]
    assert assigned(f"{kind}:7", urls) == expected
    assert assigned(f"{kind}:7", urls[:2]) == expected[:2]
    assert assigned(f"{kind}:1", urls) == [f"{kind}:0"] * 100


def test_policy_bucket_hashes_the_host_alone() -> None:
    """All pages and ports of a host are in one of N queues."""
    keys = assigned("bucket:1021", ["http://a.test/1", "https://a.test:81/2", "http://b.test/", "no url"])
    assert keys == [*[f"bucket:{bkdr(b'a.test') % 1021}"] * 2, f"bucket:{bkdr(b'b.test') % 1021}", ""]


def test_policy_parallel_gives_a_host_several_queues() -> None:
    """The queue behind the plus is the hash of the whole URL; queue 0 has no plus, as in Heritrix."""
    urls = [f"http://a.test:81/{n}" for n in range(50)]
    numbers = [bkdr(url.encode()) % 3 for url in urls]
    assert set(numbers) == {0, 1, 2}
    assert assigned("parallel:3", urls) == [f"a.test:81+{number}" if number else "a.test:81" for number in numbers]
    assert assigned("parallel:3", ["no url"]) == [""]


def test_policy_length_names_the_queue_by_the_length_of_the_url() -> None:
    """Queue = characters mod N."""
    assert assigned("length:10", ["http://a.test/", "http://a.test/ö"]) == ["length:4", "length:5"]


def test_policy_length_alone_is_warned_of() -> None:
    """In one line that says why and names a better one, once for all policies of a command."""
    (line,) = (policy_warning(["host", "length:7", "length:9"]) or "").splitlines()
    assert line.startswith("policy length:N is a poor choice: URLs have few lengths, ")
    assert line.endswith("bkdr:N spreads URLs evenly")
    assert policy_warning(name for name in EVERY if name != "length:7") is None


def test_lengths_of_urls_fill_few_queues() -> None:
    """The warning is true of portal-like URLs: a dozen queues of 997 have nine of ten URLs, each of many hosts."""
    urls = [url.decode() for url in portal_urls(20_000)]
    keys = assigned("length:997", urls)
    lengths = Counter(keys)
    assert len(lengths) < 30
    assert sum(count for _, count in lengths.most_common(13)) > 0.89 * len(urls)
    ((largest, _),) = Counter(assigned("host", urls)).most_common(1)
    queues = {key for key, host in zip(keys, assigned("host", urls), strict=True) if host == largest}
    assert len(queues) > 12
    hosts = {
        host for key, host in zip(keys, assigned("host", urls), strict=True) if key == lengths.most_common(1)[0][0]
    }
    assert len(hosts) > 100
    assert len(set(assigned("bkdr:997:31", urls))) == 997


def test_policy_bkdr_without_a_seed_keeps_its_queues() -> None:
    """Jobs that exist name it: the value is cut to 31 bits, so the seed 131 by name gives other queues."""
    urls = ["http://a.test/", "http://b.test/news?id=7", "https://www.c.test/a/b/c.html"]
    assert assigned("bkdr:997", urls) == ["bkdr:250", "bkdr:835", "bkdr:939"]
    assert assigned("bkdr:997:131", urls) == ["bkdr:733", "bkdr:321", "bkdr:939"]


@pytest.mark.parametrize("seed", [3, 31, 131, 1313, 13131, 131313, 1313131313, 2**32 - 1])
def test_policy_bkdr_with_a_seed_hashes_with_all_32_bits(seed: int) -> None:
    """Queue = polynomial of the URL in the seed, modulo 2^32 and not 2^31, mod N, in every size of a batch."""
    urls = [f"http://a.test/{'ö' * (n % 7)}{n}{'x' * (n % 3 * 1000)}" for n in range(40)]
    values = [by_sum(url.encode(), seed) for url in urls]
    assert max(values) >= 2**31
    expected = [f"bkdr:{value % 999_983}" for value in values]
    assert assigned(f"bkdr:999983:{seed}", urls) == expected
    assert [assigned(f"bkdr:999983:{seed}", [url])[0] for url in urls] == expected


@each_row("seed", ["", "0", "1", "2", "130", "-131", "+131", " 131", "131:", "x", "²", "4294967297", "9" * 5000])
def test_a_seed_that_makes_no_sense_is_refused(seed: str) -> None:
    """An even seed forgets all but the last characters, and 1 adds them up. The error shows what a seed is, in one line."""
    with pytest.raises(
        PolicyError, match="the seed of bkdr must be an odd number from 3 to 4294967295, as in bkdr:997:31"
    ) as refused:
        parse_policy(f"bkdr:997:{seed}")
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)


@each_row("name", ["elf:7:31", "sdbm:7:31", "bucket:7:31", "parallel:7:31", "length:7:31", "bkdr::31", "bkdr:0:31"])
def test_a_seed_is_for_bkdr_with_a_number_of_queues(name: str) -> None:
    """The other hashes have none."""
    with pytest.raises(PolicyError, match="a number of queues from 1 to 1000000"):
        parse_policy(name)


@EACH
@settings(max_examples=25)
@given(urls=st.lists(URLS, max_size=40))
def test_a_batch_gives_what_single_calls_give(name: str, urls: list[str]) -> None:
    """Batches are for speed alone, below and above the sizes from which on they are vectorised."""
    assert assigned(name, urls) == [assigned(name, [url])[0] for url in urls]


@EACH
def test_nothing_is_assigned_to_nothing(name: str) -> None:
    """An empty batch is no special case."""
    assert assigned(name, []) == []


def test_keys_of_ten_thousand_characters_are_keys() -> None:
    """A host that long has its queue, and so has what a function makes up."""
    host = "x" * 10_000
    assert assigned("host", [f"http://{host}/"]) == [host]
    assert assigned("surt", [f"http://{host}/"]) == [f"{host},"]
    assert own(lambda url: "y" * 10_000, ["http://a.test/"]) == ["y" * 10_000]


def test_a_million_queues_are_named_though_not_all_names_are_kept() -> None:
    """The names of the first are kept, the others made when they are wanted."""
    urls = [f"http://a.test/{n}" for n in range(40_000)]
    assert assigned("sdbm:1000000", urls) == [f"sdbm:{sdbm(url.encode()) % 1_000_000}" for url in urls]


def test_names_are_kept_up_to_a_number() -> None:
    """A million names would be 70 MB."""
    names = _Numbered("bkdr")
    assert [names[number] for number in range(KEPT + 9)][-1] == f"bkdr:{KEPT + 8}"
    assert len(names) == KEPT


@each_row("kind", ["bkdr", "elf", "sdbm", "bucket", "parallel", "length"])
@each_row("number", ["", ":", ":0", ":-1", ":1000001", ":x", ":²", ":" + "9" * 5000])
def test_a_number_of_queues_that_makes_no_sense_is_refused(kind: str, number: str) -> None:
    """The error names the policy and shows how it is written, in one line."""
    with pytest.raises(PolicyError, match=f"a number of queues from 1 to 1000000, as in {kind}:997") as refused:
        parse_policy(kind + number)
    assert len(str(refused.value)) < 400


@each_row("name", ["", "hosts", "host:5", "host:", "ip:", "Host", "surt:2", "a.b:", ":f", "a b:c", "x" * 5000])
def test_an_unknown_policy_is_refused_with_the_known_ones(name: str) -> None:
    """The error says what there is to choose from."""
    with pytest.raises(
        PolicyError, match=r"is unknown; choose one of host, surt, domain, ip, bkdr:N, .*package.module:function"
    ):
        parse_policy(name, ip_of=ADDRESSES.get, imported=imported)


def test_every_known_policy_can_be_had() -> None:
    """Every policy that the error message offers is accepted."""
    for name in known_policies().split(", ")[:-1]:
        assert assigned(name.replace(":N", ":5").replace(":SEED", ":31"), ["http://a.test/"])[0]


@pytest.mark.parametrize(("name", "lacking"), [("ip", "ip_of"), ("my.own:key", "imported")])
def test_a_policy_that_lacks_what_it_needs_is_refused(name: str, lacking: str) -> None:
    """At once, not with the first URL."""
    with pytest.raises(PolicyError, match=rf"^policy {name}.*pass `{lacking}`"):
        parse_policy(name)


def test_a_function_of_ones_own_is_asked_url_by_url() -> None:
    """Its answer is the key."""
    assert assigned("my.own:key", ["http://a.test/", "http://b.test/"]) == ["letter a", "letter b"]


def test_a_function_of_ones_own_may_take_batches() -> None:
    """Its attribute `batch` says so; it is called once for all, and not for none."""
    calls = []

    def numbered(urls: list[str]) -> list[str]:
        calls.append(urls)
        return [f"queue {number}" for number in range(len(urls))]

    numbered.batch = True  # type: ignore[attr-defined]
    assert own(numbered, ["http://a.test/", "http://b.test/"]) == ["queue 0", "queue 1"]
    assert own(numbered, []) == []
    assert calls == [["http://a.test/", "http://b.test/"]]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "gave NoneType; text is needed"),
        ("", "gave 0 characters"),
        ("x" * 10_001, "gave 10001"),
        ("\n", "be printed"),
    ],
)
def test_a_key_that_is_none_is_refused(answer: object, words: str) -> None:
    """The error names the function and the URL, whether it was asked for one or for many."""
    with pytest.raises(
        PolicyError, match=rf"^policy my.own:key for http://a.test/ gave .*{words.removeprefix('gave ')}"
    ):
        own(lambda url: answer, ["http://a.test/"])

    def batch(urls: list[str]) -> list[object]:
        return ["good", answer]

    batch.batch = True  # type: ignore[attr-defined]
    with pytest.raises(PolicyError, match=r"^policy my.own:key for http://b.test/ gave "):
        own(batch, ["http://a.test/", "http://b.test/"])


@pytest.mark.parametrize("answer", [["one"], "ab", None, {"a": 1, "b": 2}])
def test_a_batch_needs_as_many_keys_as_urls(answer: object) -> None:
    """A text is not a list of its letters."""

    def batch(urls: list[str]) -> object:
        return answer

    batch.batch = True  # type: ignore[attr-defined]
    with pytest.raises(
        PolicyError, match=r"^policy my.own:key for 2 URLs from http://a.test/ on gave .*a list of as many keys"
    ):
        own(batch, ["http://a.test/", "http://b.test/"])


def test_a_function_that_fails_is_named_with_the_url() -> None:
    """In one line, however the function words it and however long the URL is."""
    url = f"http://a.test/{'x' * 9000}"
    with pytest.raises(
        PolicyError, match=r"^policy my.own:broken for http://a.test/x+… failed: ValueError: no key for"
    ) as failed:
        assigned("my.own:broken", [url])
    assert "\n" not in str(failed.value)
    assert isinstance(failed.value.__cause__, ValueError)


def test_a_key_of_an_override_comes_before_the_policy() -> None:
    """By host and by path; the policy is not even asked for those."""
    asked: list[str] = []
    sheets = Sheets(
        [
            Override(("a.test",), Settings(key=QueueKey("ours"))),
            Override(("http://b.test/news/",), Settings(key=QueueKey("news"))),
            Override(("c.test",), Settings(min_delay_s=1.0)),
        ]
    )
    urls = ["http://b.test/", "http://www.a.test/", "http://b.test/news/1", "http://c.test/"]
    assert assigned("host", urls, sheets) == ["b.test", "ours", "news", "c.test"]
    assign = parse_policy("my.own:key", imported=lambda name: lambda url: asked.append(url) or "own", overrides=sheets)
    assert assign(urls) == ["own", "ours", "news", "own"]
    assert assign(urls[1:3]) == ["ours", "news"]
    assert asked == [urls[0], urls[3]]


@each_row("name", ["ip", "bucket:7", "bkdr:7", "bkdr:7:31", "elf:7", "sdbm:7", "length:7", "my.own:key"])
def test_a_budget_of_a_host_is_refused_where_queues_hold_many_hosts(name: str) -> None:
    """It could not be kept; with a key of its own the queue is the site's."""
    for field in ("session_budget", "total_budget", "queue_precedence"):
        with pytest.raises(PolicyError, match=rf"^policy {name}: its queues hold many hosts; .*`key`"):
            assigned(name, [], Sheets([Override(("a.test",), Settings(**{field: 5}))]))
    assert assigned(name, [], Sheets([Override(("a.test",), Settings(total_budget=5, key=QueueKey("a")))])) == []
    assert assigned("host", [], Sheets([Override(("a.test",), Settings(total_budget=5))])) == []


@pytest.mark.parametrize("name", ["host", "surt", "parallel:3", "domain"])
@given(
    host=st.sampled_from(["www.a.test", "b.test", "192.0.2.1", "[::1]"]),
    port=st.sampled_from(["", ":81"]),
    page=st.integers(),
)
def test_a_queue_of_one_host_tells_it(name: str, host: str, port: str, page: int) -> None:
    """The host of a queue is found by its key; that of a domain's queue is the domain."""
    host_of_key = host_of_queue(name)
    assert host_of_key is not None
    key = assigned(name, [f"http://{host}{port}/{page}"])[0]
    assert host_of_key(key) == (key if name == "domain" else host)


def test_a_queue_of_many_hosts_tells_none() -> None:
    """Hashes, addresses and functions of one's own."""
    assert {host_of_queue(name) for name in ("bkdr:7", "bkdr:7:31", "ip", "bucket:7", "length:7", "my.own:key")} == {
        None
    }


Hash = Callable[[bytes], int]
Batch = Callable[[Sequence[bytes]], Hashes]
BOTH = {"bkdr": (bkdr, bkdr_batch), "elf": (elf, elf_batch), "sdbm": (sdbm, sdbm_batch)}
EACH_PAIR = pytest.mark.parametrize(("one", "many"), BOTH.values(), ids=BOTH)

#: The test key of Arash Partow's library, whose results are 32 bits wide.
PARTOW = b"abcdefghijklmnopqrstuvwxyz1234567890"


def by_sum(data: bytes, factor: int) -> int:
    """A hash as a polynomial, worked out with integers of any size."""
    total = 0
    for byte in data:
        total = total * factor + byte
    return total % 2**32


@each_row(
    ("one", "data", "value"),
    [
        (bkdr, PARTOW, 3153586616 & 0x7FFFFFFF),
        (sdbm, PARTOW, 3449571336 & 0x7FFFFFFF),
        (elf, PARTOW, 126631744),
        (bkdr, b"", 0),
        (bkdr, b"ab", 97 * 131 + 98),
        (bkdr, b"abc", 1677554),
        (sdbm, b"", 0),
        (sdbm, b"ab", 97 * 65599 + 98),
        (elf, b"", 0),
        (elf, b"ab", (97 << 4) + 98),
        (elf, b"a" * 8, 125268225),  # the eighth letter reaches the highest four bits, which are folded back
    ],
)
def test_values_of_the_published_functions(one: Hash, data: bytes, value: int) -> None:
    """Known results, the sign bit cleared."""
    assert one(data) == value


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_two_of_them_are_polynomials(data: bytes) -> None:
    """The loop and the closed formula agree for any bytes: in 131, and in 65599, both cut to 31 bits."""
    assert bkdr(data) == by_sum(data, 131) % 2**31
    assert sdbm(data) == by_sum(data, 65599) % 2**31


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=60), max_size=20))
def test_a_batch_of_hashes_gives_what_single_calls_give(batch: list[bytes]) -> None:
    """Vectorised or not, empty strings among them or not: the same values in the same order."""
    for one, many in BOTH.values():
        assert many(batch).tolist() == [one(data) for data in batch]


@EACH_PAIR
def test_a_batch_of_long_urls_gives_what_single_calls_give(one: Hash, many: Batch) -> None:
    """Results wrap as 32 bits do, however long the string."""
    batch = [f"http://a.test/{'x' * length}?{length}".encode() for length in range(0, 3000, 137)]
    assert many(batch).tolist() == [one(data) for data in batch]


def test_a_very_long_string_is_hashed_as_a_short_one() -> None:
    """Beyond the powers that are kept, too."""
    data = bytes(range(256)) * 20
    assert bkdr(data) == by_sum(data, 131) % 2**31
    assert sdbm_batch([data, data[:-1]]).tolist() == [by_sum(each, 65599) % 2**31 for each in (data, data[:-1])]


@EACH_PAIR
def test_one_very_long_string_makes_no_table_of_its_length_for_all(one: Hash, many: Batch) -> None:
    """The batch falls into parts; the values keep their order."""
    batch = [f"http://a.test/{number}".encode() for number in range(2000)]
    batch[1234] += b"x" * 10_000
    assert many(batch).tolist() == [one(data) for data in batch]


@EACH_PAIR
@pytest.mark.parametrize("bound", [assignment._WIDE, assignment._KEPT_POWERS])
def test_around_its_bounds_a_batch_gives_what_single_calls_give(one: Hash, many: Batch, bound: int) -> None:
    """Whichever strings are hashed together: one long one among short ones, long ones among themselves, one of each length."""
    page = [b"http://a.test/%d" % number for number in range(20)]
    longs = [(bytes(range(256)) * 17)[:length] for length in range(bound - 4, bound + 5)]
    for batch in (*([*page, long, *page] for long in longs), longs, [*page, *longs], [*longs, b"", *page]):
        assert many(batch).tolist() == [one(data) for data in batch]


@pytest.mark.parametrize("many", [bkdr_batch, sdbm_batch])
def test_long_strings_among_short_ones_have_a_table_of_their_own(many: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a hostile site would fill thousands of links up to the length of its longest one."""
    widths: list[int] = []
    powers = assignment._powers
    monkeypatch.setattr(assignment, "_powers", lambda factor, count: widths.append(count) or powers(factor, count))
    many([b"x" * (8000 if number % 131 == 0 else 900 if number % 100 == 0 else 50) for number in range(6000)])
    assert sorted(widths) == [50, 900, 8000]


@EACH_PAIR
def test_a_portal_fills_every_one_of_997_queues(one: Hash, many: Batch) -> None:
    """URLs that differ in few characters spread over a prime number of queues: none is empty, none holds thrice its share."""
    urls = [f"http://www.portal.test/news/2024/{n % 12 + 1:02}/article-{n:06}.html".encode() for n in range(40_000)]
    share = Counter((many(urls) % 997).tolist())
    assert len(share) == 997
    assert max(share.values()) < 3 * len(urls) / 997


def test_elf_leaves_most_of_100_queues_empty() -> None:
    """Why a prime is advised: with .html endings ELF mod 100 takes few values."""
    urls = [f"http://www.portal.test/news/2024/{n % 12 + 1:02}/article-{n:06}.html".encode() for n in range(10_000)]
    assert len(Counter((elf_batch(urls) % 100).tolist())) <= 50


@pytest.mark.parametrize("policy", ["bkdr:997", "elf:997", "sdbm:997"])
def test_a_prime_number_of_queues_is_filled_by_every_hash(policy: str) -> None:
    """A portal's URLs reach each of 997 queues, and none has thrice its share."""
    urls = [f"http://www.portal.test/news/2024/{n % 12 + 1:02}/article-{n:06}.html" for n in range(40_000)]
    share = Counter(parse_policy(policy)(urls))
    assert len(share) == 997
    assert max(share.values()) < 3 * len(urls) / 997
