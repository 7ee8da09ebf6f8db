"""A URL of a job: the verdict first, then scope, robots.txt, its history, the pages that link to it, its links, its record."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from nicegui import ui
from starlette.requests import Request

from anabranch.crawler.accounts.crawl_log import NotALogLine, parse_crawl_log_line
from anabranch.crawler.console.pages.shell import (
    View,
    act,
    cut,
    facts_list,
    heading,
    looked,
    page,
    say,
    text_block,
    title,
    view_of,
)
from anabranch.crawler.console.routing import Console
from anabranch.crawler.console.urlfacts import (
    BODY_BYTES,
    MOST_LINES,
    MOST_LINKS,
    MOST_PARENTS,
    UrlFiles,
    UrlRecord,
    safe_text,
    url_files,
)
from anabranch.crawler.extract.encoding import html_in_utf8
from anabranch.crawler.operate import (
    Facts,
    clock_words,
    duration_words,
    has_failed,
    moment_words,
    rate_words,
    retried_lines,
)
from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.robots.retrieval import robots_url
from anabranch.crawler.robots.rules import explain_rules, parse_robots

#: Most characters of a URL that the page explains.
_MOST_CHARS = 8000
#: Workers that are listed when the record is on the machine of one of them.
_MOST_WORKERS = 20
#: Events of a URL that are shown, the last ones.
_MOST_EVENTS = 50
#: Digits of the time of an index line.
_STAMP_DIGITS = 14
#: Icon and colour of each kind of event.
_KINDS = {
    "done": ("check", "positive"),
    "failed": ("error_outline", "negative"),
    "archived": ("inventory_2", "primary"),
}
#: Colours of states; others are plain.
_COLOURS = {"ended": "primary", "queued": "info", "waiting": "warning", "refused": "negative", "not stored": "warning"}


class _Looked(NamedTuple):
    """All that the page shows about a URL."""

    explained: Facts
    files: UrlFiles | None  #: None: the job has no folder here
    robots: Sequence[str]  #: the decision of the archived robots.txt, in lines
    workers: Sequence[str]  #: of a job without a folder here


def add_url_page(console: Console) -> None:
    """Add the page at `/jobs/NAME/url?url=…`."""

    @ui.page("/jobs/{name}/url")
    async def url(request: Request, name: str) -> None:
        view, asked = view_of(console, request), request.query_params.get("url", "").strip()
        with page(view, f"URL · {name}", name, "url"):
            title("URL")
            _form(view, name, asked)
            found = ui.column().classes("w-full")
        if len(asked) > _MOST_CHARS:
            say(f"the URL has more than {_MOST_CHARS} characters; use `anabranch why`", is_bad=True)
        elif asked:
            with found:
                ui.spinner().props('aria-label="looking"')
            ui.timer(0.05, lambda: _fill(view, name, asked, found), once=True)


def _form(view: View, name: str, asked: str) -> None:
    """A form of plain HTML, which works before the window is connected."""
    with (
        ui.element("form")
        .props(f'action="{view.href("jobs", name, "url")}"')
        .classes("w-full row items-center no-wrap gap-4")
    ):
        ui.input("URL", value=asked, placeholder="https://example.org/page").classes("col").props(
            "outlined dense autofocus name=url"
        )
        ui.button("Explain", icon="search").props("type=submit")


async def _fill(view: View, name: str, asked: str, place: ui.column) -> None:
    found = await looked(lambda: _look(view, name, asked))
    place.clear()
    if found is None:
        return
    with place:
        _explained(view, name, found)
        if found.files is None:
            _elsewhere(found.workers)
            return
        _history(found.files, time.time())
        _pages(view, name, found.files)
        _record(view, name, found.files.record)


def _look(view: View, name: str, asked: str) -> _Looked:
    """Blocks. Raises: CrawlerError, FrontierError."""
    job, directory = view.console.jobs.job(name), view.console.jobs.directory(name)
    explained = job.answer("why", {"url": asked}).facts
    url = explained["explanation"]["subject"]
    if directory is None:
        listed = (job.workers() or ())[:_MOST_WORKERS]
        return _Looked(
            explained, None, (), [f"{worker['name']} ({worker['machine'] or 'unknown'})" for worker in listed]
        )
    robots: list[str] = []
    if "scope" in explained:
        archived = url_files(directory, robots_url(url)).record
        if archived is not None and archived.body and archived.head[9:12] == "200":
            rules = parse_robots(archived.body, job.order().agent.token, is_cut=archived.is_cut)
            robots = explain_rules(rules, url, archived.body)
    return _Looked(explained, url_files(directory, url), robots, ())


def _explained(view: View, name: str, found: _Looked) -> None:
    """Draw the crawl's explanation of the URL."""
    facts = found.explained
    for explanation in (facts["explanation"], *facts.get("others", ())):
        _verdict(view, name, explanation, facts["now_s"])
    if "scope" in facts:
        heading("Scope")
        text_block(safe_text(facts["scope"][:_MOST_CHARS]), "Scope")
    if "robots" in facts or found.robots:
        heading("robots.txt")
        if "robots" in facts:
            ui.label(cut(facts["robots"]))
        if found.robots:
            text_block("\n".join(map(cut, found.robots)), "The archived robots.txt")
    if "body" in facts:
        heading("Body")
        text_block(safe_text(facts["body"][:_MOST_CHARS]), "Body")
    if "last_trouble" in facts:
        trouble = facts["last_trouble"]
        heading("Latest trouble")
        ended = "given up" if trouble["is_final"] else "will be retried"
        ui.label(cut(f"{duration_words(trouble['ago_s'])} ago: {trouble['url']}: {trouble['reason']}, {ended}"))


