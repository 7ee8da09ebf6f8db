"""Several real processes on one store: each URL new to exactly one of them, whatever becomes of the others."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from anabranch.dedup.smm.store import Smm
from tests.acceptance.blocking import Process
from tests.acceptance.forkserver import DEDUP

ROOT = Path(__file__).resolve().parents[3]
LEVELS = [(1, 3), (1, 1, 3)]

#: Opens the store together with the others, adds its batches of a common list, and prints how many keys were new to it.
ADDER = """
import sys
from pathlib import Path
from anabranch.dedup import Smm
folder, levels, start, stop = Path(sys.argv[1]), eval(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
sys.stdin.readline()
new = 0
with Smm.open(folder, "xxh3-64", levels) as smm:
    for first in range(start, stop, 250):
        new += int(smm.add([b"http://a.example/%d" % i for i in range(first, first + 250)]).sum())
print(new)
"""

#: Adds for ever, and prints the numbers of the keys that were new to it, batch by batch, as soon as it knows.
ENDLESS = """
import sys
from itertools import compress
from pathlib import Path
from anabranch.dedup import Smm
folder, levels = Path(sys.argv[1]), eval(sys.argv[2])
smm = Smm.open(folder, "xxh3-64", levels)
for first in range(int(sys.argv[3]), 10**9, 100):
    numbers = range(first, first + 100)
    new = smm.add([b"http://a.example/%d" % i for i in numbers])
    print(*compress(numbers, new.tolist()), flush=True)
"""

#: Adds a key, and is killed at the call that is named.
MORTAL = """
import os, signal, sys
from pathlib import Path
from anabranch.dedup import Smm
smm = Smm.open(Path(sys.argv[1]), levels=(1, 1))
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
setattr(smm._bits._ledger if sys.argv[2] == "end_batch" else smm, sys.argv[2], die)
smm.add([b"2"])
smm.sync()
"""

#: Forks with the store open; the child tries to add, and closes; then the parent adds.
FORKER = """
import os, sys
from pathlib import Path
from anabranch.dedup import FilterClosed, Smm
smm = Smm.open(Path(sys.argv[1]), levels=(1, 1))
smm.add([b"1"])
if not os.fork():
    try:
        smm.add([b"2"])
    except FilterClosed:
        print("refused", flush=True)
    smm.close()
    os._exit(0)
print(os.wait()[1], flush=True)
print(smm.add([b"1", b"2"]).tolist(), flush=True)
smm.close()
"""


def running(program: str, *arguments: object) -> Process:
    """A process that is never far ahead of what was read of it."""
    return Process(["-c", program, *map(str, arguments)], cwd=ROOT, stderr=None, preload=DEDUP, pipesize=4096)


@pytest.mark.parametrize(("levels", "keys"), [((1, 3), 20_000), ((1, 1, 3), 2_000)])
def test_each_key_is_new_to_exactly_one_of_four_processes(tmp_path: Path, levels: tuple[int, ...], keys: int) -> None:
    """Four processes make the store, and add the same keys in the same order, at the same moment."""
    with ExitStack() as stack:
        children = [stack.enter_context(running(ADDER, tmp_path / "s", levels, 0, keys)) for _ in range(4)]
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        new = [int(child.stdout.readline()) for child in children]
        assert [child.wait() for child in children] == [0] * 4
    with Smm.open(tmp_path / "s", "xxh3-64", levels) as smm:
        assert sum(new) == smm.bits_set
        assert smm.bits_set > keys * 0.9999
        smm.check()  # exact, not corrected: all four ended well
        assert not smm._bits._ledger.count_is_rough


@pytest.mark.slow
@pytest.mark.parametrize("levels", LEVELS)
def test_a_killed_process_loses_nothing_and_stops_no_other(tmp_path: Path, levels: tuple[int, ...]) -> None:
    """Three add the same keys, one after another is killed amid its work: what was reported stays known, once reported."""
    reported = list[int]()
    with ExitStack() as stack:
        children = [stack.enter_context(running(ENDLESS, tmp_path / "s", levels, 0)) for _ in range(3)]
        for victim, left in ((0, children[1:]), (1, children[2:])):
            for _ in range(4):
                for child in left:
                    reported += map(int, child.stdout.readline().split())
            children[victim].kill()
            rest = children[victim].stdout.read().splitlines(keepends=True)
            reported += [int(number) for line in rest if line.endswith("\n") for number in line.split()]
        children[2].kill()
        rest = children[2].stdout.read().splitlines(keepends=True)
        reported += [int(number) for line in rest if line.endswith("\n") for number in line.split()]
    assert len(reported) == len(set(reported)) > 0
    with Smm.open(tmp_path / "s", "xxh3-64", levels) as smm:
        assert smm._bits._ledger.count_is_rough
        assert not smm.unseen([b"http://a.example/%d" % number for number in reported]).any()
        smm.check()
        smm.check()
        assert smm.bits_set >= len(reported)
        new = smm.add([b"other %d" % i for i in range(100)])
        assert new.all()
    with Smm.open(tmp_path / "s", "xxh3-64", levels, alone=True) as smm:
        assert not smm._bits._ledger.count_is_rough


@pytest.mark.parametrize("in_batch", [True, False])
def test_the_death_of_one_writer_is_known_to_the_others(tmp_path: Path, *, in_batch: bool) -> None:
    """In the middle of a batch: to the next one that writes. Between two, without a sync: to who opens the store next."""
    with Smm.open(tmp_path / "s", levels=(1, 1)) as smm:
        smm.add([b"1"])
        with running(MORTAL, tmp_path / "s", "end_batch" if in_batch else "sync") as child:
            assert child.wait() == -signal.SIGKILL
        assert smm.bits_set == (1 if in_batch else 2)
        assert smm.add([b"2", b"3"]).tolist() == [False, True]
        assert smm._bits._ledger.count_is_rough == in_batch
    with Smm.open(tmp_path / "s", levels=(1, 1)) as smm:
        assert smm._bits._ledger.count_is_rough
        smm.check()
        assert smm.bits_set == 3
    with Smm.open(tmp_path / "s", levels=(1, 1)) as smm:
        assert not smm._bits._ledger.count_is_rough
        smm.check()


def test_a_forked_process_must_open_the_store_itself(tmp_path: Path) -> None:
    """It may not write with its parent's lock, and its closing does not end the parent's work."""
    with running(FORKER, tmp_path / "s") as child:
        assert child.stdout.readlines() == ["refused\n", "0\n", "[False, True]\n"]
    with Smm.open(tmp_path / "s", levels=(1, 1)) as smm:
        assert not smm._bits._ledger.count_is_rough
        smm.check()


@pytest.mark.parametrize("levels", LEVELS)
def test_a_killed_process_leaves_its_lock_to_no_one(tmp_path: Path, levels: tuple[int, ...]) -> None:
    """After kill -9 the store may be held alone at once."""
    with running(ENDLESS, tmp_path / "s", levels, 0) as child:
        reported = [int(number) for _ in range(3) for number in child.stdout.readline().split()]
        child.kill()
        child.wait()
    with Smm.open(tmp_path / "s", "xxh3-64", levels, alone=True) as smm:
        assert not smm.unseen([b"http://a.example/%d" % number for number in reported]).any()
