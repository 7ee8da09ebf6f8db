"""Features of URLs, and how a URL falls into parts."""

from __future__ import annotations

import hashlib
import math
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dedup.errors import BadParameters, FilterInUse, FormatMismatch, StoreFull
from anabranch.dedup.files import formatfile
from anabranch.dedup.similarity.filter import (
    FEATURES,
    URL_DB_NAME,
    Comparison,
    Parts,
    SimilarityFilter,
    SimilarityParameters,
    array_bits,
    feature_named,
    parts_of,
)
from anabranch.dedup.similarity.url_db import UrlDb, _set
from tests.rows import each_row

SITE_ONLY = b"http://www.example.com/"


@each_row(
    ("url", "parts"),
    [
        (b"http://s/a/b.html", (b"s", b"a", b"b.html")),
        (b"svn+ssh://s/a", (b"s", b"a")),
        (b"//s/a", (b"s", b"a")),
        (b"s/a", (b"s", b"a")),
        (b"s:80/http://t/", (b"s:80", b"http:", b"", b"t", b"")),
        (b"http://s", (b"s",)),
        (b"http://s/", (b"s", b"")),
        (b"http://s/a/", (b"s", b"a", b"")),
        (b"http://s/a?q=/x/y", (b"s", b"a?q=/x/y")),
        (b"http://s/a/?q", (b"s", b"a", b"?q")),
        (b"http://s?q=/x", (b"s", b"?q=/x")),
        (b"http://s/a#/x?y", (b"s", b"a#/x?y")),
        (b"", (b"",)),
        (b"\xff\x00 no url", (b"\xff\x00 no url",)),
    ],
)
def test_a_url_is_split_at_the_slashes_of_its_path(url: bytes, parts: Parts) -> None:
    """The scheme is dropped, the query belongs to un with its slashes, and any bytes have parts."""
    assert parts_of(url) == parts


@pytest.mark.parametrize(
    ("url", "parts"),
    [(b"s/a?q=/x", (b"s", b"a")), (b"s?q", (b"s", b"")), (b"s/a#x", (b"s", b"a")), (b"s/a", (b"s", b"a"))],
)
def test_the_query_may_be_dropped(url: bytes, parts: Parts) -> None:
    """Everything after the path is cut off, a query or a fragment."""
    assert parts_of(url, drop_query=True) == parts


@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_have_a_site_without_slash(url: bytes, drop_query: bool) -> None:
    """The binding to a site relies on it."""
    assert b"/" not in parts_of(url, drop_query=drop_query)[0]


@pytest.mark.parametrize(
    ("url", "features"),
    [
        (b"http://s/a/b/c.htm", (b"s", 4, b"a", b"c.htm")),
        (b"http://s/c.htm", (b"s", 2, b"c.htm", b"c.htm")),
        (b"http://s/a/", (b"s", 3, b"a", b"")),
        (b"http://s", (b"s", 1, b"", b"")),
    ],
)
def test_the_features_of_a_url(url: bytes, features: tuple[bytes | int, ...]) -> None:
    """u1, n, u2 and un; a missing u2 and an empty tail are the empty string."""
    assert tuple(FEATURES[name](parts_of(url)) for name in ("site", "depth", "directory", "tail")) == features


def test_an_own_feature_that_fails_names_itself_and_the_url() -> None:
    """It gets the parts as one argument."""
    own = feature_named("operator:length_hint")
    assert own((b"s", b"a")) == 2
    with pytest.raises(BadParameters, match=r"feature 'math:sqrt' failed for \(b's', b'a'\): TypeError: must be real"):
        feature_named("math:sqrt")((b"s", b"a"))


HOST = b"http://www.example.com/"


def no_value(parts: Parts) -> object:
    return None if parts[0] == b"bad" else b""


def filter_of(
    folder: Path,
    *features: str,
    expected: int = 1000,
    false_positive: float = 1e-6,
    site_bound: bool = False,
    drop_query: bool = False,
) -> SimilarityFilter:
    parameters = SimilarityParameters(
        expected=expected,
        false_positive=false_positive,
        features=features or tuple(FEATURES),
        site_bound=site_bound,
        drop_query=drop_query,
    )
    return SimilarityFilter.open(folder / "f", parameters)


