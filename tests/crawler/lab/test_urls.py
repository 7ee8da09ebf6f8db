"""The experiments' URLs: what they promise of number, length, spread and sameness."""

import hashlib
import io
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.lab.urls import distinct_urls, packet_urls, portal_urls, repeated, require_readable, urls_of_file
from anabranch.crawler.outcomes.errors import UsageError

PORTALS = (
    b"qq.com",
    b"sina.com.cn",
    b"163.com",
    b"sohu.com",
    b"xinhuanet.com",
    b"ifeng.com",
    b"people.com.cn",
    b"tom.com",
)


@cache
def capture() -> list[bytes]:
    """The published number of URLs."""
    return packet_urls()


@cache
def many_portal_urls(seed: int = 1) -> list[bytes]:
    """Enough for the spread of the long tail to be seen."""
    return portal_urls(60_000, seed)


def digest(urls: list[bytes]) -> str:
    return hashlib.sha256(b"\n".join(urls)).hexdigest()[:16]


def host(url: bytes) -> bytes:
    return url.split(b"/")[2]


def is_portal(name: bytes) -> bool:
    return name.split(b".", 1)[1] in PORTALS


def test_a_capture_has_the_published_number_and_mean_length() -> None:
    """75,012 distinct URLs of 50.5 bytes on average, short ones frequent, a few long."""
    urls = capture()
    lengths = sorted(map(len, urls))
    assert len(set(urls)) == 75_012
    assert sum(lengths) / len(urls) == pytest.approx(50.5, abs=1e-4)
    assert lengths[len(lengths) // 2] < 50.5 < 100 < lengths[-1]


@given(st.integers(0, 300), st.floats(45, 200), st.integers(-5, 5))
def test_any_capture_is_distinct_and_has_its_mean(count: int, mean_bytes: float, seed: int) -> None:
    """The bytes of all URLs together are those asked for, rounded."""
    urls = packet_urls(count, mean_bytes, seed)
    assert len(set(urls)) == len(urls) == count
    assert sum(map(len, urls)) == round(count * mean_bytes)


def test_a_mean_too_small_for_distinct_urls_is_refused() -> None:
    """The message says what is possible."""
    with pytest.raises(UsageError, match=r"mean-bytes 20: 100 distinct URLs take \d\d\.\d or more on average"):
        packet_urls(100, 20)


def test_generated_urls_are_the_same_on_every_machine_and_for_ever() -> None:
    """Published tables can be made again: these digests may change in no version."""
    assert digest(packet_urls(1000)) == "e8c0a1a1c1fa4d45"
    assert digest(portal_urls(1000)) == "e8d6621de2bc6c6d"
    assert digest(repeated(portal_urls(1000), 0.4)) == "eaf2a6807693fcbc"


def test_a_seed_chooses_other_urls() -> None:
    """Two seeds share neither a capture nor a portal's URLs."""
    assert not set(packet_urls(1000, seed=1)) & set(packet_urls(1000, seed=2))
    assert len(set(portal_urls(1000, seed=1)) & set(portal_urls(1000, seed=2))) < 5


def test_portal_urls_are_distinct_and_a_longer_list_begins_with_a_shorter() -> None:
    """So those beyond the first n are n's probes."""
    urls = many_portal_urls()
    assert len(set(urls)) == 60_000
    assert portal_urls(5000) == urls[:5000]


def test_portal_urls_spread_as_the_docstring_says() -> None:
    """Seven tenths on eight portals, three tenths of these on qq.com; the busiest host by 1/r; a long tail of small sites."""
    hosts = Counter(map(host, many_portal_urls()))
    portals = {name: count for name, count in hosts.items() if is_portal(name)}
    qq = sum(count for name, count in portals.items() if name.endswith(b".qq.com"))
    small = sorted(count for name, count in hosts.items() if name not in portals)
    assert sum(portals.values()) == pytest.approx(0.70 * 60_000, rel=0.02)
    assert qq == pytest.approx(0.30 * 0.70 * 60_000, rel=0.03)
    assert hosts[b"news.qq.com"] == pytest.approx(qq / sum(1 / rank for rank in range(1, 41)), rel=0.05)
    assert len(portals) == 320
    weights = [(rank + 100) ** -1.5 for rank in range(10_000)]
    expected = sum(1 - (1 - weight / sum(weights)) ** sum(small) for weight in weights)
    assert len(small) == pytest.approx(expected, rel=0.03)
    assert sum(small[-100:]) == pytest.approx(sum(weights[:100]) / sum(weights) * sum(small), rel=0.05)


def test_a_seed_changes_pages_and_not_sites() -> None:
    """All seeds share the portals' 320 hosts and the ten thousand small sites."""
    first, second = ({host(url) for url in many_portal_urls(seed)} for seed in (1, 2))
    assert set(filter(is_portal, first)) == set(filter(is_portal, second))
    rare = sum(name in first for name in second if not is_portal(name))
    assert rare > 0.5 * len(second)


def test_a_file_gives_its_lines_without_their_ends(tmp_path: Path) -> None:
    """LF, CRLF, empty lines, no newline at the end, and bytes that are no UTF-8."""
    file = tmp_path / "urls.txt"
    file.write_bytes(b"http://a.example/\r\n\n\r\nhttp://b.example/\xff x\nhttp://a.example/")
    assert urls_of_file(file) == [b"http://a.example/", b"http://b.example/\xff x", b"http://a.example/"]
    assert distinct_urls(file, 5, 1) == [b"http://a.example/", b"http://b.example/\xff x"]


def test_a_hyphen_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed one is refused before anything runs."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"http://a.example/\r\nhttp://b.example/\xff")))
    require_readable(Path("-"))
    assert urls_of_file(Path("-")) == [b"http://a.example/", b"http://b.example/\xff"]
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UsageError, match=r"^--urls: standard input is closed; name a file with one URL a line$"):
        require_readable(Path("-"))


