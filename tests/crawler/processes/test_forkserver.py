"""The fork server, which starts the processes of workers."""

import subprocess
import sys
from pathlib import Path

CLONE = Path(__file__).resolve().parents[3]

#: A parent of its own, since pytest has threads and files open.
PARENT = """
import os, signal, socket, sys
from anabranch.crawler.processes.forkserver import ForkServer

def live(end, loop):
    end.sendall(f"{loop} {os.getpid()} {os.getpgid(0)} {signal.getsignal(signal.SIGCHLD)!r}".encode())
    end.recv(1)
    return 0

fork_server = ForkServer(live)
ends, pids = [], []
for loop in ("asyncio", "uvloop"):
    ours, its = socket.socketpair()
    with its:
        pids.append(fork_server.start(its, loop))
    ends.append(ours)
for pid, end, loop in zip(pids, ends, ("asyncio", "uvloop")):
    said = end.recv(200).decode().split(maxsplit=3)
    assert said[:3] == [loop, str(pid), str(pid)], said
    assert "SIG_DFL" in said[3], said
assert len(set(pids)) == 2
fork_server.close()
for end in ends:  # they live on without it, until they hear of it
    end.sendall(b".")
    assert end.recv(1) == b"", "they have gone"
print("well")
"""

THREADS = """
import os, socket
from concurrent.futures import ThreadPoolExecutor
from anabranch.crawler.processes.forkserver import ForkServer

def live(end, loop):
    end.sendall(str(os.getpid()).encode())
    return 0

def born(_):
    ours, its = socket.socketpair()
    with its, ours:
        pid = fork_server.start(its, "auto")
        its.close()
        return pid, int(ours.recv(20))

fork_server = ForkServer(live)
with ThreadPoolExecutor(8) as threads:
    wrong = [pair for pair in threads.map(born, range(40)) if pair[0] != pair[1]]
fork_server.close()
print(wrong or "well")
"""

GONE = """
import os, signal, socket
from anabranch.crawler.processes.forkserver import ForkServer

fork_server = ForkServer(lambda end, loop: 0)
(child,) = open(f"/proc/self/task/{os.getpid()}/children").read().split()
os.kill(int(child), signal.SIGKILL)
os.waitpid(int(child), 0)
try:
    fork_server.start(socket.socketpair()[0], "auto")
except ConnectionError:
    print("gone")
"""


def run(program: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        cwd=CLONE,
        env={"PYTHONPATH": str(CLONE)},
        capture_output=True,
        text=True,
    )
    return ran.stdout.strip() or ran.stderr


def test_each_process_is_a_new_one_and_has_its_own_end() -> None:
    """In a group of its own, with signals as a program has them that was just started."""
    assert run(PARENT) == "well"


def test_each_thread_gets_the_process_that_it_asked_for() -> None:
    """A job begins with all its shares at once."""
    assert run(THREADS) == "well"


def test_a_fork_server_that_was_killed_is_told() -> None:
    """Whoever asks starts a process in another way."""
    assert run(GONE) == "gone"