def test_a_place_is_the_md5_or_the_number_mod_n() -> None:
    """Step S3: hashed features by MD5, big-endian; the depth as it is."""
    comparison = Comparison(SimilarityParameters(expected=10))
    bits = comparison.array_bits
    md5 = [int(hashlib.md5(value).hexdigest(), 16) % bits for value in (b"s", b"a", b"b.html")]
    assert comparison.places(b"http://s/a/b.html") == [md5[0], 3 % bits, md5[1], md5[2]]


def test_a_bound_place_is_the_md5_of_site_and_value() -> None:
    """In the site-bound mode each value, the depth too, is hashed behind the site and a slash."""
    comparison = Comparison(SimilarityParameters(expected=10, site_bound=True))
    values = (b"s/s", b"s/3", b"s/a", b"s/b.html")
    wanted = [int(hashlib.md5(value).hexdigest(), 16) % comparison.array_bits for value in values]
    assert comparison.places(b"s/a/b.html") == wanted


@pytest.mark.parametrize("site_bound", [False, True])
def test_a_url_is_new_if_any_bit_is_clear_and_is_stored_then(tmp_path: Path, *, site_bound: bool) -> None:
    """Steps S4 to S6: a new site, depth, directory or tail alone makes a URL new; only new ones are in URL_DB."""
    urls = {
        HOST + b"news/1.html": True,
        b"https://www.example.com/news/1.html": False,  # the scheme does not count
        HOST + b"news/2.html": True,  # tail
        HOST + b"sport/1.html": True,  # directory
        HOST + b"news/x/1.html": True,  # depth
        b"http://other.example/news/1.html": True,  # site
        HOST + b"news/y/2.html": False,  # the directory between is no feature
    }
    with filter_of(tmp_path, site_bound=site_bound) as known:
        for url, is_new in urls.items():
            assert known.is_similar(url) is not is_new
            assert known.add(url) is is_new
            assert known.is_similar(url)
        assert len(known) == 5
    with UrlDb.open(
        tmp_path / "f" / URL_DB_NAME,
        SimilarityParameters(expected=1000, false_positive=1e-6, site_bound=site_bound).record(),
    ) as stored:
        assert list(stored) == [url for url, is_new in urls.items() if is_new]


@pytest.mark.parametrize(("site_bound", "is_similar"), [(False, True), (True, False)])
def test_features_of_different_sites_combine_in_the_published_mode_only(
    tmp_path: Path, *, site_bound: bool, is_similar: bool
) -> None:
    """KNOWN LIMIT of the published form: site, depth, directory and tail known each, never together, are similar."""
    with filter_of(tmp_path, site_bound=site_bound) as known:
        known.add_all([b"http://one/a/1.html", b"http://two/b/2.html", b"http://three/c/d/3.html"])
        assert known.is_similar(b"http://one/b/2.html") is is_similar
        assert known.is_similar(b"http://two/c/x/1.html") is is_similar


def test_features_of_one_site_combine_in_both_modes(tmp_path: Path) -> None:
    """KNOWN LIMIT, what the site-bound mode leaves of it: directory and tail of one site are not bound together."""
    with filter_of(tmp_path, site_bound=True) as known:
        known.add_all([b"http://one/a/1.html", b"http://one/b/2.html"])
        assert known.is_similar(b"http://one/a/2.html")


def test_binding_cuts_the_wrong_verdicts_down(tmp_path: Path) -> None:
    """On pages of many sites that share names, the published mode drops most, the site-bound mode none of them."""
    urls = [b"http://s%d/d%d/%d.html" % (n % 20, n % 19, n % 23) for n in range(400)]
    dropped = {}
    for site_bound in (False, True):
        with filter_of(tmp_path / str(site_bound), site_bound=site_bound, false_positive=1e-9) as known:
            dropped[site_bound] = len(urls) - int(known.add_all(urls).sum())
    assert dropped[False] > 300
    assert dropped[True] < dropped[False] / 10


