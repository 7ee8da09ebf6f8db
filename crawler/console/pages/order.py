"""The order of a job: the keys that differ from their defaults, by section, with values and origins; some are changed here."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from nicegui import events, ui
from starlette.requests import Request

from anabranch.crawler.console.pages.shell import (
    Column,
    View,
    act,
    cut,
    heading,
    keep_in_address,
    looked,
    named_dialog,
    page,
    say,
    table,
    text_block,
    title,
    view_of,
)
from anabranch.crawler.console.routing import Console
from anabranch.crawler.job.orderfile import lasting_changes, order_file
from anabranch.crawler.operate import counted
from anabranch.crawler.order.changes import CHANGEABLE, changes_layer
from anabranch.crawler.order.order import KEYS, SECTIONS, CrawlOrder, dump_order
from anabranch.crawler.order.rendering import descriptions_of, title_of
from anabranch.crawler.order.sources import Layer, job_layer, kept_layer, origin

_COLUMNS = (
    Column("key", "Key"),
    Column("value", "Value", is_wide=True),
    Column("origin", "From"),
    Column("words", "Meaning", is_sortable=False, is_wide=True),
)
#: Vue escapes what is between braces.
_KEY_CELL = """<q-td :props="props" style="white-space:nowrap"><span class="text-bold">{{ props.row.key }}</span>
<q-btn v-if="props.row.changeable" flat dense size="sm" icon="edit" :aria-label="'Change ' + props.row.key"
@click="$parent.$emit('change', props.row.key)" /></q-td>"""


_DEFAULT = "default"
#: Characters of a filter that an address gives.
_MOST_FILTER = 100


class OrderKey(NamedTuple):
    """A key of an order, as the page shows it."""

    key: str  #: as in limits.pages
    value: str  #: as in `key=value`
    origin: str
    words: str  #: what it means
    changeable: bool


def add_order_page(console: Console) -> None:
    """Add the page at `/jobs/NAME/order`; `?key=limits.pages` shows one key."""

    @ui.page("/jobs/{name}/order")
    async def order(request: Request, name: str, key: str = "") -> None:
        view = view_of(console, request)
        with page(view, f"Order · {name}", name, "order"):
            _Order(view, name).make(key[:_MOST_FILTER])


class _Order:
    """The order in one window."""

    def __init__(self, view: View, name: str) -> None:
        self._view, self._name = view, name
        self._keys: dict[str, OrderKey] = {}
        self._toml = ""

    def make(self, key: str) -> None:
        """Make the parts, and show the order; with a `key` only what has it in its name."""
        title("Order")
        with ui.row().classes("w-full items-center gap-2"):
            self._filter = ui.input("Filter", value=key, on_change=self._draw)
            self._filter.props("outlined dense clearable debounce=200")
            self._all = ui.switch("All keys", on_change=self._draw)
            self._changeable = ui.switch("Changeable only", on_change=self._draw)
        self._words = ui.label().classes("soft").props("role=status")
        self._sections = ui.column().classes("w-full gap-2")
        with ui.row().classes("w-full items-center gap-2"):
            heading("As TOML")
            ui.button("Copy", icon="content_copy", on_click=self._copy).props("outline dense")
            ui.button("Download", icon="download", on_click=self._download).props("outline dense")
        with ui.expansion("The order as TOML").classes("w-full"):
            self._text = text_block("", "The order as TOML")
        ui.timer(0.05, self._show, once=True)

    async def _show(self) -> None:
        jobs, name = self._view.console.jobs, self._name
        found = await looked(lambda: (jobs.job(name).order(), jobs.directory(name)))
        if found is None:
            return
        order, directory = found
        layers = await looked(lambda: order_layers(order, directory))
        self._keys = {one.key: one for one in order_keys(order, layers or ())}
        self._toml = dump_order(order)
        self._text.text = cut_lines(self._toml)
        self._draw()

    def _draw(self) -> None:
        keep_in_address(key=str(self._filter.value or ""))
        shown = shown_keys(
            self._keys.values(),
            str(self._filter.value or ""),
            has_all=bool(self._all.value),
            only_changeable=bool(self._changeable.value),
        )
        self._words.text = f"{counted(len(shown), 'key')} shown of {len(self._keys):,}" + (
            "" if self._all.value or self._filter.value else ": those that differ from their defaults"
        )
        self._sections.clear()
        with self._sections:
            for section, keys in groupby(shown, lambda one: one.key.partition(".")[0]):
                heading(f"[{section}]")
                ui.label(title_of(SECTIONS[section])).classes("soft")
                made = table(_COLUMNS, "key", f"Keys of [{section}]").props("hide-pagination").classes("keys")
                made.add_slot("body-cell-key", _KEY_CELL)
                made.pagination = {"rowsPerPage": 0}
                made.on("change", self._change)
                made.rows = [
                    {
                        **one._asdict(),
                        "value": cut(one.value, 500),
                        "changeable": one.changeable and self._view.may_change,
                    }
                    for one in keys
                ]

    def _copy(self) -> None:
        ui.clipboard.write(self._toml)
        say("Copied.")

    def _download(self) -> None:
        ui.download.content(self._toml.encode(), "order.toml")

    def _change(self, event: events.GenericEventArguments) -> None:
        """Ask for a new value in a dialog."""
        one = self._keys.get(str(event.args))
        if one is None or not one.changeable:
            return
        with named_dialog(f"Change {one.key}") as dialog, ui.card().classes("w-full").style("max-width:36rem"):
            ui.label(one.key).classes("text-h6")
            ui.label(one.words).classes("soft")
            given = ui.input("Value", value=one.value).props("outlined dense autofocus").classes("w-full")

            async def change() -> None:
                setting = f"{one.key}={given.value}"
                job = self._view.console.jobs
                done = await act(
                    self._view,
                    "set",
                    self._name,
                    {one.key: given.value},
                    lambda: job.job(self._name).change_order([setting]),
                )
                if done is not None:
                    lines = [*(change["line"] for change in done["changes"]), done.get("note", "")]
                    say("; ".join(filter(None, lines)) or "nothing changed: it has this value already")
                    dialog.close()
                    await self._show()

            given.on("keydown.enter", change)
            with ui.row().classes("w-full justify-end"):
                ui.button("Cancel", on_click=dialog.close).props("flat")
                ui.button("Change", on_click=change)
        dialog.on("hide", dialog.delete).open()


def order_layers(order: CrawlOrder, directory: Path | None) -> list[Layer]:
    """The sources of a job's order, the strongest first. Raises: OrderError, OrderDamaged, StorageError."""
    kept = None if directory is None else order_file(directory)
    if directory is None or kept is None:
        return [kept_layer(tomllib.loads(dump_order(order)), "the job's database")]
    return [changes_layer(lasting_changes(directory)), replace(job_layer(kept), origin_form=f"{kept.name}{{line}}")]


