"""The exit codes of the command, in one place; scripts and schedulers read them."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended. The numbers are promised: they never change their meaning."""

    DONE = 0  #: all is done, or a limit that the operator set was reached
    STORE_OR_JOB_IN_USE = 1  #: a store or file failed, or another process holds the job
    USAGE = 2  #: the command line makes no sense
    DISK_FULL = 3  #: nothing more can be written; the job can be resumed
    BAD_ORDER = 4  #: the crawl order is wrong, or the folder has another format
    #: No seed got an HTTP answer, or nothing named is a seed; `add`, `frontier load`: something was left out, not all.
    NO_SEED_ANSWERED = 5
    DRAINED = 11  #: stopped by the first signal or by `stop`; the job can be resumed
    FORCED = 13  #: stopped at once, by the second signal or `stop --now`; the job can be resumed
    INTERRUPTED = 130  #: Ctrl-C where there is nothing to resume; what a shell says of a program that SIGINT ended
    READER_GONE = 141  #: nobody reads the output any more; what a shell says of a program that SIGPIPE ended
