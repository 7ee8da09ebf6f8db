"""What the interpreter does by itself, set for a process that crawls."""

from __future__ import annotations

import gc
import sys

from anabranch.crawler.allocation import give_back_early

#: How long a thread may keep Python's lock while another waits for it. The store's thread gives it away at each statement;
#: with Python's 5 ms its transactions would last mostly for waiting (30 % more URLs a second, measured).
SWITCH_S = 0.0005
#: Objects more before Python looks for cycles among them, and how often it looks at older ones. A crawl makes millions of
#: records without cycles; at Python's 700 the looking takes up to a third of its time (40 % more URLs a second, measured).
COLLECTION = (50_000, 20, 100)


def tune_interpreter() -> None:
    """Set what the interpreter does by itself, for a process that is a crawl.

    When threads switch, when cycles are sought, when memory goes back to the system.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*COLLECTION)
    give_back_early()
