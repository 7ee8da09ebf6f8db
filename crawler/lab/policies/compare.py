"""`anabranch compare`: real crawls with the real crawler, one after the other on the same web.

The policies take turns, each repeat in the reverse order of the one before, so that a change of the machine's speed affects all
of them. Each crawl is a separate process (`crawling.py`).
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from anabranch.crawler.lab.policies.crawling import ORDER_FILE
from anabranch.crawler.lab.policies.options import (
    WEB_WORDS,
    PolicyOptions,
    check,
    delay_words,
    delays,
    order_for,
    rule_of,
    warn,
)
from anabranch.crawler.lab.policies.report import report_of
from anabranch.crawler.lab.policies.saved import COMPARISON, saved
from anabranch.crawler.lab.policies.series import (
    Balance,
    Busy,
    PolicyComparison,
    RunResult,
    Sample,
    Setting,
    at,
    compared_s,
    rate,
    settled,
    with_ledger,
)
from anabranch.crawler.lab.report import LabReport, OnProgress, in_turns
from anabranch.crawler.lab.web.miniweb import Served, serving
from anabranch.crawler.lab.web.model import WebOptions
from anabranch.crawler.order.order import ENVIRONMENT, CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import CrawlerError, DiskFull, ExitCode
from anabranch.crawler.runtime import child_command, child_process

NAME = "policies"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrawledWeb:
    """The web that the runs of one comparison crawl."""

    web: str  #: in two or three words
    size: str  #: in words
    hosts: int  #: 0: unknown
    order: Callable[[str], CrawlOrder]  #: of a policy
    served: Served | None = None  #: None: real sites


def run(options: PolicyOptions, on_progress: OnProgress) -> LabReport:
    """Compare. Raises: UsageError before anything is started, CrawlerError if a run breaks, OSError."""
    check(options)
    warn(options.policies)
    load, progress = os.getloadavg()[0], _Progress(options, on_progress)
    comparisons = []
    for web in _webs(options):
        with web as crawled:
            comparisons.append(_compared(options, crawled, progress))
    machine = f"load {load:.1f} before the first run, {os.getloadavg()[0]:.1f} after the last, {os.cpu_count()} cores"
    done = [replace(each, setting=replace(each.setting, machine=machine)) for each in comparisons]
    least_s, most_s = delays(options)
    asked = replace(options, min_delay_s=least_s, max_delay_s=most_s)
    return report_of(NAME, done, data=saved(COMPARISON, asked, done))


class _Progress:
    """The progress of all runs together, in seconds of crawling."""

    def __init__(self, options: PolicyOptions, on_progress: OnProgress) -> None:
        self._seconds = options.seconds
        self._steps = options.steps
        self._on_progress = on_progress
        self._repeats = options.repeat
        self._runs = 0
        self._live = options.live
        if self._live is not None:
            self._live.write_bytes(b"")

    @contextmanager
    def of_run(self, web: str, policy: str, repeat: int) -> Iterator[Callable[[Sample], None]]:
        """While entered, a run goes on, which calls the yielded function with each sample. Raises: OSError."""
        before: list[Sample] = []
        which = {"web": web, "policy": policy, "repeat": repeat}
        words = f"{web}, {policy}" + (f", repeat {repeat}" if self._repeats > 1 else "")

        def on_sample(sample: Sample) -> None:
            if before and sample.at_s > before[-1].at_s:
                pace = rate(before[-1], sample)
                done = round(self._runs * self._seconds + min(sample.at_s, self._seconds))
                facts = f"{pace.active:,.0f} active workers, {pace.urls_per_s:,.0f} URLs/s"
                self._on_progress(done, self._steps, f"{words}: {facts}")
                if self._live is not None:
                    line = {**which, "at_s": sample.at_s, "active": pace.active, "urls_per_s": pace.urls_per_s}
                    with self._live.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
            before[:] = [sample]

        self._on_progress(round(self._runs * self._seconds), self._steps, f"{words} begins")
        yield on_sample
        self._runs += 1


def _webs(options: PolicyOptions) -> Iterator[AbstractContextManager[CrawledWeb]]:
    """Each web, opened when it is entered."""
    if options.seeds is not None:
        size = f"from the seeds of {options.seeds}"
        yield nullcontext(CrawledWeb(web="real sites", size=size, hosts=0, order=partial(order_for, options)))
    elif options.replay is not None:
        yield _boxed(options, "replayed web", options.replay)
    else:
        for kind in options.kinds:
            made = WebOptions(
                pages=options.pages, kind=kind, hosts=options.hosts, latency_s=options.latency_s, seed=options.seed
            )
            yield _boxed(options, WEB_WORDS[kind], made)


@contextmanager
def _boxed(options: PolicyOptions, words: str, web: WebOptions | Path) -> Iterator[CrawledWeb]:
    """A made or replayed web, served while entered."""
    with serving(web) as served:
        order = partial(order_for, options, seeds=served.seeds, addresses=served.hosts)
        size = "; ".join([f"{served.urls:,} URLs on {len(served.hosts):,} hosts", *served.notes])
        yield CrawledWeb(web=words, size=size, hosts=len(served.hosts), order=order, served=served)


def _compared(options: PolicyOptions, place: CrawledWeb, progress: _Progress) -> PolicyComparison:
    runs: dict[str, list[RunResult]] = {policy: [] for policy in options.policies}
    for number, policy in in_turns(options.policies, options.repeat):
        with progress.of_run(place.web, policy, number + 1) as on_sample:
            runs[policy].append(_watched(options, place, policy, on_sample))
    common_s = compared_s([run for done in runs.values() for run in done])
    setting = Setting(
        web=place.web,
        size=place.size,
        hosts=place.hosts,
        workers=options.workers,
        politeness=options.politeness,
        connections=options.connections,
        delays=delay_words(options),
        latency_s=0.0 if options.seeds or options.replay else options.latency_s,
    )
    return PolicyComparison(setting=setting, runs=tuple(settled(done, common_s) for done in runs.values()))


def _watched(options: PolicyOptions, place: CrawledWeb, policy: str, on_sample: Callable[[Sample], None]) -> RunResult:
    """A run with the server's ledger."""
    if place.served is None:
        return run_once(place.order(policy), options.seconds, on_sample)
    place.served.begin(rule_of(options))
    result = run_once(place.order(policy), options.seconds, on_sample, place.served)
    ledger = place.served.ledger()
    return replace(with_ledger(result, ledger), server=Busy(ledger.busy, ledger.longest_lag_s))


