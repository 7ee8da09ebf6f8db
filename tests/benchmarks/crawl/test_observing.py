"""How a crawl is watched from outside."""

from __future__ import annotations

import os
import sys

import pytest

from scripts.benchmarks.crawl.observing import CrawlFailed, Note, Use, family, noted, observe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")

MiB = 1 << 20
USE = Use(
    notes=[
        Note(at_s=10.0, cpu_s=1.0, own_bytes=MiB),
        Note(at_s=20.0, cpu_s=6.0, own_bytes=3 * MiB),
        Note(at_s=30.0, cpu_s=8.0, own_bytes=2 * MiB),
    ],
    peak_bytes=9,
    took_s=25.0,
)


@pytest.mark.parametrize(
    ("first_s", "last_s", "cpu_s"),
    [(10.0, 20.0, 5.0), (15.0, 25.0, 3.5), (20.0, 99.0, 2.0), (1.0, 30.0, 8.0)],
)
def test_between_two_notes_processor_time_grows_evenly(first_s: float, last_s: float, cpu_s: float) -> None:
    """Before the first note nothing was used, after the last one nothing more."""
    assert USE.cpu_between_s(first_s, last_s) == pytest.approx(cpu_s)


def test_memory_at_an_instant_is_that_of_the_note_before() -> None:
    """The most of it is that of any note."""
    assert (USE.own_bytes_at(29.0), USE.own_bytes_at(31.0), USE.own_peak_bytes()) == (3 * MiB, 2 * MiB, 3 * MiB)


def test_a_process_runs_on_its_cores_alone_and_its_use_is_noted() -> None:
    """And this one keeps its own."""
    ours = os.sched_getaffinity(0)
    core = {max(ours)}
    program = f"""
import os, time
assert os.sched_getaffinity(0) == {core}
held = b"x" * {64 * MiB}
while time.process_time() < 0.3:
    pass
"""
    used = observe([sys.executable, "-c", program], core, {})
    assert os.sched_getaffinity(0) == ours
    assert used.notes[-1].cpu_s >= 0.2
    assert min(used.peak_bytes, used.own_peak_bytes()) >= 64 * MiB


def test_children_count_with_their_parent() -> None:
    """A crawl of several processes is one crawl."""
    program = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", "import time; b = b'x' * {64 * MiB}\\nwhile time.process_time() < 0.3: pass"])
"""
    used = observe([sys.executable, "-c", program], os.sched_getaffinity(0), {})
    assert used.notes[-1].cpu_s >= 0.2
    assert used.own_peak_bytes() >= 64 * MiB
    assert os.getpid() in family(os.getpid())


def test_what_was_used_never_falls() -> None:
    """A child that ends while a note is taken was read neither with its parent nor by itself."""
    note = noted([os.getpid()], 1e6)
    assert note is not None
    assert note.cpu_s == 1e6


def test_a_crawl_that_fails_tells_its_last_words() -> None:
    """Without the boxes that tools draw round them."""
    program = "import sys; print('first'); print('│ No such option: --processes │\\n╰────╯'); sys.exit(2)"
    with pytest.raises(CrawlFailed, match=r"exit status 2: No such option: --processes$"):
        observe([sys.executable, "-c", program], os.sched_getaffinity(0), {})


def test_a_crawl_without_end_is_ended() -> None:
    """At its limit."""
    with pytest.raises(CrawlFailed, match="did not end"):
        observe([sys.executable, "-c", "import signal; signal.pause()"], os.sched_getaffinity(0), {}, limit_s=0.05)