@pytest.mark.parametrize("site_bound", [False, True])
@pytest.mark.parametrize(
    ("features", "false_positive"),
    [(("site",), 0.05), (("depth", "directory", "tail"), 0.01), (("site", "directory", "tail"), 1e-3)],
)
def test_urls_new_in_every_hashed_feature_are_similar_at_a_rate_of_at_most_p(
    tmp_path: Path, features: tuple[str, ...], false_positive: float, *, site_bound: bool
) -> None:
    """At k URLs the rate is what N and F say: P where F decides on N, less where M does."""
    count, asked = 4000, 20_000
    with filter_of(tmp_path, *features, expected=count, false_positive=false_positive, site_bound=site_bound) as known:
        known.add_all([b"http://s%d/d%d/%d" % (n, n, n) for n in range(count)])
        wrong = sum(known.is_similar(b"http://t%d/e%d/-%d" % (n, n, n)) for n in range(asked))
        statistics = known.statistics()
    sigma = math.sqrt(false_positive * asked)
    assert wrong <= 1.05 * false_positive * asked + 3 * sigma
    if not site_bound:
        assert abs(wrong - statistics.false_similar * asked) <= 4 * sigma
    if len(features) == 1:
        assert statistics.false_similar == pytest.approx(false_positive, rel=0.1)


def test_the_arrays_are_sized_from_k_and_p_alone() -> None:
    """M for many hashed features; for few, what keeps the product of the fills at P."""
    assert array_bits(1000, 1e-3, 0) == array_bits(1000, 1e-3, 3) == math.ceil(1000 * math.log(1000) / math.log(2) ** 2)
    assert array_bits(1000, 1e-3, 1) == math.ceil(-1000 / math.log(0.999))
    assert array_bits(1000, 1e-3, 2) == math.ceil(-1000 / math.log(1 - math.sqrt(1e-3)))
    assert array_bits(1, 0.999999, 1) == 1


def test_the_depth_is_not_counted_as_a_hashed_feature() -> None:
    """Few values: the depth does not make the arrays smaller, in either mode."""
    for site_bound in (False, True):
        with_depth = Comparison(SimilarityParameters(features=("site", "depth"), site_bound=site_bound))
        without = Comparison(SimilarityParameters(features=("site",), site_bound=site_bound))
        assert (with_depth.hashed, with_depth.array_bits) == (("site",), without.array_bits)


@pytest.mark.parametrize("false_positive", [5e-324, 1e-300, 1e-9])
def test_arrays_beyond_reason_are_refused(false_positive: float) -> None:
    """A clear line instead of a request for all memory."""
    with pytest.raises(BadParameters, match="ask for less"):
        array_bits(1 << 40, false_positive, 1)


@each_row(
    ("values", "complaint"),
    [
        ({"expected": 0}, "expected is 0"),
        ({"false_positive": 0.0}, "false_positive is 0.0"),
        ({"false_positive": 1.0}, "false_positive is 1.0"),
        ({"false_positive": math.nan}, "false_positive is nan"),
        ({"features": ()}, "at least one"),
        ({"features": ("site", "site")}, "each once"),
        ({"features": ("site tail",)}, "no spaces"),
    ],
)
def test_parameters_out_of_bounds_are_named(values: dict[str, object], complaint: str) -> None:
    """The message says which number it is."""
    with pytest.raises(BadParameters, match=complaint):
        SimilarityParameters(**values)  # type: ignore[arg-type]


def test_features_are_chosen_by_name(tmp_path: Path) -> None:
    """With the site alone, one URL per site is new."""
    with filter_of(tmp_path, "site") as known:
        assert known.add_all([b"http://a/1", b"http://a/2", b"http://b/1"]).tolist() == [True, False, True]


