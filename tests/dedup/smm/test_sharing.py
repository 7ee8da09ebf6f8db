import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.dedup.errors import FilterClosed, FilterInUse
from anabranch.dedup.smm.sharing import Sharing

ROOT = Path(__file__).resolve().parents[3]

TURN_TAKER = """
import sys
from pathlib import Path
from anabranch.dedup.smm.sharing import Sharing
sharing = Sharing(Path(sys.argv[1]))
with sharing:
    print("turn", flush=True)
    sys.stdin.read()
"""


def attended(folder: Path, *, alone: bool = False) -> tuple[Sharing, bool]:
    sharing = Sharing(folder)
    (folder / "file").touch()
    with sharing:
        is_first = sharing.attend(folder / "file", alone=alone)
    if alone:
        sharing.end_turns()
    return sharing, is_first


def test_the_first_knows_that_it_is_the_first(tmp_path: Path) -> None:
    """Until the last has closed, those who come are not."""
    one, first = attended(tmp_path / "s")
    other, second = attended(tmp_path / "s")
    with other:
        assert not other.is_alone()
    one.close()
    one.close()
    with other:
        assert other.is_alone()
    third, is_first = attended(tmp_path / "s")
    assert (first, second, is_first) == (True, False, False)
    with other:
        assert not other.is_alone()
    other.close()
    third.close()
    last, is_first = attended(tmp_path / "s")
    assert is_first
    last.close()


@pytest.mark.parametrize(("alone", "other_alone"), [(True, False), (False, True), (True, True)])
def test_alone_is_alone(tmp_path: Path, alone: bool, other_alone: bool) -> None:
    """Who holds a folder alone keeps others out, and does not come in beside others."""
    one, _ = attended(tmp_path / "s", alone=alone)
    other = Sharing(tmp_path / "s")
    with other, pytest.raises(FilterInUse, match="is open elsewhere; end the process"):
        other.attend(tmp_path / "s" / "file", alone=other_alone)
    other.close()
    with one:
        assert one.is_alone()
    one.close()


def test_a_turn_excludes_others_and_ends_with_its_process(tmp_path: Path) -> None:
    """While one process has its turn no other gets one; killing it hands the turn over."""
    command = [sys.executable, "-c", TURN_TAKER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"turn\n"
        fd = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)
        child.kill()
    sharing = Sharing(tmp_path)
    with sharing:
        pass
    sharing.close()


def test_a_process_forked_off_has_no_turns(tmp_path: Path) -> None:
    """It would share its parent's locks, and so exclude nobody."""
    sharing, _ = attended(tmp_path)
    sharing._process += 1
    assert not sharing.is_own
    with pytest.raises(FilterClosed, match="forked off"), sharing:
        pass
    sharing.close()
