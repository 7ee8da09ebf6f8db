"""Filters by name: what is chosen is made, what is made is recorded, and what is recorded need not be chosen again."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.dedup.errors import BadParameters, FilterInUse, FormatMismatch
from anabranch.dedup.linefilters import CHOICES, Choice, Contradiction, NoSuchChoice, open_filter, open_shared
from anabranch.dedup.uniq import UniqFilter

#: Small ones, and nothing at its default.
CHOSEN: dict[str, Choice] = {
    "smm": Choice(kind="smm", signature="md5", levels=(1, 1)),
    "dsbf": Choice(kind="dsbf", expected=1000, false_positive=0.01),
    "both": Choice(kind="both", signature="md5", levels=(1, 1), expected=1000, false_positive=0.01),
    "exact": Choice(kind="exact", signature="md5", levels=(1, 1)),
    "similar": Choice(
        kind="similar",
        expected=1000,
        false_positive=0.01,
        features=("site", "tail"),
        site_bound=True,
        drop_query=True,
    ),
}
#: A value other than the chosen one.
OTHERS: dict[str, Any] = {
    "leaf_kind": "classic",
    "leaf_bits": 1 << 12,
    "split_fan_out": 2,
    "signature": "sha1",
    "levels": (1, 2),
    "expected": 2_000_000,
    "false_positive": 0.02,
    "features": ("site",),
    "site_bound": False,
    "drop_query": False,
}
KEYS = [b"http://a.test/1", b"http://b.test/2"]


def pass_on(folder: Path, choice: Choice, keys: list[bytes] = KEYS) -> tuple[str, list[bool]]:
    """The kind of the folder's filter, and which keys are new to it; they are marked then."""
    opened = open_filter(folder, choice)
    try:
        new = opened.unseen(keys).tolist()
        opened.mark([key for key, is_new in zip(keys, new, strict=True) if is_new])
    finally:
        opened.close()
    return opened.kind, new


@pytest.mark.parametrize("kind", CHOICES)
def test_a_folder_goes_on_as_what_it_was_made(tmp_path: Path, kind: str) -> None:
    """Naming nothing is enough; naming the same again is allowed."""
    assert pass_on(tmp_path / "f", CHOSEN[kind]) == (kind, [True, True])
    assert pass_on(tmp_path / "f", Choice()) == (kind, [False, False])
    assert pass_on(tmp_path / "f", CHOSEN[kind]) == (kind, [False, False])


def test_without_a_choice_both_filters_are_asked(tmp_path: Path) -> None:
    """A small number of URLs is named only to be quick."""
    assert pass_on(tmp_path / "f", Choice(expected=1000))[0] == "both"


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in CHOICES for name in sorted(CHOICES[kind])])
def test_a_choice_that_contradicts_the_folder_is_refused_and_named(tmp_path: Path, kind: str, name: str) -> None:
    """Nothing is changed by the attempt."""
    pass_on(tmp_path / "f", CHOSEN[kind])
    with pytest.raises(Contradiction, match=r"was made with .*leave it out") as refused:
        open_filter(tmp_path / "f", Choice(**{name: OTHERS[name]}))
    assert isinstance(refused.value, FormatMismatch)
    assert refused.value.choice == name
    assert pass_on(tmp_path / "f", Choice()) == (kind, [False, False])


@pytest.mark.parametrize("kind", CHOICES)
def test_another_kind_is_refused(tmp_path: Path, kind: str) -> None:
    """A filter that is asked less would forget what it knows."""
    pass_on(tmp_path / "f", CHOSEN[kind])
    other = "dsbf" if kind != "dsbf" else "smm"
    with pytest.raises(Contradiction) as refused:
        open_filter(tmp_path / "f", Choice(kind=other))
    assert refused.value.choice == "kind"


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in CHOICES for name in sorted(OTHERS.keys() - CHOICES[kind])]
)
def test_a_choice_that_the_filter_does_not_have_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    """It would have no effect, and somebody thinks that it has."""
    with pytest.raises(NoSuchChoice, match=kind) as refused:
        open_filter(tmp_path / "f", Choice(kind=kind, **{name: OTHERS[name]}))
    assert isinstance(refused.value, BadParameters)
    assert refused.value.choice == name
    assert not (tmp_path / "f").exists()