def test_a_users_own_feature_is_imported_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`package.module:function` may give a number or bytes to hash; only the latter counts in F."""
    monkeypatch.syspath_prepend(tmp_path)
    text = "def size(parts): return len(parts[-1])\ndef second(parts): return b''.join(parts[2:3])\n"
    (tmp_path / "own_features.py").write_text(text)
    features = ("own_features:size", "own_features:second")
    assert Comparison(SimilarityParameters(features=features)).hashed == ("own_features:second",)
    for _ in range(2):  # the second time from URL_DB
        with filter_of(tmp_path, *features) as known:
            known.add(b"http://s/a/b/12")
            assert known.is_similar(b"http://t/c/b/34")
            assert not known.is_similar(b"http://t/c/b/345")
            assert not known.is_similar(b"http://t/c/c/34")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("sites", "is unknown"),
        (":site", "is unknown"),
        ("anabranch.dedup.similarity.filter:", "is unknown"),
        ("dedup.nothing:site", "cannot be imported"),
        (".relative:site", "cannot be imported"),
        ("anabranch.dedup.similarity.filter:nothing", "cannot be imported"),
        ("anabranch.dedup.similarity.filter:MAGIC", "is not a function"),
    ],
)
def test_a_feature_that_cannot_be_had_is_named(tmp_path: Path, name: str, complaint: str) -> None:
    """One clear line, and no folder is left behind."""
    with pytest.raises(BadParameters, match=complaint):
        feature_named(name)
    with pytest.raises(BadParameters, match=complaint):
        filter_of(tmp_path, name)
    assert not (tmp_path / "f").exists()


def test_a_feature_that_gives_something_else_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither bytes nor int: the batch is refused as a whole."""
    monkeypatch.setitem(FEATURES, "odd", no_value)
    with filter_of(tmp_path, "site", "odd") as known:
        with pytest.raises(BadParameters, match="'odd' gave None for b'bad'"):
            known.add_all([b"good", b"bad"])
        assert (len(known), known.is_similar(b"good")) == (0, False)


def test_a_batch_is_its_urls_one_after_another(tmp_path: Path) -> None:
    """A URL is compared with those before it in the batch; asking changes nothing."""
    urls = [b"http://a/1", b"http://a/1", b"http://a/2", b"http://b/1", b"http://b/2", b"\xff", b"\xff"]
    with filter_of(tmp_path) as known, filter_of(tmp_path / "other") as one_by_one:
        asked = [known.are_similar(urls).tolist() for _ in range(2)]
        assert known.statistics().fill == dict.fromkeys(FEATURES, 0.0)
        added = known.add_all(urls).tolist()
        assert added == [one_by_one.add(url) for url in urls] == [True, False, True, True, False, True, False]
        assert asked == [[not new for new in added]] * 2
        assert known.are_similar(urls).all()
        assert known.add_all([]).tolist() == []


@pytest.mark.parametrize("site_bound", [False, True])
def test_a_reopened_filter_gives_the_same_answers(tmp_path: Path, *, site_bound: bool) -> None:
    """The arrays are built again from URL_DB."""
    urls = [b"http://s%d/d%d/%d" % (n % 7, n % 11, n) for n in range(300)] + [b"", b"\xff\xfe", b"?"]
    others = [b"http://s%d/d%d/%d" % (n % 9, n % 13, n % 400) for n in range(600)]
    with filter_of(tmp_path, site_bound=site_bound) as known:
        known.add_all(urls)
        answers, statistics = known.are_similar(others).tolist(), known.statistics()
    with filter_of(tmp_path, site_bound=site_bound) as known:
        assert known.are_similar(others).tolist() == answers
        assert known.statistics() == statistics
        assert known.are_similar(urls).all()


def test_marked_urls_are_known_at_once_and_last_when_they_are_stored(tmp_path: Path) -> None:
    """Whoever hands new URLs on first stores them when they have arrived: what was not stored is new after a restart."""
    first, second = HOST + b"a/b/1.html", HOST + b"2.html"
    with filter_of(tmp_path) as similar:
        assert similar.mark([first, first, second]).tolist() == [True, False, True]
        assert (similar.is_similar(first), similar.is_similar(second), len(similar)) == (True, True, 0)
        similar.store([first])
        assert len(similar) == 1
    with filter_of(tmp_path) as similar:
        assert (similar.is_similar(first), similar.is_similar(second)) == (True, False)


