"""Runs a story of bash in a namespace where it may mount disks: `python smalldisk_process.py STORY`, in a forked process.

For each line `NAME ARGUMENTS` in the pipe `asked` it forks a process that is `anabranch ARGUMENTS` (`python FILE ARGUMENTS`
if they begin with a path) with its streams in NAME.out and NAME.err. Its exit code comes into NAME.code, then a line into
the pipe NAME.done. So no process of a story imports anything.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import select
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from anabranch.frontier.stores.sql import store

#: A crawl retries writes to a full disk for this long instead of 30 s.
RETRY_S = float(os.environ.get("SMALL_DISK_RETRY_S", "1"))
#: Of <sched.h> and <sys/mount.h>.
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18


def _enter_namespace() -> None:
    """Enter new user and mount namespaces, as `unshare -Urm` does."""
    user, group = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    if libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        raise OSError(ctypes.get_errno(), "mount")


def _serve(name: str, arguments: list[str]) -> int | None:
    """Fork the command and wait for it. Returns None in the command."""
    command = os.fork()
    if command == 0:
        os.dup2(os.open(f"{name}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), 1)
        os.dup2(os.open(f"{name}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), 2)
        return None
    Path(f"{name}.pid").write_text(str(command))
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    Path(f"{name}.code").write_text(f"{code}\n")
    Path(f"{name}.done").write_text("\n")
    return code


def _story(text: str) -> list[str] | None:
    """Run the story. Returns the arguments in a forked command."""
    _enter_namespace()
    os.mkfifo("asked")
    asked = os.open("asked", os.O_RDWR)
    shell = subprocess.Popen(["bash", "-c", text])
    ended, lines = os.pidfd_open(shell.pid), b""
    while True:
        ready, _, _ = select.select([asked, ended], [], [])
        if asked not in ready:
            code = shell.wait()
            with suppress(ChildProcessError):
                while True:
                    os.wait()  # what they used of the machine counts as this process's
            sys.exit(code)
        *whole, lines = (lines + os.read(asked, 65536)).split(b"\n")
        for line in whole:
            name, *arguments = shlex.split(line.decode())
            if os.fork() == 0:
                if _serve(name, arguments) is not None:
                    os._exit(0)
                os.close(asked)
                os.close(ended)
                return arguments


if __name__ == "__main__":
    os.setsid()  # a story that hangs is killed with all that it has started
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _arguments = _story(sys.argv[1])
    if _arguments is not None:
        if "/" in _arguments[0]:
            sys.argv[:] = _arguments
            runpy.run_path(_arguments[0], run_name="__main__")
        else:
            store.RETRY_S = RETRY_S
            sys.argv[:] = _arguments
            runpy.run_module("anabranch", run_name="__main__", alter_sys=True)
