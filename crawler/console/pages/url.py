"""A URL of a job: where it is and why, its lines in the logs, the pages that link to it, its links, its WARC record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nicegui import ui
from starlette.requests import Request

from anabranch.crawler.console.api import Console
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
from anabranch.crawler.operate import Facts, duration_words, has_failed, moment_words, rate_words, retried_lines
from anabranch.crawler.robots.retrieval import robots_url
from anabranch.crawler.robots.rules import explain_rules, parse_robots

#: Most characters of a URL that the page explains.
_MOST_CHARS = 8000
#: Workers that are listed when the record is on the machine of one of them.
_MOST_WORKERS = 20


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
        if not found.files.is_whole:
            ui.label("The logs are long: only their ends were searched, or not all matches are shown.").classes("soft")
        _lines("crawl.log", found.files.log)
        if found.files.errors:
            _lines("errors.jsonl", found.files.errors)
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
    if view.may_change and has_failed(facts["explanation"]):
        _retry_button(view, name, facts["explanation"]["subject"])
    for explanation in (facts["explanation"], *facts.get("others", ())):
        _place(view, name, explanation, facts["now_s"])
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


def _place(view: View, name: str, explanation: Facts, now_s: float) -> None:
    """Draw a card about a request of the URL: its state and queue, and when it can be fetched."""
    earliest_s, rate, ahead = explanation["earliest_s"], explanation["highest_rate"], explanation["ahead"]
    with ui.card().classes("w-full"):
        with ui.row().classes("items-center"):
            ui.label(cut(explanation["subject"])).classes("text-bold").style("overflow-wrap:anywhere")
            ui.badge(explanation["state"]).props("color=primary")
        facts_list((
            ("Why", explanation["reason"]),
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


def _lines(log: str, lines: Sequence[str]) -> None:
    heading(log)
    if lines:
        text_block("\n".join(map(cut, lines)), f"Lines of {log}")
        if len(lines) == MOST_LINES:
            ui.label(f"Only the last {MOST_LINES} are shown.").classes("soft")
    else:
        ui.label("No lines.").classes("soft")


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
    """The 14 digits of an index line's time as text."""
    return f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]} {stamp[8:10]}:{stamp[10:12]}:{stamp[12:14]} UTC"


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