def test_an_unknown_kind_is_refused_with_those_there_are(tmp_path: Path) -> None:
    """One line for a slip of the pen."""
    with pytest.raises(NoSuchChoice, match="'bloom' is unknown; there are: smm, dsbf, both, exact, similar"):
        open_filter(tmp_path / "f", Choice(kind="bloom"))


def test_an_smm_is_as_large_as_what_is_expected(tmp_path: Path) -> None:
    """And the same number agrees with it later, though only the levels are recorded."""
    few, many = Choice(kind="smm", expected=1000), Choice(kind="smm", expected=50_000_000)
    pass_on(tmp_path / "f", few)
    assert pass_on(tmp_path / "f", few) == ("smm", [False, False])
    with pytest.raises(Contradiction, match="was made with levels 1,2, not levels 1,3; leave it out") as refused:
        open_filter(tmp_path / "f", many)
    assert refused.value.choice == "expected"


def test_an_smm_alone_is_as_large_as_its_rate_asks(tmp_path: Path) -> None:
    """It is sized like that of a crawl: at the expected number of keys its fill is at most the rate."""
    pass_on(tmp_path / "f", Choice(kind="smm", expected=200))
    with pytest.raises(Contradiction, match="was made with levels 1,2, not levels 1,1") as refused:
        open_filter(tmp_path / "f", Choice(expected=200, false_positive=0.01))
    assert refused.value.choice == "expected"
    with pytest.raises(BadParameters, match="false_positive"):
        open_filter(tmp_path / "g", Choice(kind="smm", false_positive=2.0))


def test_an_smm_of_an_earlier_version_goes_on_with_the_number_it_was_made_for(tmp_path: Path) -> None:
    """It was smaller for the same number."""
    pass_on(tmp_path / "f", Choice(kind="smm", signature="crc32", levels=(1, 1)))
    assert pass_on(tmp_path / "f", Choice(expected=200)) == ("smm", [False, False])


@pytest.mark.parametrize(
    ("choice", "again", "warned"),
    [
        (Choice(kind="smm", expected=1000, levels=(1, 1)), Choice(), (True, False)),
        (Choice(kind="smm", expected=1000, levels=(1, 1)), Choice(expected=1000, levels=(1, 1)), (True, True)),
        (Choice(kind="smm", expected=1000, levels=(1, 1), false_positive=0.01), Choice(), (False, False)),
        (Choice(kind="smm", expected=1000), Choice(), (False, False)),
        (Choice(kind="both", expected=1000, levels=(1, 1)), Choice(), (False, False)),
        (Choice(kind="similar", expected=1000), Choice(), (False, False)),
    ],
)
def test_a_plan_that_loses_more_than_its_rate_allows_warns(
    tmp_path: Path, choice: Choice, again: Choice, warned: tuple[bool, bool]
) -> None:
    """When the filter is made, and whenever the number is named: the folder of an SMM does not keep it."""
    for named, is_warned in zip((choice, again), warned, strict=True):
        opened = open_filter(tmp_path / "f", named)
        opened.close()
        assert bool(opened.warning) == is_warned
        assert not is_warned or "is expected to lose 8 of 1,000 URLs, more than false_positive" in opened.warning


def test_a_similar_url_is_dropped(tmp_path: Path) -> None:
    """Also one that is similar to a new one before it in the same batch."""
    choice = Choice(kind="similar", features=("site", "directory"))
    urls = [b"http://a.test/x/1", b"http://a.test/x/2", b"http://a.test/y/1"]
    assert pass_on(tmp_path / "f", choice, urls)[1] == [True, False, True]
    assert pass_on(tmp_path / "f", Choice(), urls)[1] == [False, False, False]