def _retry_button(view: View, name: str, url: str) -> None:
    async def retry() -> None:
        arguments = {"url": url}
        queued = await act(view, "retry", name, arguments, lambda: view.console.jobs.retry(name, arguments))
        if queued is not None:
            say("; ".join(retried_lines(queued)))
            ui.navigate.reload()

    ui.button("Retry", icon="refresh", on_click=retry).props("outline dense")


def _verdict(view: View, name: str, explanation: Facts, now_s: float) -> None:
    """Draw a card about a request of the URL: what became of it, then its queue and when it can be fetched."""
    earliest_s, rate, ahead = explanation["earliest_s"], explanation["highest_rate"], explanation["ahead"]
    with ui.card().classes("w-full"):
        with ui.row().classes("w-full items-center gap-2"):
            ui.badge(explanation["state"]).props(f"color={_COLOURS.get(explanation['state'], 'primary')}")
            ui.label(cut(explanation["reason"] or explanation["state"])).classes("text-h6 col").style(
                "min-width:14rem;overflow-wrap:anywhere"
            ).props('role=status aria-label="Verdict"')
            if view.may_change and has_failed(explanation):
                _retry_button(view, name, explanation["subject"])
        facts_list((
            ("URL", explanation["subject"]),
            ("Earliest", "" if earliest_s is None else moment_words(earliest_s, now_s)),
            ("Ahead of it", "" if ahead is None else f"{ahead:,} URLs in its queue"),
            ("Gate", explanation["gate"] or ""),
            ("Group", explanation["group"] or ""),
            ("Highest rate", "" if rate is None else rate_words(rate)),
            ("Hops", explanation["hops"] or ""),
            ("In the filter", {True: "yes", False: "no"}.get(explanation["seen"], "")),
        ))  # fmt: skip
        queue = explanation["queue"]
        if queue is not None:
            ui.link(f"Queue {cut(queue, 200)}", view.path("jobs", name, "queues", queue=queue))


def _elsewhere(workers: Sequence[str]) -> None:
    heading("Logs and WARC record")
    ui.label("They are on the machine of the worker that fetched it. Workers now:" if workers else
             "They are on the machine of the worker that fetched it. No worker is running now.")  # fmt: skip
    for worker in workers:
        ui.label(cut(worker, 200))


class Event(NamedTuple):
    """Something that happened to a URL."""

    time_s: float  #: epoch seconds
    what: str
    detail: str = ""
    kind: str = "done"  #: done, failed or archived


