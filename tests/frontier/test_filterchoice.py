"""Which filter a Frontier has: by name, fixed for a job, and made anew from the store when another one is wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.dedup.uniq import UniqParameters
from anabranch.frontier.composition import clear_filter, open_frontier
from anabranch.frontier.errors import FormatMismatch, PolicyError
from anabranch.frontier.filterchoice import checked_choice, filter_choice
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.records import NEW, SEEN
from tests.frontier.builder import candidates
from tests.rows import each_row

ORDER = FrontierOrder(policy="host", uniq=UniqParameters(levels=(1, 1), expected=1000, leaf_bits=1 << 14))
URLS = [f"http://a.test/{number}" for number in range(50)]
MINE = f"{__name__}:LinesFilter"


class LinesFilter:
    """A plug-in: a set, and a file with a line for each key. What is in the file is known for ever."""

    blocks = False

    def __init__(self, folder: Path) -> None:
        self._path = folder / "keys.txt"
        self._keys = set(self._path.read_bytes().split()) if self._path.exists() else set[bytes]()
        self._asked = 0

    def unseen(self, keys: Sequence[bytes]) -> list[bool]:
        self._asked += len(keys)
        return [key not in self._keys for key in keys]

    def mark(self, keys: Sequence[bytes]) -> None:
        self._keys.update(keys)

    def sync(self) -> None:
        self._path.write_bytes(b"\n".join(self._keys))

    def position(self) -> str:
        return ""

    def close(self) -> None:
        self.sync()

    def facts(self) -> Mapping[str, float | str]:
        return {"filter": "mine", "keys": len(self._keys), "asked": self._asked, "expected_lost": 0.0}


class BlockingFilter(LinesFilter):
    blocks = True


class HalfAFilter:
    def __init__(self, folder: Path) -> None:
        self.blocks = False

    def unseen(self, keys: Sequence[bytes]) -> list[bool]:
        return [True for _ in keys]


def failing(folder: Path) -> LinesFilter:
    raise ValueError(f"no room\nin {folder.name}")


@each_row(
    ("settings", "choice"),
    [
        ({}, UniqParameters()),
        (
            {"filter": "smm", "levels": [1, 1], "signature": "xxh3"},
            UniqParameters(mode="smm", levels=(1, 1), signature="xxh3-64"),
        ),
        ({"filter": "both", "levels": (), "leaf_kind": ""}, UniqParameters()),
        ({"leaf_kind": "classic"}, UniqParameters(leaf_kind="classic")),
        (
            {"leaf_bits": 1024, "split_fan_out": 2, "false_positive": 0.1, "expect": 9},
            UniqParameters(leaf_bits=1024, split_fan_out=2, false_positive=0.1, expected=9),
        ),
        ({"filter": MINE, "expect": 9}, MINE),
    ],
)
def test_the_names_of_an_order_make_the_choice(settings: dict[str, Any], choice: object) -> None:
    """A crawl order, the settings of a host program and the command line use the same names."""
    assert filter_choice(settings) == choice


@each_row(
    ("uniq", "words"),
    [
        ("similar", "is a stage in front of a filter"),
        ("bloom", "filter 'bloom' is unknown; choose one of smm, dsbf, both, exact, or package.module:Class"),
        (UniqParameters(mode="bloom"), "'bloom' is unknown"),
        (UniqParameters(signature="crc64"), "signature 'crc64' is unknown"),
        (UniqParameters(leaf_bits=1000), "leaf_bits is 1000; it must be a power of two"),
        (UniqParameters(levels=(3, 3)), "ask for more than the 4 bytes of crc32"),
        ("no.such:Filter", "filter 'no.such:Filter' cannot be imported"),
        (7, "uniq 7: give UniqParameters"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(uniq: object, words: str) -> None:
    """In one line, before anything is opened."""
    with pytest.raises(PolicyError, match=words):
        checked_choice(uniq)
    with pytest.raises(PolicyError, match=words):
        open_frontier(None, replace(ORDER, uniq=uniq))


@pytest.mark.parametrize("name", ["smm", "dsbf", "both", "exact", MINE])
def test_a_filter_is_chosen_by_name(tmp_path: Path, name: str) -> None:
    """Its URLs are known at the next opening."""
    with open_frontier(tmp_path, ORDER, seen=name) as frontier:
        assert set(frontier.schedule(candidates(*URLS))) == {NEW}
        frontier.flush()
        facts = frontier.operations.statistics().seen
        assert (facts["filter"], facts["keys"]) == ("mine" if name == MINE else name, 50)
    with open_frontier(tmp_path, ORDER, seen=name) as frontier:
        assert set(frontier.schedule(candidates(*URLS))) == {SEEN}
        frontier.operations.check()


@pytest.mark.parametrize(
    ("there", "wanted", "words"),
    [
        ("both", "smm", r"has the filter both \(.*\), the order asks for smm \(.*\)"),
        ("exact", MINE, rf"has the filter exact \(.*\), the order asks for {MINE}"),
        (MINE, "dsbf", rf"has the filter {MINE}, the order asks for dsbf \("),
        (UniqParameters(expected=10), UniqParameters(expected=11), r"expect 10, .* expect 11, "),
        (UniqParameters(signature="md5"), UniqParameters(), r"signature md5, .*signature crc32"),
    ],
)
def test_another_filter_is_refused_until_it_is_rebuilt(tmp_path: Path, there: Any, wanted: Any, words: str) -> None:
    """Nothing is changed by the refusal, which names both filters and the command; nothing is fetched again."""
    state = tmp_path / "state"
    with open_frontier(state, ORDER, seen=there) as frontier:
        frontier.schedule(candidates(*URLS))
    with pytest.raises(FormatMismatch, match=words) as refused:
        open_frontier(state, ORDER, seen=wanted)
    mode = wanted.mode if isinstance(wanted, UniqParameters) else wanted
    assert f"anabranch frontier rebuild-filter {tmp_path} -s dedup.filter={mode}" in str(refused.value)
    with open_frontier(state, ORDER, seen=there) as frontier:
        assert set(frontier.schedule(candidates(*URLS))) == {SEEN}
    clear_filter(state)
    with open_frontier(state, ORDER, seen=wanted) as frontier:
        assert set(frontier.schedule(candidates(*URLS))) == {SEEN}
        assert frontier.schedule(candidates("http://b.test/")) == [NEW]
        frontier.operations.check()


def test_the_command_of_a_refusal_has_all_settings(tmp_path: Path) -> None:
    """It can be pasted."""
    with open_frontier(tmp_path / "state", ORDER):
        pass
    with pytest.raises(
        FormatMismatch, match=r" -s dedup.filter=smm -s dedup.signature=md5 -s 'dedup.levels=1 2' -s dedup.expect=7$"
    ):
        open_frontier(
            tmp_path / "state", ORDER, seen=UniqParameters(mode="smm", signature="md5", levels=(1, 2), expected=7)
        )


def test_a_program_is_told_to_remove_the_folder(tmp_path: Path) -> None:
    """Its state is no job of the command."""
    with open_frontier(tmp_path / "mine", ORDER):
        pass
    with pytest.raises(FormatMismatch, match=rf"or remove {tmp_path / 'mine' / 'seen'}, and the next opening"):
        open_frontier(tmp_path / "mine", ORDER, seen="exact")


def test_a_filter_without_its_record_is_damaged(tmp_path: Path) -> None:
    """It is no other filter."""
    with open_frontier(tmp_path / "state", ORDER):
        pass
    (tmp_path / "state" / "seen" / "FORMAT").unlink()
    with pytest.raises(
        FormatMismatch, match=r"FORMAT is missing: the filter is damaged; make the other one .*rebuild-filter"
    ):
        open_frontier(tmp_path / "state", ORDER)


def test_what_is_no_filter_is_refused() -> None:
    """At once."""
    with pytest.raises(TypeError, match="seen 5: give a filter"):
        open_frontier(None, ORDER, seen=5)


def test_a_folder_that_is_left_without_a_filter_gets_the_one_that_is_asked_for(tmp_path: Path) -> None:
    """A rebuilding that was killed or failed leaves such a folder, whichever order comes next."""
    with open_frontier(tmp_path, ORDER) as frontier:
        frontier.schedule(candidates(*URLS))
    for name in ("exact", "smm", MINE, "both"):
        clear_filter(tmp_path)
        clear_filter(tmp_path)
        with open_frontier(tmp_path, ORDER, seen=name) as frontier:
            assert set(frontier.schedule(candidates(*URLS))) == {SEEN}


def test_a_plug_in_that_was_killed_at_its_making_is_no_riddle(tmp_path: Path) -> None:
    """Its folder is there before its name is kept."""
    with open_frontier(tmp_path, ORDER, seen=MINE) as frontier:
        frontier.schedule(candidates(*URLS))
    (tmp_path / "seen" / "STORE").unlink()
    with pytest.raises(FormatMismatch, match=r"has the filter of a plug-in, the order asks for both .*or remove"):
        open_frontier(tmp_path, ORDER)
    with open_frontier(tmp_path, ORDER, seen=MINE) as frontier:
        assert set(frontier.schedule(candidates(*URLS))) == {SEEN}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("BlockingFilter", "blocks: only a program can use it"),
        ("HalfAFilter", "is no SeenFilter: it lacks mark, sync, position, close, facts"),
        ("failing", "ValueError: no room in plugin"),
    ],
)
def test_a_plug_in_that_is_no_filter_is_refused(tmp_path: Path, name: str, words: str) -> None:
    """One line, which names the class."""
    with pytest.raises(PolicyError, match=words):
        open_frontier(tmp_path, ORDER, seen=f"{__name__}:{name}")


def test_a_filter_of_an_earlier_version_is_known_by_its_own_record(tmp_path: Path) -> None:
    """Its folder has no name of the filter, and no compact form."""
    with open_frontier(tmp_path, ORDER) as frontier:
        frontier.schedule(candidates(*URLS))
    pair = tmp_path / "seen" / "STORE"
    pair.write_text(pair.read_text().replace(', "filter": "both"', ""))
    with open_frontier(tmp_path, ORDER) as frontier:
        assert set(frontier.schedule(candidates(*URLS))) == {SEEN}
    with pytest.raises(FormatMismatch, match="has the filter both"):
        open_frontier(tmp_path, ORDER, seen="exact")
