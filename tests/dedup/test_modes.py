import json
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.dedup.errors import BadParameters, FormatMismatch
from anabranch.dedup.modes import MODES, UniqParameters, recorded
from anabranch.dedup.smm.fileindex import levels_for
from anabranch.dedup.uniq import UniqFilter

SMALL = UniqParameters(levels=(1, 1), expected=1000, false_positive=0.01, leaf_bits=1 << 12)


def test_the_cheapest_stage_is_asked_first_and_the_exact_one_last() -> None:
    """A later stage is asked about fewer keys."""
    assert MODES["both"] == ("smm", "dsbf")
    assert MODES["exact"] == ("smm", "exact")


def test_an_unknown_mode_names_those_that_there_are(tmp_path: Path) -> None:
    """And leaves no folder that another mode could not use."""
    with pytest.raises(BadParameters, match="mode 'fast' is unknown; there are: smm, dsbf, both, exact"):
        UniqFilter.open(tmp_path / "u", replace(SMALL, mode="fast"))
    UniqFilter.open(tmp_path / "u", SMALL).close()


@pytest.mark.parametrize(
    "wrong", [{"leaf_bits": 1000}, {"expected": -5}, {"signature": "crc33"}, {"levels": (1, 9)}, {"levels": (2, 3)}]
)
def test_numbers_that_make_no_filter_spoil_no_folder(tmp_path: Path, wrong: dict[str, object]) -> None:
    """They are refused before anything is recorded, so that the corrected ones may be tried in the same place."""
    with pytest.raises(BadParameters, match=next(iter(wrong))):
        UniqFilter.open(tmp_path / "u", replace(SMALL, **wrong))
    UniqFilter.open(tmp_path / "u", SMALL).close()


def test_what_is_recorded_is_read_without_the_users_own_signature(tmp_path: Path) -> None:
    """The function may not be importable where somebody only looks; to open the filter it has to be."""
    UniqFilter.open(tmp_path / "u", SMALL).close()
    path = tmp_path / "u" / "FORMAT"
    path.write_text(path.read_text().replace("crc32", "nowhere:function"))
    found = recorded(tmp_path / "u")
    assert found is not None
    assert found.signature == "nowhere:function"
    with pytest.raises(BadParameters, match="nowhere"):
        UniqFilter.open(tmp_path / "u", found)


@pytest.mark.parametrize("expected", [0, 1000, 10_000_000])
def test_levels_follow_the_expected_keys_unless_they_are_given(expected: int) -> None:
    """None asks for the smallest that do; what was chosen is recorded."""
    assert UniqParameters(expected=expected).smm_levels == levels_for(expected)
    assert UniqParameters(expected=expected).format.parameters["levels"] == list(levels_for(expected))
    assert UniqParameters(expected=expected, levels=(1, 1, 3)).smm_levels == (1, 1, 3)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_recorded_is_what_the_filter_was_made_with(tmp_path: Path, mode: str) -> None:
    """So a program can go on with a folder without being told its parameters."""
    made = replace(SMALL, mode=mode)
    UniqFilter.open(tmp_path / "u", made).close()
    found = UniqFilter.recorded(tmp_path / "u")
    assert found is not None
    assert found.mode == mode
    assert found.format == made.format
    UniqFilter.open(tmp_path / "u", found).close()


def test_only_what_concerns_the_mode_is_recorded_and_compared(tmp_path: Path) -> None:
    """An SMM has no use for the leaves' size: another one is the same filter."""
    UniqFilter.open(tmp_path / "u", replace(SMALL, mode="smm")).close()
    UniqFilter.open(tmp_path / "u", replace(SMALL, mode="smm", leaf_bits=1 << 13, expected=7)).close()
    assert set(json.loads((tmp_path / "u" / "FORMAT").read_text())["parameters"]) == {"mode", "signature", "levels"}


def test_where_there_is_no_filter_nothing_is_recorded(tmp_path: Path) -> None:
    """Neither in a folder without FORMAT nor where there is no folder."""
    assert recorded(tmp_path) is None
    assert recorded(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"magic": "other"}, "is not the file of an anabranch uniq filter"),
        ({"version": 1}, "version 1, this program reads 2"),
        ({"parameters": 5}, "parameters"),
        ({"parameters": {"mode": "both", "color": "red"}}, "its parameters are not those of a filter"),
        ({"parameters": {"mode": "other"}}, "its parameters are not those of a filter"),
        ({"parameters": {"mode": ["both"]}}, "its parameters are not those of a filter"),
        (
            {"parameters": {"mode": "smm", "levels": 3, "signature": "crc32"}},
            "its parameters are not those of a filter",
        ),
        ({"parameters": {"mode": "both"}}, "parameters"),
        (
            {"parameters": dict(SMALL.format.parameters) | {"false_positive": "x"}},
            "its parameters are not those of a filter",
        ),
    ],
)
def test_a_damaged_or_foreign_record_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    """The message names the file and what is wrong with it."""
    UniqFilter.open(tmp_path / "u", SMALL).close()
    path = tmp_path / "u" / "FORMAT"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FormatMismatch, match=message):
        recorded(tmp_path / "u")
    with pytest.raises(FormatMismatch, match="FORMAT"):
        UniqFilter.open(tmp_path / "u", SMALL)