@pytest.mark.parametrize("kind", CHOICES)
def test_a_filter_tells_how_much_it_knows(tmp_path: Path, kind: str) -> None:
    """Keys, and what a new one risks."""
    pass_on(tmp_path / "f", CHOSEN[kind])
    opened = open_filter(tmp_path / "f", Choice())
    facts = opened.facts()
    opened.close()
    assert (facts["filter"], facts["keys"]) == (kind, 2)
    assert 0 <= facts["false_drop_probability"] < 0.01
    assert ("expected_lost" not in facts) == (kind == "similar")


@pytest.mark.parametrize("kind", CHOICES)
def test_a_filter_in_use_is_refused_unless_it_is_an_smm(tmp_path: Path, kind: str) -> None:
    """An SMM alone may be shared by processes."""
    opened = open_filter(tmp_path / "f", CHOSEN[kind])
    try:
        if kind == "smm":
            open_filter(tmp_path / "f", Choice()).close()
        else:
            with pytest.raises(FilterInUse):
                open_filter(tmp_path / "f", Choice())
    finally:
        opened.close()


@pytest.mark.parametrize("kind", ["both", "similar"])
@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ({"magic": "something else"}, "holds something else"),
        ({"version": 99}, "version 99"),
        ({"parameters": {"mode": "odd"}}, "parameters"),
        ({"parameters": 7}, "parameters"),
    ],
    ids=str,
)
def test_a_foreign_or_damaged_folder_is_refused(tmp_path: Path, kind: str, harm: dict[str, object], words: str) -> None:
    """It is left as it is."""
    pass_on(tmp_path / "f", CHOSEN[kind])
    path = tmp_path / "f" / "FORMAT"
    path.write_text(json.dumps(json.loads(path.read_text()) | harm))
    before = path.read_bytes()
    with pytest.raises(FormatMismatch, match=words):
        open_filter(tmp_path / "f", Choice())
    assert path.read_bytes() == before


def test_only_what_is_in_the_servers_can_be_shared() -> None:
    """A local SMM does not know what others saw. No server is asked."""
    for kind in CHOICES.keys() - {"dsbf"}:
        with pytest.raises(NoSuchChoice, match="only dsbf can be shared"):
            open_shared(["redis://127.0.0.1:1"], "urls", Choice(kind=kind))
    for name in OTHERS.keys() - CHOICES["dsbf"]:
        with pytest.raises(NoSuchChoice):
            open_shared(["redis://127.0.0.1:1"], "urls", replace(Choice(), **{name: OTHERS[name]}))


def test_an_empty_kind_is_no_kind(tmp_path: Path) -> None:
    """It does not stand for the default."""
    with pytest.raises(NoSuchChoice, match="'' is unknown"):
        open_filter(tmp_path / "f", Choice(kind=""))


def test_an_error_of_the_system_names_a_file_or_else_the_folder(tmp_path: Path) -> None:
    """Whichever call it comes from; one that has a name keeps it."""
    pass_on(tmp_path / "f", CHOSEN["dsbf"])
    manifest = tmp_path / "f" / "dsbf" / "MANIFEST"
    manifest.unlink()
    manifest.mkdir()
    with pytest.raises(IsADirectoryError) as raised:
        open_filter(tmp_path / "f", Choice())
    assert str(raised.value.filename).startswith(str(tmp_path / "f"))


@pytest.mark.parametrize("call", ["unseen", "mark", "sync", "check", "close"])
def test_every_call_of_a_filter_names_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A disk that fails says only that it fails."""
    arguments = [KEYS] if call in {"unseen", "mark"} else []

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(UniqFilter, call, fail)
        opened = open_filter(tmp_path / "f", CHOSEN["smm"])
        with pytest.raises(OSError, match="Input/output error") as raised:
            getattr(opened, call)(*arguments)
    assert raised.value.filename == str(tmp_path / "f")
