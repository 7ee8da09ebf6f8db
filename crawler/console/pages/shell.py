"""Parts that all pages share: header, colours, tables, and how an action runs and its failure is shown."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, TypeVar
from urllib.parse import quote

from nicegui import run, ui
from starlette.requests import Request

from anabranch.crawler.console.access import ConsoleRole, Holder
from anabranch.crawler.console.routing import Console
from anabranch.crawler.console.sessions import HOLDER, HOLDER_NOW
from anabranch.crawler.operate import Facts, FrontierError, clock_words, duration_words
from anabranch.crawler.outcomes.errors import CrawlerError, UsageError
from anabranch.crawler.report.table import escaped

T = TypeVar("T")

#: Pages of a job: path below it, title.
TABS = (
    ("", "Overview"),
    ("queues", "Queues"),
    ("hosts", "Hosts"),
    ("workers", "Workers"),
    ("filter", "Filter"),
    ("url", "URL"),
    ("logs", "Logs"),
    ("reports", "Reports"),
    ("order", "Order"),
)
#: Colours of lines in charts, distinct in light and dark and for colour-blind people (Okabe and Ito, 2008).
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
#: Colour of each state of a job, as Quasar names it.
PHASES: Mapping[str, str] = {
    "running": "positive", "finished": "primary", "paused": "warning", "waiting": "warning", "draining": "warning",
    "starting": "info", "stopped": "grey-7", "unknown": "negative", "killed": "negative", "failed": "negative",
}  # fmt: skip
#: The icon of each state, which tells them apart without colours.
STATE_ICONS: Mapping[str, str] = {
    "running": "play_circle", "finished": "task_alt", "paused": "pause_circle", "waiting": "hourglass_top",
    "draining": "hourglass_bottom", "starting": "pending", "stopped": "stop_circle", "unknown": "help", "killed": "dangerous",
    "failed": "error",
}  # fmt: skip

_STYLE = """
:root { --edge: #d6dde2; --soft: #5b6770; }
body { font-family: system-ui, -apple-system, "Segoe UI", sans-serif; }
body.body--dark { color-scheme: dark; --edge: #3a444b; --soft: #a9b4bb; background: #14191c; }
body.body--dark :is(.text-primary, .q-field__control, .q-toggle__inner) { --q-primary: #8ec5de; }
body.body--dark .text-warning { --q-warning: #f0b45c; }
body.body--dark .text-negative { --q-negative: #f2978f; }
body.body--dark .cm-editor { filter: invert(.9) hue-rotate(180deg); }
body.body--dark .nicegui-link:not(.tab) { color: #8ec5de; }
.nicegui-link:not(.tab) { color: var(--q-primary); }
.nicegui-content { padding: 0; align-items: stretch; }
.soft { color: var(--soft); }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: 8px; }
.figure { font-variant-numeric: tabular-nums; }
.q-table th { font-weight: 600; }
.q-table td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; white-space: normal; }
.q-card { border: 1px solid var(--edge); box-shadow: none; }
.skip { position: absolute; left: -999px; }
.skip:focus { left: 8px; top: 8px; z-index: 9999; background: #fff; color: #000; padding: 8px; }
a.tab { padding: 8px 12px; text-decoration: none; color: inherit; border-bottom: 3px solid transparent; white-space: nowrap; }
a.tab[aria-current=page] { border-bottom-color: var(--q-primary); font-weight: 600; }
body.body--dark a.tab[aria-current=page] { border-bottom-color: #8ec5de; }
a.tab:focus-visible, a:focus-visible, button:focus-visible { outline: 3px solid #e69f00; outline-offset: 1px; }
.nicegui-aggrid [class*=ag-theme-params] { --ag-font-family: inherit !important; }
.nicegui-aggrid [class*=ag-theme-params] { --ag-cell-horizontal-padding: 10px !important; }
.ag-cell { unicode-bidi: isolate; font-variant-numeric: tabular-nums; }
.ag-row { cursor: pointer; }
.panel { width: min(44rem, 100vw); max-height: 100vh; overflow-y: auto; overflow-wrap: anywhere; }
dl.facts { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: 4px 16px; margin: 0; }
dl.facts dt { color: var(--soft); }
dl.facts dd { margin: 0; overflow-wrap: anywhere; }
pre.text { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem; margin: 0; }
.q-btn { text-transform: none; }
.q-expansion-item { border: 1px solid var(--edge); border-radius: 4px; }
.q-btn-group { flex-wrap: wrap; box-shadow: none; }
.q-btn-toggle .q-btn__content { flex-wrap: nowrap; white-space: nowrap; }
ol.history { list-style: none; margin: 0; padding: 0; }
ol.history li { display: grid; grid-template-columns: 24px minmax(5rem, max-content) 1fr; gap: 4px 12px; }
ol.history li { padding: 6px 0 10px; position: relative; }
ol.history li:not(:last-child)::before { content: ""; position: absolute; left: 11px; top: 34px; bottom: -4px; }
ol.history li:not(:last-child)::before { border-left: 2px solid var(--edge); }
.q-dialog__backdrop { z-index: 0; }
.q-dialog__inner { position: relative; z-index: 1; }
.keys table { table-layout: fixed; }
.keys th:nth-child(1) { width: 17rem; } .keys th:nth-child(3) { width: 16rem; }
.keys td { min-width: 0 !important; }
.q-uploader__list { min-height: 0; padding: 0; }
.lines { white-space: pre-wrap; overflow-wrap: anywhere; font: .8rem/1.45 ui-monospace, Menlo, Consolas, monospace; }
.lines { border: 1px solid var(--edge); border-radius: 4px; padding: 8px; max-height: 28rem; overflow: auto; }
.nicegui-log.lines .q-scrollarea__content, .nicegui-log.lines .q-scrollarea__content > * { white-space: inherit; }
.lines.unwrapped, .lines.unwrapped .q-scrollarea__content { overflow-wrap: normal; width: max-content; min-width: 100%; }
.lines.unwrapped { width: 100%; overflow: auto; }
@media (max-width: 599px) {
  .q-table tr { display: flex; flex-wrap: wrap; align-items: center; gap: 2px 16px; padding: 6px 12px; height: auto; }
  .q-table tbody tr:not(:last-child) { border-bottom: 1px solid var(--edge); }
  .q-table tr > :is(th, td) { height: auto; min-width: 0 !important; padding: 0 !important; border: 0 !important; }
  .q-table td { text-align: left; }
  .q-table td:first-child, .q-table td.q-table--col-auto-width + td { font-weight: 600; flex: 1 0 auto; max-width: 100%; }
  .q-table td.q-table--col-auto-width { flex: none; margin-right: -6px; }
  .keys thead { display: none; }
  .q-table td:empty, .q-table th:not(.sortable), .q-table th:not(.sorted) .q-icon { display: none; }
  .q-table thead tr:has(.sortable)::before { content: "Sort by"; color: var(--soft); font-size: 12px; }
  .q-table thead tr:not(:has(.sortable)) { display: none; }
  .q-table tbody td::before { content: var(--label); color: var(--soft); font-weight: 400; white-space: pre; }
  .q-table tbody td::before { position: static; background: none; }
  .q-table__bottom { min-height: 0; padding: 2px 12px; }
  .nicegui-log .q-scrollarea__content { white-space: pre-wrap; overflow-wrap: anywhere; }
}
"""

#: Compares cells of numbers as they are shown: `1,085`, `67.3 GiB`, `1m 40s`.
_BY_AMOUNT = """(() => {
  const units = {KiB: 2**10, MiB: 2**20, GiB: 2**30, TiB: 2**40, ms: .001, m: 60, h: 3600, d: 86400};
  const amount = text => [...String(text).replaceAll(",", "").matchAll(/([\\d.]+) ?([A-Za-z]*)/g)]
    .reduce((sum, [, number, unit]) => sum + number * (units[unit] ?? 1), 0);
  return (one, other) => amount(one) - amount(other);
})()"""

#: Fetches of a crawl of one worker are on its page of workers, which has no tab then.
_WORKERS = "workers"

#: Runs in each window. A console that was restarted knows no session, so a window that lost it goes to the login. On a
#: narrow window the tabs scroll to the one that is open.
_SCRIPT = """
document.documentElement.lang = "en";
setInterval(async () => {
  if (!window.socket || window.socket.connected) return;
  const answer = await fetch(location.href, {method: "HEAD", redirect: "manual"}).catch(() => null);
  if (answer && answer.type === "opaqueredirect") location.reload();
}, 2000);
addEventListener("load", () =>
  document.querySelector("a.tab[aria-current]")?.scrollIntoView({inline: "center", block: "nearest"})
);
"""


@dataclass(frozen=True, slots=True)
class View:
    """The console as one user sees it: all that a page needs to draw itself."""

    console: Console
    holder: Holder
    holder_now: Callable[[], Holder | None]  #: of the session that opened the page; None when it has ended
    base: str  #: path of the console, before all others

    @property
    def may_change(self) -> bool:
        """The user may change jobs."""
        return self.holder.role is ConsoleRole.OPERATOR

    def check_operator(self) -> None:
        """Raises: UsageError unless the session that opened the page still belongs to a user who may change jobs.

        Another user of the same browser, and who knows a window's ids, could use the window otherwise.
        """
        if self.holder_now() != self.holder:
            raise UsageError("the session that opened this page has ended; reload the page")
        if not self.may_change:
            raise UsageError("you have read-only access")

    def path(self, *parts: str, **query: str) -> str:
        """The path of a page, for `ui.link` and `ui.navigate`, which add `base`. Parts may hold any characters."""
        path = "/".join(quote(part, safe="") for part in parts if part)
        asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        return f"/{path}" + (f"?{asked}" if asked else "")

    def href(self, *parts: str, **query: str) -> str:
        """The path with `base`, for plain HTML: links in table cells, forms, URLs that scripts fetch."""
        return self.base + self.path(*parts, **query)


def view_of(console: Console, request: Request) -> View:
    """The view of the user who requests a page."""
    holder: Holder = request.scope[HOLDER]
    return View(console, holder, request.scope[HOLDER_NOW], str(request.scope.get("root_path", "")))


@contextmanager
def page(view: View, title: str, job: str = "", tab: str | None = None, *, zone: str = "") -> Iterator[None]:
    """The frame of a page: header, tabs of the job, and a main part that takes what is made inside `with`.

    `zone`: the sentence about the times of the page, if they are not those of the console's zone.
    """
    ui.page_title(f"{title} · Anabranch")
    ui.colors(primary="#22617d", positive="#2e7d32", negative="#b3261e", warning="#945500", info="#0277bd")
    ui.add_head_html(f"<style>{_STYLE}</style><script>{_SCRIPT}</script>")
    dark = ui.dark_mode(None)  # follows the system
    with ui.header().classes("items-center no-wrap q-py-xs").props("role=banner"):
        ui.link("Skip to the content", "#main").classes("skip")  # the first stop of Tab
        ui.link("Anabranch", view.path()).classes("text-white text-lg text-bold no-underline")
        if job:
            ui.label("/").classes("text-white")
            link = ui.link(job, view.path("jobs", job)).classes("text-white no-underline ellipsis").style("min-width:0")
            link.props["title"] = job
        ui.space()
        ui.label(f"signed in as {view.holder.name}" + ("" if view.may_change else " (reader)")).classes(
            "text-white gt-xs"
        )
        ui.button(icon="contrast", on_click=lambda: dark.set_value(not dark.value)).props(
            'flat round dense color=white aria-label="Light or dark"'
        )
        with ui.button(icon="more_vert").props('flat round dense color=white aria-label="More"'), ui.menu():
            for words, path in (("Lab: compare queue policies", "lab"), ("Templates", "templates")):
                menu_item(words, href=view.href(path))
        with ui.element("form").props(f'method=post action="{view.href("logout")}"'):
            ui.button(icon="logout").props('flat round dense color=white type=submit aria-label="Log out"')
    if job:
        with ui.element("nav").classes("row no-wrap overflow-auto").props('aria-label="Pages of the job"'):
            for path, name in TABS:
                if path == _WORKERS and not (path == tab or has_workers(view, job)):
                    continue
                link = ui.link(name, view.path("jobs", job, path)).classes("tab")
                if path == tab:
                    link.props("aria-current=page")
    with (
        ui.element("div")
        .classes("q-px-md q-pb-md q-pt-sm column gap-4")
        .style("max-width:1500px;width:100%;margin:0 auto")
        .props("id=main tabindex=-1")
    ):
        yield
        ui.label(zone or f"Times are {zone_name(time.time())}.").classes("soft text-caption")


def has_workers(view: View, job: str) -> bool:
    """Whether several workers may crawl a job, which then has a tab of them. Cost: a look at its folder."""
    try:
        return view.console.jobs.job(job).logs is None
    except (CrawlerError, FrontierError):
        return False


def zone_name(now_s: float) -> str:
    """The zone of the console, in which all times of a page are: `UTC`, or `CET (UTC+01:00)`. Pure but for the zone."""
    now = datetime.fromtimestamp(now_s, UTC).astimezone()
    offset = f"{now:%z}"
    return "UTC" if now.utcoffset() == timedelta(0) else f"{now:%Z} (UTC{offset[:3]}:{offset[3:5]})"


def zone_ms(time_s: float) -> float:
    """Milliseconds that a chart, which shows UTC, shows as the time in the zone of the console. Pure but for the zone."""
    shift = datetime.fromtimestamp(time_s, UTC).astimezone().utcoffset() or timedelta(0)
    return (time_s + shift.total_seconds()) * 1000


def keep_in_address(**values: str) -> None:
    """Write what a page shows into its address, so that a reload or a bookmark shows the same; empty values are left out."""
    ui.run_javascript(
        "{const address = new URL(location.href);"
        f"for (const [name, value] of Object.entries({json.dumps(values)}))"
        " value ? address.searchParams.set(name, value) : address.searchParams.delete(name);"
        " history.replaceState(history.state, '', address)}"
    )


def every(seconds: float, redraw: Callable[[], Awaitable[None]]) -> None:
    """Call `redraw` now and at each interval, while the window is open."""
    ui.timer(seconds, redraw)


async def looked(find: Callable[[], T]) -> T | None:
    """Call `find` in a thread and return its result. An error is shown, and None returned."""
    try:
        return await run.io_bound(find)
    except (CrawlerError, FrontierError) as error:
        say(str(error), is_bad=True)
        return None


async def act(view: View, action: str, job: str, arguments: Mapping[str, object], do: Callable[[], T]) -> T | None:
    """Change a job: call `do` in a thread and write the audit log. An error is shown, and None returned."""
    done = None
    try:
        view.check_operator()
        done = await run.io_bound(lambda: view.console.change(view.holder, action, job, arguments, do))
    except (CrawlerError, FrontierError) as error:
        say(str(error), is_bad=True)
    return done


def say(words: str, *, is_bad: bool = False) -> None:
    """Show a message for some seconds; screen readers announce it."""
    ui.notify(
        words,
        type="negative" if is_bad else "positive",
        position="top",
        timeout=8000 if is_bad else 3000,
        multi_line=True,
    )


async def confirmed(question: str, action: str) -> bool:
    """Ask the user to confirm an action; True if they do."""
    with named_dialog(action) as dialog, ui.card():
        ui.label(question).style("max-width:32rem;overflow-wrap:anywhere")
        answer_buttons(dialog, action)
    return bool(await answered(dialog))


def named_dialog(name: str) -> ui.dialog:
    """A dialog that is not open yet, with a name for screen readers."""
    made = ui.dialog()
    made.props["aria-label"] = name
    return made


def menu_item(words: str, do: Callable[[], object] | None = None, *, href: str = "") -> ui.menu_item:
    """An item of a menu, which does something or leads somewhere."""
    made = ui.menu_item(words, do).props("role=menuitem")
    if href:
        made.props["href"] = href
    return made


def answer_buttons(dialog: ui.dialog, action: str, *, color: str = "negative") -> None:
    """The buttons at the end of a dialog: it submits whether to act."""
    with ui.row().classes("w-full justify-end"):
        ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
        ui.button(action, on_click=lambda: dialog.submit(True)).props(f"color={color} autofocus")


async def answered(dialog: ui.dialog) -> object:
    """The value that a dialog submits; None if it or its window is closed."""
    answer: object = await dialog
    if not dialog.is_deleted:
        dialog.delete()
    return answer


#: A box to choose a row by, or all rows.
_SELECT = '<q-checkbox v-model="props.selected" dense {} />'


def table(columns: Sequence[Column], key: str, caption: str, *, selects: bool = False) -> ui.table:
    """An empty table. Its rows are dicts of texts and numbers, all shown as text. On a phone each row is a block, in which a
    value has its label before it (`--label`); a text in the first column is the name of the row, and has none. `selects`:
    rows have boxes to be chosen by.
    """
    made = [
        {
            "name": column.name, "label": column.label, "field": column.name, "sortable": column.is_sortable,
            "align": "right" if column.is_number else "left",
            **({":sort": _BY_AMOUNT} if column.is_number else {}),
            "style": {
                "--label": json.dumps(f"{column.label} " if number or column.is_number else "", ensure_ascii=False),
                **_widths(column),
            },
        }
        for number, column in enumerate(columns)
    ]  # fmt: skip
    selection: Literal["multiple"] | None = "multiple" if selects else None
    found = ui.table(columns=made, rows=[], row_key=key, pagination=50, selection=selection).classes("w-full")
    if selects:
        found.add_slot("header-selection", _SELECT.format('aria-label="Select all"'))
        name = f"""'Select ' + props.row.{columns[0].name}"""
        found.add_slot("body-selection", _SELECT.format(f':aria-label="{name}"'))
    found.add_slot("no-data", '<span class="soft">nothing to show</span>')
    return found.props(f'flat bordered dense table-header-class=text-bold aria-label="{caption}"')


def _widths(column: Column) -> dict[str, str]:
    """The style of a column's cells: figures are not broken, and texts have room. Pure."""
    if column.is_number or column.is_whole:
        return {"white-space": "nowrap"}
    return {"min-width": "16rem" if column.is_wide else "9rem"}


def show_rows(shown: ui.table, rows: list[dict[str, str]], optional: str) -> None:
    """Show the rows; the column `optional` only if a row has a value in it."""
    has_value = any(row[optional] for row in rows)
    names = (column["name"] for column in shown.columns)
    shown.props["visible-columns"] = [name for name in names if has_value or name != optional]
    shown.rows = rows


def mishap(row: Facts, now_s: float) -> str:
    """How the last run of a job ended that should run and does not; empty for any other. Pure."""
    ended = row["ended"]
    if ended is None or row["state"] not in {"killed", "failed"}:
        return ""
    ago = f"{clock_words(ended['time_s'], now_s)}, {duration_words(max(now_s - ended['time_s'], 0.0))} ago"
    then = "Start resumes it." if row["folder"] else row["line"]  # workers of a database are started on their machines
    if row["state"] == "failed":
        return f"Failed at {ago}: {ended['words']}. {then}"
    return f"Killed: its last sign of life was at {ago}. {then}"


def possible_actions(state: str, *, is_in_database: bool = False) -> set[str]:
    """The actions that a job in this state allows; workers of a database are started on their machines. Pure."""
    if state in {"running", "waiting"}:
        return {"Pause", "Stop", "Add seeds", "Retry failed"}
    if state == "paused":
        return {"Resume", "Stop", "Add seeds", "Retry failed"}
    more = {"Add seeds", "Retry failed"}
    if is_in_database:
        return more | {"Resume", "Stop"} if state in {"stopped", "killed"} else more if state == "finished" else set()
    rests = {"Start", "Add seeds", "Retry failed", "Another round", "Remove"}
    if state in {"killed", "failed"}:
        return rests | {"Stop"}  # it is not to run any more
    return rests if state in {"stopped", "finished"} else set()


def link_cell(field: str) -> str:
    """The slot of a cell that links to the `href` of its row. Vue shows what is between braces as text, whatever it holds."""
    return f'<q-td :props="props"><a :href="props.row.href" class="text-primary">{{{{ props.row.{field} }}}}</a></q-td>'


class Column(NamedTuple):
    """A column of a table."""

    name: str
    label: str
    is_number: bool = False
    is_sortable: bool = True
    is_wide: bool = False  #: has long texts
    is_whole: bool = False  #: its texts are not broken into lines


def facts_list(facts: Iterable[tuple[str, str]]) -> None:
    """A list of names and values; empty values are left out."""
    with ui.element("dl").classes("facts"):
        for name, value in facts:
            if value:
                with ui.element("dt"):
                    ui.label(name)
                with ui.element("dd"):
                    ui.label(cut(value))


def title(text: str) -> ui.label:
    """The heading of a page."""
    return ui.label(text).classes("text-h5").props("role=heading aria-level=1").style("overflow-wrap:anywhere")


def heading(text: str) -> None:
    """The heading of a part of a page."""
    ui.label(text).classes("text-h6").props("role=heading aria-level=2")


def text_block(text: str, caption: str) -> ui.label:
    """Preformatted text in a monospaced font; long lines wrap."""
    return ui.label(text).classes("w-full lines").props(f'tabindex=0 role=region aria-label="{caption}"')


def cut(text: str, most: int = 2000) -> str:
    """A text, perhaps from a site, with unprintable characters escaped and at most `most` characters."""
    shown = escaped(text[:most])
    return shown if len(text) <= most else f"{shown}…"


def cell(text: str) -> str:
    """`cut` for a cell of a table."""
    return cut(text, 300)


def count(number: float | None) -> str:
    """A number with thousands separators; empty for None."""
    return "" if number is None else f"{number:,.0f}"
