"""Ends that no `finally` sees: a killed process and a full disk, with real processes and real limits."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.dedup.uniq import UniqFilter, UniqParameters
from tests.acceptance import forkserver
from tests.acceptance.blocking import Process
from tests.acceptance.forkserver import DEDUP

ROOT = Path(__file__).resolve().parents[2]
SHAPE = "mode=sys.argv[3], levels=(1, 2), expected=2000, false_positive=0.01, leaf_bits=4096, leaf_kind=sys.argv[4]"

MARKER = f"""
import sys
from pathlib import Path
from anabranch.dedup import UniqFilter, UniqParameters
uniq = UniqFilter.open(Path(sys.argv[1]), UniqParameters({SHAPE}))
for start in range(int(sys.argv[2]), 10**9, 50):
    uniq.mark([b"%d" % i for i in range(start, start + 50)])
    if start % 500 == 450:
        uniq.sync()
        print(start + 50, flush=True)
"""

LOG_FILLER = """
import resource, signal, sys
from pathlib import Path
from anabranch.dedup import Dsbf, DsbfParameters, StoreFull
dsbf = Dsbf.open(Path(sys.argv[1]), DsbfParameters(expected=100_000, false_positive=0.01, leaf_bits=1 << 20))
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
done = 0
try:
    while True:
        batch = [b"%d" % i for i in range(done, done + 1000)]
        dsbf.mark(batch)
        done += 1000
except StoreFull as error:
    print(error.errno)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
dsbf.check()
dsbf.mark(batch)
assert not dsbf.unseen([b"%d" % i for i in range(done + 1000)]).any()
dsbf.check()
dsbf.close()
again = Dsbf.open(Path(sys.argv[1]), DsbfParameters(expected=100_000, false_positive=0.01, leaf_bits=1 << 20))
assert not again.unseen([b"%d" % i for i in range(done + 1000)]).any()
"""

DISK_FILLER = """
import sys
from pathlib import Path
from anabranch.dedup import Smm, StoreFull
folder = Path(sys.argv[1])
(folder / "ballast").write_bytes(bytes(200_000))
smm, done = Smm.open(folder / "s"), 0
try:
    while True:
        batch = [b"%d" % i for i in range(done, done + 10)]
        assert smm.unseen(batch).any()
        smm.mark(batch)
        done += 10
except StoreFull as error:
    print(error.errno)
assert done > 0 and not smm.unseen([b"%d" % i for i in range(done)]).any()
assert smm.unseen([b"new %d" % i for i in range(10_000)]).sum() > 9_900
(folder / "ballast").unlink()
smm.mark(batch)
assert not smm.unseen([b"%d" % i for i in range(done + 10)]).any()
smm.check()
smm.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "kind"), [("both", "blocked"), ("both", "classic"), ("exact", "blocked")])
def test_what_was_synced_is_known_after_kill_9(tmp_path: Path, mode: str, kind: str) -> None:
    """A process that marks and syncs is killed, four times over one folder, amid splits: nothing synced is lost.

    In mode exact what was never marked is new, all of it.
    """
    synced = 0
    for lines in (1, 3, 8, 13):
        command = ["-c", MARKER, str(tmp_path / "u"), str(synced), mode, kind]
        with Process(command, cwd=ROOT, stderr=None, preload=DEDUP) as child:
            for _ in range(lines):
                synced = int(child.stdout.readline())
            child.kill()
        parameters = UniqParameters(
            mode=mode, levels=(1, 2), expected=2000, false_positive=0.01, leaf_bits=4096, leaf_kind=kind
        )
        with UniqFilter.open(tmp_path / "u", parameters) as uniq:
            assert not uniq.unseen([b"%d" % i for i in range(synced)]).any()
            assert mode != "exact" or uniq.unseen([b"never %d" % i for i in range(20_000)]).all()
            uniq.check()
            shown = uniq.statistics().dsbf
            assert (shown is None) == (mode == "exact")
            assert shown is None or shown.strays == 0
    assert synced >= 25 * 500


def test_a_log_that_may_not_grow_is_an_oserror_and_may_be_repeated(tmp_path: Path) -> None:
    """With a limit on file size: StoreFull, a sound filter, and the same mark succeeds once there is room."""
    command = ["-c", LOG_FILLER, str(tmp_path / "d")]
    done = forkserver.run(command, cwd=ROOT, env=os.environ, preload=DEDUP)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == errno.EFBIG


def test_a_full_disk_is_an_oserror_and_no_sigbus(tmp_path: Path) -> None:
    """On a file system of 1 MiB the store fills it, says so, still answers, and goes on when there is room."""
    mounted = ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size=1m none "$0" && exec "$@"', str(tmp_path)]
    if not shutil.which("unshare") or subprocess.run([*mounted, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here (unshare -Urm)")
    command = [*mounted, sys.executable, "-c", DISK_FILLER, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == errno.ENOSPC
