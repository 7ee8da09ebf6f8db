"""The figures of a job's filter, as a table and as one line. Pure. The names are those of `status --json`, key `filter`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.report.table import ReportTable
from anabranch.frontier.times import counted

#: Figure -> its meaning, in the order of the report.
MEANINGS: Mapping[str, str] = {
    "filter": "the job's filter, as [dedup] filter names it",
    "keys": "URLs known",
    "memory_bytes": "bytes of the process's own memory (part of RssAnon): leaves of the DSBF, and a small SMM",
    "mapped_bytes": "bytes of mapped files that exist: at most so many are resident; the kernel can take them back",
    "asked": "questions: asked = memory_known + smm_new + dsbf_new (or exact_new, memory_new) + dropped",
    "memory_known": "answered from memory, which does not err: known",
    "memory_new": "answered from memory: new",
    "smm_new": "new, as the SMM says",
    "smm_known": "passed on by the SMM: perhaps known",
    "dsbf_asked": "questions to the DSBF: with an SMM before it, smm_known",
    "dsbf_new": "new, as the DSBF says",
    "exact_asked": "questions to the exact index",
    "exact_new": "new, as the exact index says",
    "dropped": "known to all stages: the last of them decides",
    "recent_known": "links that the crawl itself remembered; the filter was not asked",
    "pending_known": "known before the filter was told: their rows were not durable yet",
    "store_known": "new to the filter, known to the store",
    "counted_since": "from then on no count is missing; a kill loses those since the last checkpoint",
    "smm_signature": "signature of the SMM",
    "smm_is_linear": "1: two sites whose names collide do so in every path that both have; without a second stage all are lost",
    "smm_levels": "bytes of the signature that each level takes",
    "smm_is_compact": "1: so few URLs that their bits are in one small file",
    "smm_bits_set": "bits set",
    "smm_bits": "bits of the whole store",
    "smm_fill": "share of bits set: the SMM's error rate now",
    "smm_files": "files of the store",
    "smm_files_used": "files with bits",
    "smm_bytes_touched": "bytes of the disk for bits",
    "dsbf_elements": "URLs in the DSBF",
    "dsbf_leaves": "leaves",
    "dsbf_height": "levels",
    "dsbf_splits": "splits so far, those under way included",
    "dsbf_splitting": "splits under way",
    "dsbf_mean_rate": "mean error rate of the leaves now",
    "dsbf_worst_rate": "error rate of the worst leaf now",
    "dsbf_planned_rate": "mean error rate at the planned size",
    "dsbf_rate_bound": "no leaf's error rate is ever above this",
    "dsbf_memory_bytes": "bytes of bits, in memory or mapped",
    "dsbf_log_bytes": "bytes of logs on the disk",
    "dsbf_strays": "URLs dropped from a wrong leaf's log at the opening, as after a power loss",
    "exact_elements": "URLs in the exact index",
    "exact_tail": "of these, in memory and not in a run yet",
    "exact_runs": "sorted files",
    "exact_merging": "URLs that the merge under way has still to move",
    "exact_file_bytes": "bytes of its files",
    "false_drop_probability": "probability that a new URL is dropped now",
    "expected_lost": "pages lost so far: the mean over unrelated URLs; see smm_is_linear",
    "planned_keys": "URLs that the filter is made for",
    "planned_false_drop_probability": "probability that a new URL is dropped at the planned size",
    "similar_keys": "URLs in the similarity filter, the stage before this filter",
    "shared_keys": "URLs in the filter that is shared with other crawls",
    "shared_false_drop_probability": "its error rate",
    "shared_expected_lost": "pages lost to it, by expectation",
    "shared_left": "links left to other crawls",
    "shared_twice": "URLs that another crawl took, too",
}


def filter_table(facts: Mapping[str, float | str]) -> ReportTable:
    """A row a figure that this filter has; those of a plug-in that are not known here come last."""
    names = [*(name for name in MEANINGS if name in facts), *(name for name in facts if name not in MEANINGS)]
    rows = [(name, _cell(facts[name]), MEANINGS.get(name, "")) for name in names]
    return ReportTable(("figure", "value", "meaning"), rows, right=(-30, 14))


def filter_line(facts: Mapping[str, float | str]) -> str:
    """The filter in one line: who answered, how full it is, what it loses; empty without facts."""
    return ", ".join(_words(facts)) if facts else ""


#: Below this number of URLs that a filter is expected to lose, "none" is said.
NEGLIGIBLE = 1e-6


def known_line(facts: Mapping[str, float | str]) -> str:
    """For people: how many URLs are known, and how many the filter is expected to have lost; empty without facts. Pure.

    Of a filter that loses whole sites it says what this number does not show.
    """
    if not facts:
        return ""
    lost = float(facts.get("expected_lost", 0.0))
    if loses_whole_sites(facts):
        words = f"{lost:.1g} expected lost, {MEAN}: {WORST}"
    else:
        words = f"{lost:.1g} expected lost" if lost >= NEGLIGIBLE else "none expected lost"
    return f"{counted(int(facts.get('keys', 0)), 'URL')} known; {words}"


#: What the estimate of a filter that loses whole sites is, and what it does not show.
MEAN = "the mean over unrelated URLs"
WORST = "the signature is linear, so two sites whose names collide lose every path that both have"


def loses_whole_sites(facts: Mapping[str, float | str]) -> bool:
    """Whether an SMM with a linear signature is the only record of the URLs."""
    return bool(facts.get("smm_is_linear")) and not {"dsbf_asked", "exact_asked"} & facts.keys()


def _cell(value: float | str) -> float | int | str:
    return int(value) if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()) else value


#: Who answers -> the figure of its answers.
_ANSWERS = {
    "memory": "memory_known",
    "new": "memory_new",
    "SMM": "smm_new",
    "DSBF": "dsbf_new",
    "index": "exact_new",
    "dropped": "dropped",
}


def _answers(number: Mapping[str, float]) -> Iterator[str]:
    """The share of each; a memory that is not there or answered nothing is left out."""
    for who, name in _ANSWERS.items():
        if name in number and (number[name] or name != "memory_known"):
            yield f"{who} {number[name] / number['asked']:.1%}"


def _words(facts: Mapping[str, float | str]) -> Iterator[str]:
    number = {name: float(value) for name, value in facts.items() if not isinstance(value, str)}
    yield f"filter {facts.get('filter', '')}: {int(number.get('keys', 0)):,} URLs known"
    if number.get("asked"):
        answers = ", ".join(_answers(number))
        yield f"{int(number['asked']):,} questions{answers and f' ({answers})'}"
    yield from _stages(number)
    if "memory_bytes" in number:
        memory, keys = int(number["memory_bytes"]), int(number.get("keys", 0))
        each = f" ({memory / keys:,.0f} bytes a URL)" if keys >= _MANY_URLS else ""
        yield f"{format_bytes(memory)} of memory{each}, {format_bytes(int(number['mapped_bytes']))} mapped"
    if "false_drop_probability" in number:
        yield f"P(false drop) {number['false_drop_probability']:.2g}"
    if "expected_lost" in number:
        worst = f", {MEAN}: {WORST}" if loses_whole_sites(facts) else ""
        yield f"expected lost {number['expected_lost']:.2g}{worst}"


#: From so many on memory a URL says something: the leaves are there from the first one on.
_MANY_URLS = 10_000


def _stages(number: Mapping[str, float]) -> Iterator[str]:
    """How full each is."""
    if "smm_fill" in number:
        touched = f", {format_bytes(int(number['smm_bytes_touched']))}" if "smm_bytes_touched" in number else ""
        yield f"SMM {number['smm_fill']:.2g} full{touched}"
    if "dsbf_leaves" in number:
        under_way = f" ({int(number['dsbf_splitting'])} under way)" if number["dsbf_splitting"] else ""
        leaves, splits = int(number["dsbf_leaves"]), int(number["dsbf_splits"])
        yield f"DSBF {'1 leaf' if leaves == 1 else f'{leaves:,} leaves'}, {counted(splits, 'split')}{under_way}"
    if "similar_keys" in number:
        yield f"the similarity filter before it {int(number['similar_keys']):,} URLs"