def url_events(files: UrlFiles) -> list[Event]:
    """What happened to a URL by the job's files, the oldest first. Lines that cannot be read are left out. Pure."""
    found = [*_fetches_of(files.log), *_failures_of(files.errors)]
    if files.record is not None and len(files.record.date) == _STAMP_DIGITS and files.record.date.isdecimal():
        archived_s = datetime.strptime(files.record.date, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
        found.append(Event(archived_s, "archived", files.record.file, "archived"))
    return sorted(found, key=lambda one: one.time_s)


def _fetches_of(lines: Sequence[str]) -> Iterator[Event]:
    for line in lines:
        with suppress(NotALogLine):
            entry = parse_crawl_log_line(line.encode("ascii", "replace"))
            detail = [
                "" if entry.size_bytes is None else f"{entry.size_bytes:,} bytes",
                entry.mime if entry.size_bytes else "",
                ""
                if entry.start_s is None or entry.end_s is None
                else f"in {duration_words(entry.end_s - entry.start_s)}",
                ", ".join(entry.annotations),
            ]
            kind = "done" if entry.status > 0 else "failed"
            yield Event(entry.logged_s, describe(entry.status), " · ".join(filter(None, detail)), kind)


def _failures_of(lines: Sequence[str]) -> Iterator[Event]:
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            fields = json.loads(line)
            at_s = datetime.fromisoformat(fields["time"]).timestamp()
            what = "given up" if fields["final"] else "failed, to be tried again"
            yield Event(at_s, what, str(fields["message"] or fields["words"]), "failed")


def _history(files: UrlFiles, now_s: float) -> None:
    """Draw what happened to the URL as a time line, and the lines of the logs it is from."""
    heading("History")
    events = url_events(files)
    if not files.is_whole:
        ui.label("The logs are long: only their ends were searched, or not all matches are shown.").classes("soft")
    if not events:
        ui.label("Nothing in the logs.").classes("soft")
    else:
        with ui.element("ol").classes("history").props('aria-label="History of the URL"'):
            for one in events[-_MOST_EVENTS:]:
                icon, colour = _KINDS[one.kind]
                with ui.element("li"):
                    ui.icon(icon).props(f"color={colour} size=sm aria-hidden=true")
                    ui.label(clock_words(one.time_s, now_s)).classes("figure soft")
                    with ui.column().classes("gap-0").style("overflow-wrap:anywhere"):
                        ui.label(cut(one.what, 200)).classes("text-bold")
                        ui.label(cut(one.detail, 500)).classes("soft")
    for log, lines in (("crawl.log", files.log), ("errors.jsonl", files.errors)):
        if lines:
            with ui.expansion(f"Lines of {log} ({len(lines)})").classes("w-full"):
                text_block("\n".join(map(cut, lines)), f"Lines of {log}")
                if len(lines) == MOST_LINES:
                    ui.label(f"Only the last {MOST_LINES} are shown.").classes("soft")


def _pages(view: View, name: str, files: UrlFiles) -> None:
    heading("Found on")
    parents = list(dict.fromkeys([*([files.via] if files.via else []), *files.parents]))
    if files.is_seed:
        ui.label("It is a seed.")
    elif not parents:
        when = "Not recorded." if files.log else "Not known until it is fetched."
        ui.label(f"{when} With write.links = true a crawl records all links.").classes("soft")
    with ui.column().classes("w-full gap-1").style("max-height:20rem;overflow:auto;flex-wrap:nowrap"):
        for parent in parents:
            first = " (first)" if parent == files.via else ""
            link = ui.link(f"{cut(parent, 300)}{first}", view.path("jobs", name, "url", url=parent[:_MOST_CHARS]))
            link.style("overflow-wrap:anywhere")
    if len(parents) >= MOST_PARENTS:
        ui.label(f"Only the last {MOST_PARENTS} are shown.").classes("soft")
    if not files.links:
        return
    with ui.expansion(f"Links on it ({len(files.links):,})").classes("w-full"), ui.column().classes("gap-1"):
        for url, hop, context in files.links:
            with ui.row().classes("items-baseline"):
                ui.label(f"{hop} {cut(context, 60)}").classes("soft")
                ui.link(cut(url, 300), view.path("jobs", name, "url", url=url[:_MOST_CHARS])).style(
                    "overflow-wrap:anywhere"
                )
        if len(files.links) == MOST_LINKS:
            ui.label(f"Only the first {MOST_LINKS} are shown.").classes("soft")


def _moment(stamp: str) -> str:
    """The 14 digits of an index line's time, which is UTC, in the zone of the page. Pure but for the zone."""
    try:
        taken = datetime.strptime(stamp, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return cut(stamp, 50)
    return f"{taken.astimezone():%Y-%m-%d %H:%M:%S}"


def _record(view: View, name: str, record: UrlRecord | None) -> None:
    heading("WARC record")
    if record is None:
        ui.label("None: the URL is not fetched yet, or the crawl writes no WARC files (write.warc).").classes("soft")
        return
    facts_list((("File", record.file), ("Fetched", _moment(record.date)), ("Trouble", record.trouble)))
    if record.trouble:
        return
    for part, text in (("Request", record.request), ("Response", record.head), ("WARC header", record.fields)):
        if text:
            with ui.expansion(part, value=part == "Response").classes("w-full"):
                text_block(safe_text(text), part)
    if record.original:
        ui.label("The body is in the record of:")
        ui.link(cut(record.original, 300), view.path("jobs", name, "url", url=record.original[:_MOST_CHARS]))
    elif record.body:
        with ui.expansion("Body", value=True).classes("w-full"):
            text_block(safe_text(html_in_utf8(record.body, record.media_type).text), "Body")
            if record.is_cut:
                ui.label(f"Only the first {BODY_BYTES >> 10} KiB, or what could be decoded.").classes("soft")
