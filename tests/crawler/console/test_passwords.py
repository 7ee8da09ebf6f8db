"""Passwords of people: hashed, changed by other processes, and guessed slowly."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from anabranch.crawler.console.access import ConsoleRole, Holder
from anabranch.crawler.console.passwords import Passwords
from anabranch.crawler.outcomes.errors import StorageError, UsageError

PASSWORD = "correct horse battery"


@pytest.fixture
def passwords(tmp_path):
    made = Passwords(tmp_path)
    made.put("ada", PASSWORD, ConsoleRole.READER)
    return made


def test_a_name_and_its_password_are_asked_for_together(passwords):
    """Neither is enough, and nothing else passes."""
    assert passwords.holder("ada", PASSWORD, 0.0) == Holder("ada", ConsoleRole.READER)
    for name, password in (
        ("bob", PASSWORD),
        ("ada", f"{PASSWORD} "),
        ("", PASSWORD),
        ("ada", "x" * 5000),
        ("ada", "\ud800"),
    ):
        passwords = Passwords(passwords._file.path.parent)
        assert passwords.holder(name, password, 0.0) is None


def test_the_file_has_salted_hashes_for_its_owner_alone(passwords, tmp_path):
    """Two with the same password have different ones."""
    passwords.put("bob", PASSWORD, ConsoleRole.OPERATOR)
    file = tmp_path / "passwords.json"
    ada, bob = json.loads(file.read_text())
    assert ada[-1] != bob[-1]
    assert PASSWORD not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("name", "password"),
    [("", PASSWORD), ("a/b", PASSWORD), ("x" * 65, PASSWORD), ("bob", ""), ("bob", "short"), ("bob", "x" * 1001)],
)
def test_what_is_no_name_and_no_password_is_refused(passwords, name, password):
    """In one line, and nothing is kept of it."""
    with pytest.raises(UsageError):
        passwords.put(name, password, ConsoleRole.OPERATOR)
    assert passwords.digest(name) == ""


def test_what_another_process_changes_counts_at_once(passwords, tmp_path):
    """A new password, and one that is removed."""
    other = Passwords(tmp_path)
    other.put("ada", "another password", ConsoleRole.OPERATOR)
    assert passwords.holder("ada", PASSWORD, 0.0) is None
    assert passwords.holder("ada", "another password", 0.0) == Holder("ada", ConsoleRole.OPERATOR)
    other.remove("ada")
    assert passwords.holder("ada", "another password", 0.0) is None
    assert not passwords.has_any
    with pytest.raises(UsageError, match="nobody has one"):
        other.remove("ada")


def test_guesses_wait_longer_and_longer(passwords):
    """After three failures; a try before that counts for nothing, also with the right password; a success ends it."""
    waits, now_s = [], 0.0
    for _ in range(12):
        assert passwords.holder("ada", "guess", now_s) is None
        waits.append(passwords.wait_s(now_s))
        if waits[-1]:
            assert passwords.holder("ada", PASSWORD, now_s) is None
        now_s += waits[-1]
    assert waits == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert passwords.holder("ada", PASSWORD, now_s) is not None
    assert passwords.wait_s(now_s) == 0.0


def test_many_guesses_at_once_are_not_all_the_first(passwords):
    """One after the other is looked at: those after the third have to wait."""
    with ThreadPoolExecutor(8) as threads:
        assert not any(threads.map(lambda number: passwords.holder("ada", f"guess {number}", 0.0), range(16)))
    assert passwords.wait_s(0.0) == 1.0


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]", '[["ada"]]', '[["ada", "king", "", ""]]'])
def test_a_damaged_file_is_one_line(passwords, tmp_path, text):
    """Nobody gets in by it."""
    (tmp_path / "passwords.json").write_text(text)
    with pytest.raises(StorageError, match=r"passwords\.json: cannot be read"):
        passwords.holder("ada", PASSWORD, 0.0)