def test_without_a_file_urls_are_generated() -> None:
    """Their number and seed are those asked for."""
    assert distinct_urls(None, 50, 3) == portal_urls(50, 3)


def test_a_file_without_urls_is_refused_in_one_line(tmp_path: Path) -> None:
    """Missing, a folder, or empty: the message names it and says what to give."""
    empty = tmp_path / "empty"
    empty.write_bytes(b"\r\n\n")
    for path in (tmp_path / "missing", tmp_path, empty):
        with pytest.raises(UsageError, match=rf"^--urls: {path}[^\n]*; name a file with one URL a line$"):
            urls_of_file(path)


@given(st.integers(0, 200), st.floats(0, 0.99), st.integers(0, 3))
def test_a_stream_repeats_exactly_its_share(count: int, share: float, seed: int) -> None:
    """It is as long as the URLs. Its new entries are the first URLs, in order; the others repeat earlier entries."""
    urls = [b"%d" % number for number in range(count)]
    stream = repeated(urls, share, seed)
    new = list(dict.fromkeys(stream))
    assert len(stream) == count
    assert new == urls[: len(new)]
    assert len(stream) - len(new) == min(round(share * count), max(0, count - 1))


def test_repeats_are_spread_over_the_stream_and_over_what_came_before() -> None:
    """Each quarter has its part of them, and they do not favour the newest."""
    urls = portal_urls(20_000)
    stream, met = repeated(urls, 0.5), dict[bytes, int]()
    ages = []
    for place, url in enumerate(stream):
        if url in met:
            ages.append((place, met[url] / len(met)))
        else:
            met[url] = len(met)
    quarters = Counter(place * 4 // len(stream) for place, _ in ages)
    assert all(quarters[number] == pytest.approx(2500, rel=0.06) for number in range(4))
    assert sum(age for _, age in ages) / len(ages) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_that_leaves_nothing_new_is_refused(share: float) -> None:
    """The first entry can repeat nothing."""
    with pytest.raises(UsageError, match="share of repeats"):
        repeated([b"a", b"b"], share)
