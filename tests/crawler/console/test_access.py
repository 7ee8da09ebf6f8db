"""Tokens: made once, kept as digests, revoked at once."""

import json
import os
from pathlib import Path

import pytest

from anabranch.crawler.console.access import Access, ConsoleRole, Holder, default_folder
from anabranch.crawler.outcomes.errors import StorageError, UsageError


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state" / "console"


def test_a_token_names_its_holder(folder):
    """Other texts, also the name or the digest, name nobody."""
    access = Access(folder)
    token = access.make("ci", ConsoleRole.READER)
    assert access.holder(token) == Holder("ci", ConsoleRole.READER)
    others = ("", "ci", access.tokens()[0].digest, token + " ", token[:-1], "\udc80", "x" * 1_000_000)
    assert [access.holder(text) for text in others] == [None] * len(others)


def test_only_digests_are_kept_and_only_the_owner_reads_them(folder):
    """Whatever the umask is."""
    umask = os.umask(0)
    try:
        token = Access(folder).make("ci", ConsoleRole.OPERATOR)
    finally:
        os.umask(umask)
    assert token not in (folder / "tokens.json").read_text()
    assert (folder.stat().st_mode & 0o777, (folder / "tokens.json").stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_change_by_another_process_counts_at_once(folder):
    """Revoked is revoked, and what is new is known, without a restart."""
    here, other = Access(folder), Access(folder)
    token = other.make("ci", ConsoleRole.OPERATOR)
    assert here.holder(token) is not None
    other.revoke("ci")
    assert here.holder(token) is None
    assert here.holder(other.make("ci", ConsoleRole.READER)) == Holder("ci", ConsoleRole.READER)
    (folder / "tokens.json").unlink()
    assert here.tokens() == []


def test_a_name_is_plain_and_used_once(folder):
    """Revoking an unknown name lists those that there are."""
    access = Access(folder)
    access.make("a.b-c_1", ConsoleRole.READER)
    for name in ("", "a b", "x" * 65, "é", "a\n"):
        with pytest.raises(UsageError, match="give the token a name"):
            access.make(name, ConsoleRole.READER)
    with pytest.raises(UsageError, match="revoke it first"):
        access.make("a.b-c_1", ConsoleRole.OPERATOR)
    with pytest.raises(UsageError, match=r"the tokens are: a\.b-c_1"):
        access.revoke("nosuch")


@pytest.mark.parametrize("text", ["{", "[1]", '[["a", "owner", "d", 1]]', '[["a"]]'])
def test_a_damaged_file_is_an_error_and_lets_nobody_in(folder, text):
    """The line says what to do."""
    access = Access(folder)
    (folder / "tokens.json").write_text(text)
    with pytest.raises(StorageError, match="make the tokens again"):
        access.holder("x")


def test_a_folder_that_others_can_write_is_refused(tmp_path):
    """They could make tokens there."""
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match="others can write there; run `chmod go-w"):
        Access(tmp_path)


def test_the_folder_is_that_of_the_user_s_state():
    """It follows the XDG base directories."""
    assert default_folder({"XDG_STATE_HOME": "/s"}) == Path("/s/anabranch/console")
    assert default_folder({}) == Path.home() / ".local/state/anabranch/console"


def test_the_file_is_json_of_rows(folder):
    """Name, role, digest and time."""
    Access(folder).make("ci", ConsoleRole.READER)
    ((name, role, digest, made_s),) = json.loads((folder / "tokens.json").read_bytes())
    assert (name, role, len(digest), made_s > 0) == ("ci", "reader", 64, True)
