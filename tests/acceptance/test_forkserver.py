"""A forked command is a process as a fresh one is."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.acceptance import forkserver
from tests.acceptance.command import environment
from tests.patience import HANG_S

PROGRAM = """
import atexit, os, signal, sys
atexit.register(print, "at its end")
print(__name__, sys.argv[1:], os.getcwd(), os.environ.get("MINE"), sys.stdin.read(), flush=True)
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGHUP).name, file=sys.stderr)
END
"""
ENDS = {
    "pass": 0,
    "sys.exit(3)": 3,
    "sys.exit('no')": 1,
    "1 / 0": 1,
    "os.kill(os.getpid(), signal.SIGTERM)": -signal.SIGTERM,
}
#: Modules whose import takes many others, for a server of its own.
CHATTY = (*forkserver.ROOMS, "json")


@pytest.fixture(params=[True, False], ids=["forked", "fresh"])
def _forks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param and sys.platform != "linux":
        pytest.skip("forks on Linux only")
    monkeypatch.setattr(forkserver, "FORKS", request.param)


@pytest.mark.usefixtures("_forks")
@pytest.mark.parametrize(("end", "code"), ENDS.items())
def test_it_has_its_own_arguments_folder_environment_streams_and_end(tmp_path: Path, end: str, code: int) -> None:
    """However it is started."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("END", end))
    ended = forkserver.run(
        [str(program), "a", "b c"], cwd=tmp_path, env=environment(MINE="x"), stdin=b"given", preload=()
    )
    assert ended.returncode == code
    said = f"__main__ ['a', 'b c'] {tmp_path} x given\n"
    assert ended.stdout == said + ("" if code < 0 else "at its end\n")
    if code >= 0:
        assert ended.stderr.startswith("True SIG_DFL\n")
    assert ("ZeroDivisionError" in ended.stderr) == (end == "1 / 0")
    assert ended.stderr.endswith("no\n") == (end == "sys.exit('no')")


@pytest.mark.usefixtures("_forks")
async def test_it_is_signalled_by_its_number(tmp_path: Path) -> None:
    """And has that number in its own eyes."""
    program = tmp_path / "program.py"
    program.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(1000)\n")
    process = await forkserver.start([str(program)], cwd=tmp_path, env=environment(), preload=())
    assert process.stdout is not None
    assert int(await process.stdout.readline()) == process.pid
    os.kill(process.pid, signal.SIGKILL)
    await process.communicate()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.skipif(not forkserver.FORKS, reason="processes are not forked here")
def test_a_server_may_write_more_than_a_pipe_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a line for each module that it imports."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    ended = forkserver.run(["-c", "print(1)"], cwd=tmp_path, env=environment(), timeout=HANG_S, preload=CHATTY)
    assert ended.stdout == "1\n"