#: What the child runs.
_PROGRAM = "from anabranch.crawler.lab.policies.crawling import main; sys.exit(main(sys.argv[1:]))"
#: The child's log, in the folder of its job, and how much of its end is read if it breaks.
_LOG_FILE = "log"
_LOG_TAIL_BYTES = 4096

_READ_BYTES = 1 << 16


class CrawlEnding(NamedTuple):
    """The end of a crawl, as reported by its process."""

    ended_s: float
    is_drained: bool
    busy: Busy
    queue_lengths: Balance


def run_once(
    order: CrawlOrder, seconds: float, on_sample: Callable[[Sample], None], web: Served | None = None
) -> RunResult:
    """Crawl by the order, in a new folder, until it is drained or for so many seconds; `on_sample` gets each sample.

    It ends at once if the web is lost. Process and folder are removed afterwards, also on an interrupt.
    Raises: CrawlerError if the crawl breaks; WebLost; OSError.
    """
    with _new_folder() as folder:
        limited = order.limits.model_copy(update={"time_s": seconds})
        (folder / ORDER_FILE).write_text(dump_order(order.model_copy(update={"limits": limited})), encoding="utf-8")
        with _started(folder) as (process, stream):
            samples, ending = _heard(_lines(stream, web), on_sample)
            code = process.wait()
        if ending is None or code:
            kind = DiskFull if code == ExitCode.DISK_FULL else CrawlerError
            raise kind(f"the crawl with {order.frontier.policy} broke: {_why(folder / _LOG_FILE, code)}")
    return result_of(order.frontier.policy, samples, ending, seconds)


def result_of(policy: str, samples: Sequence[Sample], ending: CrawlEnding, seconds: float) -> RunResult:
    """The run up to its end, or to its last second; visits still under way may have ended later. Pure."""
    duration_s = min(ending.ended_s, seconds)
    whole = RunResult(
        policy=policy,
        samples=tuple(samples),
        duration_s=ending.ended_s,
        is_drained=ending.is_drained,
        queue_lengths=ending.queue_lengths,
        crawler=ending.busy,
    )
    inside = (sample for sample in samples if sample.at_s < duration_s)
    return replace(whole, samples=(*inside, at(whole, duration_s)), duration_s=duration_s)


@contextmanager
def _new_folder() -> Iterator[Path]:
    """A temporary folder. An interrupt during its removal, which may take seconds, waits for that."""
    folder = Path(tempfile.mkdtemp(prefix="anabranch-policies-"))
    try:
        yield folder
    finally:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        except KeyboardInterrupt:
            shutil.rmtree(folder, ignore_errors=True)
            raise


@contextmanager
def _started(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """The process and its output. It is in its own session, so Ctrl-C reaches the command, which then ends it."""
    read, write = os.pipe()
    with os.fdopen(read, "rb", buffering=0) as stream, ExitStack() as ends:
        with os.fdopen(write, "wb") as theirs, (folder / _LOG_FILE).open("wb") as log:
            process = ends.enter_context(
                child_process(
                    child_command(_PROGRAM, str(folder), str(write)),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    pass_fds=[theirs.fileno()],
                    env={name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT)},
                )
            )
        yield process, stream  # its helpers, in sessions of their own, end by themselves when it has ended


def _lines(stream: IO[bytes], web: Served | None) -> Iterator[bytes]:
    """The output of the process, line by line. Raises: WebLost."""
    waited: list[IO[bytes] | Served] = [stream] if web is None else [stream, web]
    begun = b""
    while True:
        ready, _, _ = select.select(waited, [], [])
        if web is not None and web in ready:
            raise web.lost()
        data = os.read(stream.fileno(), _READ_BYTES)
        if not data:
            return
        *lines, begun = (begun + data).split(b"\n")
        yield from lines


def _heard(lines: Iterable[bytes], on_sample: Callable[[Sample], None]) -> tuple[list[Sample], CrawlEnding | None]:
    """All samples that the process reports, and its end, if it reported that."""
    samples: list[Sample] = []
    ending: CrawlEnding | None = None
    for line in lines:
        value: Any = json.loads(line)
        if isinstance(value, list):
            samples.append(Sample(*value))
            on_sample(samples[-1])
        else:
            ending = CrawlEnding(
                ended_s=value["ended_s"],
                is_drained=value["is_drained"],
                busy=Busy(*value["busy"]),
                queue_lengths=Balance(*value["queue_lengths"]),
            )
    return samples, ending


def _why(log: Path, code: int) -> str:
    """The last line of its log."""
    lines = log.read_bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return last or f"exit code {code}"
