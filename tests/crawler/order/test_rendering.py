"""Orders written out: all keys, their words, their origins, and the schema."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import ENTRIES, KEYS, SECTIONS, CrawlOrder, keys_of, with_modules
from anabranch.crawler.order.rendering import default_order, descriptions_of, effective_order, order_schema, title_of
from anabranch.crawler.order.sources import origin, read_layers


@pytest.fixture(autouse=True)
def _no_settings_of_the_outside(monkeypatch):
    for name in list(os.environ):
        if name.upper().startswith("ANABRANCH_"):
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "x.toml"


@pytest.mark.parametrize("name", [*SECTIONS, *ENTRIES])
def test_every_key_of_the_order_has_words_and_every_section_a_title(name) -> None:
    """They are the comments `#:` of the source: who adds a key adds its words there."""
    model = {**SECTIONS, **ENTRIES}[name]
    assert title_of(model).endswith(".")
    assert [key for key, words in descriptions_of(model).items() if not words] == []


def test_words_stand_above_a_key_or_behind_it() -> None:
    """Or behind the end of a call that the formatter has broken into lines."""
    assert descriptions_of(SECTIONS["limits"])["pages"] == "answered URLs of the whole job; 0: no limit"
    assert descriptions_of(SECTIONS["limits"])["min_free_disk"].startswith("Room on the job's disk, below which")
    assert descriptions_of(SECTIONS["frontier"])["checkpoint"] == "how often the filter is synced"


def test_the_default_order_has_every_key_and_says_nothing_but_the_defaults(file) -> None:
    """Whoever runs by it as it stands runs by the defaults."""
    text = default_order()
    file.write_text(text)
    assert load_order(file, {}) == with_modules(CrawlOrder(), file.parent)
    written = {section: set(table) for section, table in tomllib.loads(text).items()}
    written["job"] |= {"name", "modules"}  # they have no default, and stand there as comments
    assert "\n# name =" in text
    assert "\n# modules =" in text
    assert written == {section: set(keys) for section, keys in KEYS.items()}
    for name, model in ENTRIES.items():
        assert f"# [[{name}]]" in text
        assert all(f"\n#   {key}" in text for key in keys_of(model))
    assert max(map(len, text.splitlines())) <= 128


def shown(file, flags=None, settings=(), *, with_origin=False, only_given=False):
    """Return the text that `config show` prints."""
    flags = flags or {}
    layers = read_layers(file, flags, settings)
    order = load_order(file, flags, settings)
    return effective_order(order, layers, with_origin=with_origin, only_given=only_given)


def test_an_effective_order_loads_as_the_same_order(file) -> None:
    """Also what is written in several ways, and the entries."""
    file.write_text(
        '[dns]\nservers = ["[::1]:53", "1.1.1.1"]\n[dns.hosts]\n"a.test" = "127.0.0.1:80"\n'
        '[agent]\ncontact = "a@b.test"\n[[override]]\nsurt = "a.test"\nmin_delay = "250ms"\n'
    )
    order = load_order(file, {"min_delay": "1s"})
    again = file.parent / "again.toml"
    again.write_text(shown(file, {"min_delay": "1s"}))
    assert load_order(again, {}) == order


def test_only_what_is_given_is_shown_if_that_is_wanted(file) -> None:
    """Sections of which nothing is given are left out; a value that equals the default was given all the same."""
    file.write_text('[crawl]\nworkers = 100\n[dns.hosts]\n"a.test" = "127.0.0.1:80"\n')
    text = shown(file, {"min_delay": "1s"}, only_given=True)
    assert tomllib.loads(text) == {
        "politeness": {"min_delay": "1s"},
        "crawl": {"workers": 100},
        "dns": {"hosts": {"a.test": "127.0.0.1:80"}},
    }


def test_each_value_names_its_source(file, monkeypatch) -> None:
    """The strongest of those that speak of it. A longer path would stand in a line of its own."""
    monkeypatch.chdir(file.parent)
    file = Path(file.name)
    monkeypatch.setenv("ANABRANCH_CRAWL__WORKERS", "7")
    monkeypatch.setenv("ANABRANCH_FETCH__TIMEOUT", "7s")
    file.write_text("[crawl]\nworkers = 3\n\n[fetch]\nmax_body = 5\n[limits]\npages = 1\n")
    flags = {"timeout": "5s", "limit": 2}
    layers = read_layers(file, flags, ["limits.pages=9", "scope.max_hops=1"])
    places = [("fetch", "timeout"), ("crawl", "workers"), ("fetch", "max_body"), ("scope", "max_hops")]
    assert [origin(layers, *place) for place in places] == [
        "--timeout",
        "ANABRANCH_CRAWL__WORKERS",
        f"{file}:5",
        "-s scope.max_hops",
    ]
    assert origin(layers, "limits", "pages") == "--limit"
    assert origin(layers, "politeness", "min_delay") == "default"
    text = shown(file, flags, with_origin=True)
    assert re.search(rf'^max_body = "5B" +# {re.escape(str(file))}:5$', text, re.MULTILINE)
    assert "# --timeout" in text


def test_the_schema_knows_every_key_with_its_words_and_its_default() -> None:
    """An editor shows them; quantities may be numbers or text."""
    schema = order_schema()
    json.dumps(schema)
    for name, model in {**SECTIONS, **ENTRIES}.items():
        definition = schema["$defs"][model.__name__]
        assert set(definition["properties"]) == set(keys_of(model))
        assert definition["additionalProperties"] is False
        assert all(known["description"] for known in definition["properties"].values()), name
    limits = schema["$defs"]["LimitsSection"]["properties"]
    assert limits["min_free_disk"]["type"] == ["number", "string"]
    assert limits["min_free_disk"]["default"] == "1GB"
    workers = schema["$defs"]["CrawlSection"]["properties"]["workers"]
    assert (workers["minimum"], workers["maximum"]) == (1, 10_000)