def test_without_the_query_pages_of_one_listing_are_similar(tmp_path: Path) -> None:
    """The query belongs to un unless it is dropped."""
    listing = [b"http://s/list?page=1", b"http://s/list?page=2"]
    with filter_of(tmp_path / "kept") as kept, filter_of(tmp_path / "dropped", drop_query=True) as dropped:
        assert kept.add_all(listing).tolist() == [True, True]
        assert dropped.add_all(listing).tolist() == [True, False]


def test_a_full_disk_leaves_the_filter_as_it_was(tmp_path: Path) -> None:
    """URLs that were not stored are not known, and the call may be repeated."""
    urls = [HOST + b"%d" % number + b"x" * 1000 for number in range(100)]
    with filter_of(tmp_path) as known:
        _set(known._url_db._connection, "PRAGMA max_page_count = 5")
        with pytest.raises(StoreFull):
            known.add_all(urls)
        assert (known.is_similar(urls[0]), known.statistics().fill["tail"]) == (False, 0)
        _set(known._url_db._connection, "PRAGMA max_page_count = 1000")
        assert known.add_all(urls).all()


def test_other_parameters_are_refused(tmp_path: Path) -> None:
    """The message names what differs."""
    filter_of(tmp_path).close()
    with pytest.raises(FormatMismatch, match="mode is 'published' in the folder, 'site-bound' here"):
        filter_of(tmp_path, site_bound=True)
    with pytest.raises(FormatMismatch, match="features is 'site depth directory tail' in the folder, 'site' here"):
        filter_of(tmp_path, "site")


def test_a_lost_url_db_is_a_damage_and_no_new_beginning(tmp_path: Path) -> None:
    """A complete folder without its table is refused."""
    filter_of(tmp_path).close()
    (tmp_path / "f" / URL_DB_NAME).unlink()
    with pytest.raises(FormatMismatch, match="is missing"):
        filter_of(tmp_path)


def test_an_emptied_url_db_is_a_damage_and_no_new_beginning(tmp_path: Path) -> None:
    """A file of no bytes or without tables, however often it is opened; it is left as it was."""
    with filter_of(tmp_path) as seen:
        seen.add(b"http://a/1")
    path = tmp_path / "f" / URL_DB_NAME
    path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(FormatMismatch, match=r"URL_DB.sqlite is empty, but .*: it is damaged; restore it"):
            filter_of(tmp_path)
        assert path.stat().st_size == 0
    empty = sqlite3.connect(path)
    empty.execute("PRAGMA user_version = 1")
    empty.close()
    assert path.stat().st_size > 0
    with pytest.raises(FormatMismatch, match=r"URL_DB.sqlite is empty"):
        filter_of(tmp_path)


def test_a_failed_opening_lets_go_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error the folder is free and half made; opening again completes it."""

    def fail(*_: object) -> None:
        raise OSError("no")

    with monkeypatch.context() as patch:
        patch.setattr(formatfile, "complete", fail)
        with pytest.raises(OSError, match="no") as caught:
            filter_of(tmp_path)
    filter_of(tmp_path).close()
    assert caught.tb is not None  # it keeps the failed opening's frame, so no collector has closed the file
    assert formatfile.read_record(tmp_path / "f" / formatfile.NAME)["complete"] is True


def test_a_folder_has_one_holder(tmp_path: Path) -> None:
    """A second opener is refused while the first one is there."""
    with filter_of(tmp_path), pytest.raises(FilterInUse):
        filter_of(tmp_path)


def test_repr_and_the_default_parameters(tmp_path: Path) -> None:
    """The default compares by the four published features."""
    with SimilarityFilter.open(tmp_path / "f") as known:
        assert repr(known) == "<SimilarityFilter 0 urls by site depth directory tail>"
