"""The first page: all jobs, and the form of a new one."""

from __future__ import annotations

import time
from functools import partial

from nicegui import events, run, ui
from starlette.requests import Request

from anabranch.crawler.console.api import Console
from anabranch.crawler.console.jobs import MOST_SEED_BYTES
from anabranch.crawler.console.pages.shell import (
    PHASES,
    Column,
    View,
    act,
    count,
    cut,
    every,
    link_cell,
    looked,
    mishap,
    page,
    say,
    table,
    title,
    view_of,
)
from anabranch.crawler.console.watch import EVERY_S
from anabranch.crawler.job.checking import Check
from anabranch.crawler.operate import NOT_RUNNING, STOPPED, UNKNOWN, Facts, Phase
from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.outcomes.errors import CrawlerError

_COLUMNS = (
    Column("job", "Job"),
    Column("state", "State"),
    Column("pages", "Pages", is_number=True),
    Column("rate", "Pages/s", is_number=True),
    Column("queued", "Queued", is_number=True),
    Column("failed", "Failed", is_number=True),
    Column("free", "Free disk", is_number=True),
    Column("note", "Note", is_sortable=False, is_wide=True),
)
_ORDER = """# Keys that are left out have their defaults; see conf/portals.toml
[agent]
contact = ""            # a web page or an e-mail address for site owners

[scope]
scope = "host"

[limits]
pages = 1000
"""


_LINES = "white-space:pre-wrap;overflow-wrap:anywhere"


def add_jobs_page(console: Console) -> None:
    """Add the page at `/`."""

    @ui.page("/")
    async def jobs(request: Request) -> None:
        view = view_of(console, request)
        with page(view, "Jobs"):
            with ui.row().classes("w-full items-center"):
                title("Jobs")
                ui.space()
                if view.may_change and console.jobs.folder is not None:
                    ui.button("New job", icon="add", on_click=lambda: _new_job(view))
            rows = table(_COLUMNS, "href", "Jobs")
            rows.add_slot("body-cell-job", link_cell("job"))
            rows.add_slot("body-cell-state", _STATE_CELL)
            rows.add_slot(
                "no-data", '<span class="soft">No jobs yet. Create one here, or with `anabranch crawl`.</span>'
            )

        async def redraw() -> None:
            found = await looked(console.watch.rows)
            if found is not None:
                rows.rows = [_cells(view, row) for row in found]

        every(EVERY_S, redraw)


#: Vue shows what is between braces as text, whatever it holds.
_STATE_CELL = '<q-td :props="props"><q-badge :color="props.row.colour">{{ props.row.state }}</q-badge></q-td>'


def _cells(view: View, row: Facts) -> dict[str, object]:
    state = str(row["state"])
    return {
        "job": cut(row["job"], 100),
        "href": view.href("jobs", row["job"]),
        "state": state,
        "colour": PHASES.get(state, "grey-7"),
        "pages": count(row["pages"]),
        "rate": f"{row['pages_per_s']:.1f}" if row["pid"] else "",
        "queued": count(row["queued"]),
        "failed": count(row["failed"]),
        "free": "" if row["free_disk_bytes"] is None else format_bytes(row["free_disk_bytes"]),
        "note": cut(mishap(row, time.time()) or _note(row), 300),
    }


def _note(row: Facts) -> str:
    """The last trouble of a job that runs or was killed; else what it waits for, or why it stands still. Pure."""
    if row["phase"] == Phase.WAITING.value:
        return str(row["line"])
    trouble = row["last_trouble"]
    if row["phase"] == UNKNOWN or (row["phase"] == STOPPED and not row["is_finished"] and row["line"] != NOT_RUNNING):
        return str(row["line"])
    return "" if trouble is None else f"{trouble['url']}: {trouble['reason']}"


def _checked(view: View, name: str, order: str, seeds: str) -> Check:
    """The faults and warnings of an order and seeds that somebody types."""
    try:
        return view.console.jobs.check(name or "name", order, seeds)
    except CrawlerError as error:
        return Check(faults=(str(error),), warnings=())


def _new_job(view: View) -> None:
    """The form of a new job."""
    with ui.dialog().props("persistent") as dialog, ui.card().classes("w-full").style("max-width:48rem"):
        ui.label("New job").classes("text-h6")
        name = ui.input("Name", placeholder="news").props("outlined dense autofocus").classes("w-full")
        seeds = (
            ui.textarea("Seeds, one URL per line", placeholder="https://example.org/")
            .props("outlined")
            .classes("w-full")
        )

        files: list[str] = []  # which no browser has to show
        file_names = ui.label().classes("soft")

        async def uploaded(given: events.UploadEventArguments) -> None:
            text = (await given.file.read()).decode("utf-8", "replace")
            if sum(map(len, files)) + len(text) > MOST_SEED_BYTES:
                say(f"{cut(given.file.name, 100)}: too large; add these seeds when the job runs", is_bad=True)
                return
            files.append(text)
            file_names.text += f"{cut(given.file.name, 100)}: {count(len(text.splitlines()))} lines. "

        ui.upload(
            label="Or upload a file of seeds", on_upload=uploaded, auto_upload=True, max_file_size=MOST_SEED_BYTES
        ).props("flat bordered").classes("w-full")
        order = (
            ui.codemirror(_ORDER, language="TOML", theme="vscodeLight")
            .classes("w-full")
            .props('aria-label="Order, as TOML"')
        )
        fault = ui.label().classes("text-negative").props("role=alert").style(_LINES)
        warning = ui.label().classes("text-warning").props("role=status").style(_LINES)

        async def begin(*, starts: bool) -> None:
            if not create.enabled:  # a second click, while the first one is at work
                return
            job, texts = name.value.strip(), "\n".join([seeds.value, *files])
            do = partial(view.console.jobs.create, job, texts, order.value, starts=starts)
            create.disable()
            try:
                warnings = await act(view, "create", job, {"start": starts}, do)
            finally:
                create.enable()
            if warnings is not None:
                ui.navigate.to(view.path("jobs", job))

        checked = [("", "", "")]  # what was checked last

        async def check() -> None:
            given = (name.value.strip(), order.value, seeds.value)
            if checked != [given]:
                checked[0] = given
                found = await run.io_bound(lambda: _checked(view, *given))
                if found is not None:  # the console ends
                    fault.text, warning.text = "\n".join(found.faults), "\n".join(found.warnings)

        every(1.0, check)
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat")
            create = ui.button("Create", on_click=lambda: begin(starts=False)).props("outline")
            ui.button("Create and start", on_click=lambda: begin(starts=True))
    dialog.on("hide", dialog.delete).open()  # with its timer and its files
