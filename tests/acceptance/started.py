"""`anabranch ARGUMENTS` as another program would start it: `python started.py HOW ARGUMENTS`, in a forked process.

HOW is `session` (of its own, without a terminal, as a daemon), `nohup` (SIGHUP is ignored) or the path of a terminal, which
becomes its own.
"""

import os
import runpy
import signal
import sys

if __name__ == "__main__":
    how = sys.argv.pop(1)
    if how == "nohup":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    elif how == "session":
        os.setsid()
    else:
        os.login_tty(os.open(how, os.O_RDWR | os.O_NOCTTY))
    runpy.run_module("anabranch", run_name="__main__", alter_sys=True)