def order_keys(order: CrawlOrder, layers: Sequence[Layer]) -> list[OrderKey]:
    """All keys of an order; those with another value than the default come first. The file of a job has every key, so a default
    value has the origin `default`. Pure.
    """
    tables = order.model_dump(mode="json", by_alias=True)
    defaults = CrawlOrder().model_dump(mode="json", by_alias=True)
    found = []
    for section, keys in KEYS.items():
        words = descriptions_of(SECTIONS[section])
        for key in keys:
            value, source = tables[section][key], origin(layers, section, key)
            is_default = value == defaults[section][key] and not source.startswith("anabranch set")
            found.append(
                OrderKey(
                    key=f"{section}.{key}",
                    value=setting_text(value),
                    origin=_DEFAULT if is_default else source,
                    words=words.get(key, ""),
                    changeable=key in CHANGEABLE.get(section, ()),
                )
            )
    return sorted(found, key=lambda one: one.origin == _DEFAULT)


def shown_keys(keys: Iterable[OrderKey], text: str, *, has_all: bool, only_changeable: bool) -> list[OrderKey]:
    """The keys that the page shows, by section: those that differ, or with a text all that have it. Pure."""
    wanted = text.strip().lower()
    found = [
        one
        for one in keys
        if (one.changeable or not only_changeable)
        and (wanted in f"{one.key} {one.value} {one.words}".lower() if wanted else has_all or one.origin != _DEFAULT)
    ]
    sections = list(KEYS)
    return sorted(found, key=lambda one: (sections.index(one.key.partition(".")[0]), one.origin == _DEFAULT))


def setting_text(value: object) -> str:
    """A value as `section.key=value` takes it; empty for None. Pure."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def cut_lines(text: str, most: int = 5000) -> str:
    """The first `most` lines, made printable. Pure."""
    lines = text.split("\n")
    return "\n".join([*(cut(line) for line in lines[:most]), *(["…"] if len(lines) > most else [])])
