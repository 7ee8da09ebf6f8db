"""What all pages share: the header, the palette, tables, and how something is done and its failure shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from nicegui import run, ui
from starlette.requests import Request

from anabranch.crawler.console.access import ConsoleRole, Holder
from anabranch.crawler.console.api import Console
from anabranch.crawler.console.sessions import HOLDER
from anabranch.crawler.console.watch import WatchedJobs
from anabranch.crawler.outcomes.errors import CrawlerError, UsageError
from anabranch.crawler.report.table import escaped
from anabranch.frontier.errors import FrontierError

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
#: Colours of lines in charts, told apart in light and dark, and by people who see few colours (Okabe and Ito, 2008).
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
#: Colour of each phase, as Quasar names it.
PHASES: Mapping[str, str] = {
    "running": "positive", "finished": "primary", "paused": "warning", "draining": "warning", "starting": "info",
    "stopped": "grey-7", "unknown": "negative",
}  # fmt: skip

_STYLE = """
:root { --edge: #d6dde2; --soft: #5b6770; }
body { font-family: system-ui, -apple-system, "Segoe UI", sans-serif; }
body.body--dark { --edge: #3a444b; --soft: #a9b4bb; background: #14191c; }
body.body--dark .text-primary { --q-primary: #8ec5de; }
body.body--dark .nicegui-link:not(.tab) { color: #8ec5de; }
.nicegui-content { padding: 0; align-items: stretch; }
.soft { color: var(--soft); }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(7.5rem, 1fr)); gap: 8px; }
.figure { font-variant-numeric: tabular-nums; }
.q-table th { font-weight: 600; }
.q-table td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; white-space: normal; }
.q-card { border: 1px solid var(--edge); box-shadow: none; }
.skip { position: absolute; left: -999px; }
.skip:focus { left: 8px; top: 8px; z-index: 9999; background: #fff; color: #000; padding: 8px; }
a.tab { padding: 8px 12px; text-decoration: none; color: inherit; border-bottom: 3px solid transparent; white-space: nowrap; }
a.tab[aria-current=page] { border-bottom-color: var(--q-primary); font-weight: 600; }
a.tab:focus-visible, a:focus-visible, button:focus-visible { outline: 3px solid #e69f00; outline-offset: 1px; }
.nicegui-aggrid [class*=ag-theme-params] { --ag-font-family: inherit !important; }
.ag-cell { unicode-bidi: isolate; font-variant-numeric: tabular-nums; }
.ag-row { cursor: pointer; }
.panel { width: min(44rem, 100vw); max-height: 100vh; overflow-y: auto; overflow-wrap: anywhere; }
dl.facts { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: 4px 16px; margin: 0; }
dl.facts dt { color: var(--soft); }
dl.facts dd { margin: 0; overflow-wrap: anywhere; }
pre.text { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem; margin: 0; }
.lines { white-space: pre-wrap; overflow-wrap: anywhere; font: .8rem/1.45 ui-monospace, Menlo, Consolas, monospace; }
.lines { border: 1px solid var(--edge); border-radius: 4px; padding: 8px; max-height: 28rem; overflow: auto; }
"""

#: A console that was started anew knows no session: a window that has lost it asks, and goes to the login.
_LOGIN_AGAIN = """
setInterval(async () => {
  if (!window.socket || window.socket.connected) return;
  const answer = await fetch(location.href, {method: "HEAD", redirect: "manual"}).catch(() => null);
  if (answer && answer.type === "opaqueredirect") location.reload();
}, 2000);
"""


@dataclass(frozen=True, slots=True)
class View:
    """What a page is made of, for one window of one user."""

    console: Console
    watch: WatchedJobs
    holder: Holder
    base: str  #: path of the console, before all others

    @property
    def may_change(self) -> bool:
        """The user may change jobs."""
        return self.holder.role is ConsoleRole.OPERATOR

    def path(self, *parts: str, **query: str) -> str:
        """The path of a page of ours, for `ui.link` and `ui.navigate`, which put `base` before it. Parts may be anything."""
        path = "/".join(quote(part, safe="") for part in parts if part)
        asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        return f"/{path}" + (f"?{asked}" if asked else "")

    def href(self, *parts: str, **query: str) -> str:
        """The same for what is HTML: links in cells of tables, forms, what is fetched."""
        return self.base + self.path(*parts, **query)


def view_of(console: Console, watch: WatchedJobs, request: Request) -> View:
    """The view of the user who asks for a page."""
    holder: Holder = request.scope[HOLDER]
    return View(console, watch, holder, str(request.scope.get("root_path", "")))


@contextmanager
def page(view: View, title: str, job: str = "", tab: str | None = None) -> Iterator[None]:
    """Header and main part of a page; what is made while entered is in the main part."""
    ui.page_title(f"{title} · Anabranch")
    ui.colors(primary="#22617d", positive="#2e7d32", negative="#b3261e", warning="#b26a00", info="#0277bd")
    ui.add_head_html(f"<style>{_STYLE}</style><script>{_LOGIN_AGAIN}</script>")
    dark = ui.dark_mode(None)  # as the system has it
    ui.link("To the content", "#main").classes("skip")
    with ui.header().classes("items-center q-py-xs").props("role=banner"):
        ui.link("Anabranch", view.path()).classes("text-white text-lg text-bold no-underline")
        if job:
            ui.label("/").classes("text-white")
            ui.link(job, view.path("jobs", job)).classes("text-white no-underline").style("overflow-wrap:anywhere")
        ui.space()
        ui.link("Lab", view.path("lab")).classes("text-white no-underline")
        ui.label(view.holder.name + ("" if view.may_change else " (reader)")).classes("text-white gt-xs")
        ui.button(icon="contrast", on_click=lambda: dark.set_value(not dark.value)).props(
            'flat round dense color=white aria-label="Light or dark"'
        )
        with ui.element("form").props(f'method=post action="{view.href("logout")}"'):
            ui.button(icon="logout").props('flat round dense color=white type=submit aria-label="Log out"')
    if job:
        with ui.element("nav").classes("row no-wrap overflow-auto").props('aria-label="Pages of the job"'):
            for path, name in TABS:
                link = ui.link(name, view.path("jobs", job, path)).classes("tab")
                if path == tab:
                    link.props("aria-current=page")
    with (
        ui.element("div")
        .classes("q-px-md q-pb-md q-pt-sm column gap-4")
        .style("max-width:1500px;width:100%;margin:0 auto")
        .props("id=main")
    ):
        yield


def every(seconds: float, redraw: Callable[[], Awaitable[None]]) -> None:
    """Draw now, and again at each interval while the window is open."""
    ui.timer(seconds, redraw)


async def looked(find: Callable[[], T]) -> T | None:
    """What is found, in a thread. A failure is shown, and None is returned."""
    try:
        return await run.io_bound(find)
    except (CrawlerError, FrontierError) as error:
        say(str(error), is_bad=True)
        return None


async def act(view: View, action: str, job: str, arguments: Mapping[str, object], do: Callable[[], T]) -> T | None:
    """Do something to a job, in a thread, and have the audit log note it. A failure is shown, and None is returned."""
    done = None
    try:
        if not view.may_change:
            raise UsageError("you may look, and change nothing")
        done = await run.io_bound(lambda: view.console.done(view.holder, action, job, arguments, do))
    except (CrawlerError, FrontierError) as error:
        say(str(error), is_bad=True)
    return done


def say(words: str, *, is_bad: bool = False) -> None:
    """Show a line for some seconds; screen readers read it."""
    ui.notify(
        words,
        type="negative" if is_bad else "positive",
        position="top",
        timeout=8000 if is_bad else 3000,
        multi_line=True,
    )


async def confirmed(question: str, action: str) -> bool:
    """Ask before something that stops work."""
    with ui.dialog() as dialog, ui.card():
        ui.label(question).style("max-width:32rem;overflow-wrap:anywhere")
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
            ui.button(action, on_click=lambda: dialog.submit(True)).props("color=negative autofocus")
    return bool(await answered(dialog))


async def answered(dialog: ui.dialog) -> object:
    """What a dialog is given; None if it is closed, or its window."""
    answer: object = await dialog
    if not dialog.is_deleted:
        dialog.delete()
    return answer


def table(columns: Sequence[Column], key: str, caption: str) -> ui.table:
    """An empty table in the style of all; rows are dicts of texts and numbers, which are shown as text."""
    made = [
        {
            "name": column.name, "label": column.label, "field": column.name, "sortable": column.is_sortable,
            "align": "right" if column.is_number else "left",
            "style": f"min-width:{'16rem' if column.is_wide else '0' if column.is_number else '6rem'}",
        }
        for column in columns
    ]  # fmt: skip
    found = ui.table(columns=made, rows=[], row_key=key, pagination=50).classes("w-full")
    return found.props(
        f'flat bordered dense table-header-class=text-bold aria-label="{caption}" no-data-label="nothing to show"'
    )


class Column(NamedTuple):
    """A column of a table."""

    name: str
    label: str
    is_number: bool = False
    is_sortable: bool = True
    is_wide: bool = False  #: has long texts


def facts_list(facts: Iterable[tuple[str, str]]) -> None:
    """Names and their values; those without a value are left out."""
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
    """Lines of text as they are, in letters of one width; long ones are wrapped."""
    return ui.label(text).classes("w-full lines").props(f'tabindex=0 role=region aria-label="{caption}"')


def cut(text: str, most: int = 2000) -> str:
    """A text that may be a site's, made printable and short."""
    shown = escaped(text[:most])
    return shown if len(text) <= most else f"{shown}…"


def cell(text: str) -> str:
    """The same for a cell of a table."""
    return cut(text, 300)


def count(number: float | None) -> str:
    """A number for the eye."""
    return "" if number is None else f"{number:,.0f}"
