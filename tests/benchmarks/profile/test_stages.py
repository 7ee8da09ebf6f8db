"""Which stage of a page's way a stack belongs to, and how stages become rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.benchmarks.profile.measured import rows, stages_us
from scripts.benchmarks.profile.sampled import Sampler
from scripts.benchmarks.profile.stages import STAGES, stage_of
from scripts.benchmarks.site.tally import Tally
from tests.rows import each_row

REPOSITORY = Path(__file__).resolve().parents[3]
ASYNCIO = "/usr/lib/python3.11/asyncio/"
OUTER = [(f"{ASYNCIO}base_events.py", "run_forever"), (f"{ASYNCIO}runners.py", "run"), ("/crawler/cli/crawl.py", "run")]


@each_row(
    ("stack", "stage"),
    [
        ([("/crawler/urls/parsing.py", "parse"), ("/crawler/processors/candidates.py", "f"), *OUTER], "resolve"),
        ([("/site-packages/sqlalchemy/engine.py", "execute"), ("/frontier/stores/sql.py", "write")], "store"),
        ([("/frontier/core.py", "finish"), *OUTER], "frontier"),
        ([("/frontier/seen.py", "unseen"), ("/frontier/core.py", "finish"), *OUTER], "dedup"),
        (
            [("/crawler/processors/seen_urls.py", "unknown"), ("/crawler/processors/candidates.py", "f"), *OUTER],
            "dedup",
        ),
        ([(f"{ASYNCIO}timeouts.py", "__aenter__"), ("/crawler/fetch/fetcher.py", "fetch"), *OUTER], "fetch"),
        ([("/.venv/lib/aiohttp/client_proto.py", "data_received"), (f"{ASYNCIO}events.py", "_run"), *OUTER], "fetch"),
        ([("/usr/lib/python3.11/selectors.py", "select"), *OUTER], "loop"),
        ([("/crawler/run/workers.py", "work"), *OUTER], "chain"),
        ([("/dedup/files/durable.py", "sync_file"), ("/crawler/archive/files.py", "sync")], "archive"),
        ([("/crawler/cli/app.py", "crawl")], "other"),
        ([], "other"),
    ],
)
def test_the_innermost_function_that_has_a_stage_decides(stack: list[tuple[str, str]], stage: str) -> None:
    """A library's work counts as its caller's; time in the event loop itself counts as the loop."""
    assert stage_of(stack) == stage


def test_every_place_that_has_a_stage_is_there() -> None:
    """A module that moved is not silently counted elsewhere."""
    from scripts.benchmarks.profile import stages

    assert [place for place in stages._PLACES if not (REPOSITORY / place.lstrip("/")).exists()] == []
    assert set(stages._PLACES.values()) - {stages._CALLERS} < set(STAGES)


def test_only_what_lies_between_the_first_request_and_the_last_counts() -> None:
    """Starting and tidying up are no page's."""
    looks = [(9.0, {"parse": 5.0}), (10.0, {"parse": 1.0, "loop": 2.0}), (20.0, {"parse": 3.0}), (21.0, {"loop": 5.0})]
    parts = stages_us(looks, Tally(requests=4, pages=4, first_s=10.0, last_s=20.0))
    assert (parts["parse"], parts["loop"], parts["store"]) == (1e6, 5e5, 0.0)


def test_the_table_adds_up() -> None:
    """The sum is that of the rows above it, each stage has one, and their shares are of the sum."""
    parts = {stage: float(number) for number, stage in enumerate(STAGES)}
    *each, whole, kernel = rows("durable", parts, 70.0, 1234)
    assert [row.name for row in each] == [f"durable/{stage}" for stage in STAGES]
    assert whole.measured == sum(row.measured or 0 for row in each) == 66.0
    assert whole.note == "1,234 looks"
    assert each[11].what.endswith(": 16.7 %")
    assert kernel.measured == 70.0


def test_the_time_of_a_thread_goes_to_its_own_stack(tmp_path: Path) -> None:
    """All CPU time of the process is somewhere, and a thread's is not the main one's."""
    program = f"""
import json, sys, threading, time
sys.path.insert(0, {str(REPOSITORY)!r})
from scripts.benchmarks.profile import sampled
sampled.stage_of = lambda stack: next((name for _, name in stack if name in ("here", "there")), "other")

def there():
    while time.thread_time() < 0.3:
        sum(range(1000))

def here():
    began = time.thread_time()
    while time.thread_time() - began < 0.3:
        sum(range(1000))

with sampled.Sampler() as sampler:
    began = time.process_time()
    beside = threading.Thread(target=there)
    beside.start()
    here()
    beside.join()
    took = time.process_time() - began
totals = {{}}
for _, parts in sampler.looks:
    for stage, used in parts.items():
        totals[stage] = totals.get(stage, 0) + used
print(json.dumps([took, totals]))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)
    took, totals = json.loads(ended.stdout)
    assert totals["here"] == pytest.approx(0.3, rel=0.4)
    assert totals["there"] == pytest.approx(0.3, rel=0.4)
    assert sum(totals.values()) <= took * 1.02


def test_a_sampler_that_was_left_looks_no_more() -> None:
    """Its timer is off, and no signal comes late to kill the process."""
    with Sampler() as sampler:
        pass
    seen = len(sampler.looks)
    sum(range(3_000_000))
    assert len(sampler.looks) == seen
