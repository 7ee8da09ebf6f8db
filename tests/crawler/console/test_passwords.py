"""Passwords of people: hashed, changed by other processes, and guessed slowly."""

import json
from concurrent.futures import ThreadPoolExecutor
from hashlib import scrypt

import pytest

from anabranch.crawler.console.access import ConsoleRole, Holder
from anabranch.crawler.console.passwords import _MOST_KEPT, Passwords, _Throttle
from anabranch.crawler.outcomes.errors import StorageError, UsageError

PASSWORD = "correct horse battery"
HERE = "192.0.2.1"
#: A hash costs a real console 50 ms and these tests nothing.
CHEAP = 2


@pytest.fixture
def passwords(tmp_path):
    made = Passwords(tmp_path, cost=CHEAP)
    made.put("ada", PASSWORD, ConsoleRole.READER)
    return made


def test_a_name_and_its_password_are_asked_for_together(passwords):
    """Neither is enough, and nothing else passes."""
    assert passwords.holder("ada", PASSWORD, HERE, 0.0) == Holder("ada", ConsoleRole.READER)
    for name, password in (
        ("bob", PASSWORD),
        ("ada", f"{PASSWORD} "),
        ("", PASSWORD),
        ("ada", "x" * 5000),
        ("ada", "\ud800"),
    ):
        passwords = Passwords(passwords._file.path.parent, cost=CHEAP)
        assert passwords.holder(name, password, HERE, 0.0) is None


def test_the_file_has_salted_hashes_for_its_owner_alone(passwords, tmp_path):
    """Two with the same password have different ones."""
    passwords.put("bob", PASSWORD, ConsoleRole.OPERATOR)
    file = tmp_path / "passwords.json"
    ada, bob = json.loads(file.read_text())
    assert ada[-1] != bob[-1]
    assert PASSWORD not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_a_hash_is_as_dear_to_whoever_steals_the_file_as_rfc_7914_advises(tmp_path):
    """By default: scrypt with N = 16384, r = 8, p = 1, and the salt beside it. So is each try."""
    passwords = Passwords(tmp_path)
    passwords.put("ada", PASSWORD, ConsoleRole.READER)
    ((_, _, salt, digest),) = json.loads((tmp_path / "passwords.json").read_text())
    assert digest == scrypt(PASSWORD.encode(), salt=salt.encode(), n=16384, r=8, p=1, maxmem=64 << 20).hex()
    assert passwords.holder("ada", PASSWORD, HERE, 0.0) == Holder("ada", ConsoleRole.READER)
    assert Passwords(tmp_path, cost=CHEAP).holder("ada", PASSWORD, HERE, 0.0) is None


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
    other = Passwords(tmp_path, cost=CHEAP)
    other.put("ada", "another password", ConsoleRole.OPERATOR)
    assert passwords.holder("ada", PASSWORD, HERE, 0.0) is None
    assert passwords.holder("ada", "another password", HERE, 0.0) == Holder("ada", ConsoleRole.OPERATOR)
    other.remove("ada")
    assert passwords.holder("ada", "another password", HERE, 0.0) is None
    assert not passwords.has_any
    with pytest.raises(UsageError, match="users with a password: none"):
        other.remove("ada")


def test_guesses_wait_longer_and_longer(passwords):
    """After three failures of an address; a try before that counts for nothing, also with the right password."""
    waits, now_s = [], 0.0
    for _ in range(12):
        assert passwords.holder("ada", "guess", HERE, now_s) is None
        waits.append(passwords.wait_s("ada", HERE, now_s))
        if waits[-1]:
            assert passwords.holder("ada", PASSWORD, HERE, now_s) is None
        now_s += waits[-1]
    assert waits == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert passwords.holder("ada", PASSWORD, HERE, now_s) is not None
    assert passwords.wait_s("ada", HERE, now_s + 3600) == 0.0


def test_who_guesses_locks_out_nobody_else(passwords):
    """However long somebody guesses from one address, the right password from another one works at once."""
    now_s = 0.0
    for number in range(60):
        assert passwords.holder("ada", f"guess {number}", HERE, now_s) is None
        now_s += passwords.wait_s("ada", HERE, now_s)
    assert passwords.wait_s("ada", HERE, now_s - 1) > 0
    assert passwords.holder("ada", PASSWORD, "192.0.2.2", now_s - 1) == Holder("ada", ConsoleRole.READER)


def test_an_address_waits_whatever_name_it_tries(passwords):
    """Also one that has a password itself, and uses it between guesses of another."""
    passwords.put("bob", PASSWORD, ConsoleRole.READER)
    for name in ("ada", "bob", "eve"):
        assert passwords.holder(name, "guess", HERE, 0.0) is None
        passwords.holder("bob", PASSWORD, HERE, 0.0)
    assert passwords.wait_s("mallory", HERE, 0.0) == 1.0


def test_a_name_that_is_guessed_from_many_addresses_waits(passwords):
    """At all addresses but those that had its password before; other names do not."""
    assert passwords.holder("ada", PASSWORD, "192.0.2.1", 0.0) is not None
    for number in range(40):
        passwords.holder("ada", "guess", f"198.51.100.{number}", 0.0)
    assert passwords.holder("ada", PASSWORD, "203.0.113.1", 0.0) is None
    assert passwords.wait_s("ada", "203.0.113.1", 0.0) == 1.0
    assert passwords.holder("ada", PASSWORD, "192.0.2.1", 0.0) is not None
    assert passwords.wait_s("bob", "203.0.113.1", 0.0) == 0.0


def test_what_is_kept_of_failures_is_bounded():
    """The newest addresses, names and logins are kept."""
    throttle = _Throttle()
    for number in range(_MOST_KEPT + 10):
        throttle.failed(f"name {number}", f"address {number}", 0.0)
        throttle.succeeded(f"name {number}", f"address {number}")
    sizes = (len(throttle._addresses._kept), len(throttle._names._kept), len(throttle._proven))
    assert sizes == (_MOST_KEPT,) * 3
    assert throttle._addresses.number(f"address {number}", 0.0) == 1


def test_many_guesses_at_once_are_not_all_the_first(passwords):
    """One after the other is looked at: those after the third have to wait."""
    with ThreadPoolExecutor(8) as threads:
        assert not any(threads.map(lambda number: passwords.holder("ada", f"guess {number}", HERE, 0.0), range(16)))
    assert passwords.wait_s("ada", HERE, 0.0) == 1.0


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]", '[["ada"]]', '[["ada", "king", "", ""]]'])
def test_a_damaged_file_is_one_line(passwords, tmp_path, text):
    """Nobody gets in by it."""
    (tmp_path / "passwords.json").write_text(text)
    with pytest.raises(StorageError, match=r"passwords\.json: cannot be read"):
        passwords.holder("ada", PASSWORD, HERE, 0.0)
