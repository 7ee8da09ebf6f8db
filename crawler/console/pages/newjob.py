"""The form of a new job: its common keys as fields, all others as TOML; from a blank, a template or a copy of another job."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from nicegui import events, run, ui

from anabranch.crawler.console.jobs import MOST_SEED_BYTES, NewJobCheck, refused_lines, seeds_line
from anabranch.crawler.console.orders import differing_tables, tables_of
from anabranch.crawler.console.pages.shell import (
    View,
    act,
    answer_buttons,
    answered,
    count,
    cut,
    every,
    looked,
    named_dialog,
    say,
)
from anabranch.crawler.job.seeds import SeedList, read_seeds
from anabranch.crawler.order.order import dump_tables
from anabranch.crawler.outcomes.errors import CrawlerError, OrderError

_LINES = "white-space:pre-wrap;overflow-wrap:anywhere"
_FIELDS_STYLE = "display:grid;grid-template-columns:repeat(auto-fill,minmax(min(13rem,100%),1fr));gap:8px 12px"
#: Characters of copied seeds that are shown in the form; more of them are kept as a file.
_MOST_SHOWN_CHARS = 20_000
_SCOPES = {
    "host": "host: the seeds' hosts", "domain": "domain: with their subdomains", "prefix": "prefix: below the seeds",
    "page": "page: the seeds alone", "surt": "surt: their SURT prefixes", "any": "any: every link",
}  # fmt: skip


#: Names the field of an editor, once it is there.
_NAME_EDITOR = """const naming = setInterval(() => {{
  const field = getHtmlElement({})?.querySelector(".cm-content");
  if (field) {{ field.setAttribute("aria-label", "Order, as TOML"); clearInterval(naming); }}
}}, 50)"""


class CommonKey(NamedTuple):
    """A key of an order that the form has a field for."""

    key: str  #: as in limits.pages
    label: str
    hint: str  #: what an empty field means
    kind: type  #: of its value: str, int, float or bool


COMMON: tuple[CommonKey, ...] = (
    CommonKey("scope.scope", "Follow links within", "", str),
    CommonKey("limits.pages", "Pages, at most", "no limit", int),
    CommonKey("limits.time", "Time, at most", "no limit; 30m, 2h, 1d", str),
    CommonKey("scope.max_hops", "Hops from a seed", "20", int),
    CommonKey("politeness.min_delay", "Seconds between fetches", "3, of one host", float),
    CommonKey("crawl.workers", "Fetches at once", "100", int),
    CommonKey("agent.contact", "Contact for site owners", "a web page or an e-mail address", str),
    CommonKey("write.warc", "Archive pages as WARC", "", bool),
)
#: What a blank form has.
BLANK: Mapping[str, Any] = {"limits": {"pages": 1000}}


def split_order(tables: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of the form's fields, by key, and the tables of all other keys. A value that its field cannot show stays
    in the tables. Pure.
    """
    values: dict[str, Any] = {}
    rest = {section: dict(keys) if isinstance(keys, Mapping) else keys for section, keys in tables.items()}
    for one in COMMON:
        section, _, name = one.key.partition(".")
        keys = rest.get(section)
        if not (isinstance(keys, dict) and name in keys):
            continue
        value = keys[name]
        if one.key == "limits.time" and type(value) in {int, float}:
            value = f"{value:g}s"
        if _is_shown(value, one):
            values[one.key] = value
            del keys[name]
            if not keys:
                del rest[section]
    return values, rest


def _is_shown(value: object, field: CommonKey) -> bool:
    """Pure."""
    if field.key == "scope.scope":
        return value in _SCOPES
    if field.kind is float:
        return type(value) in {int, float}
    return type(value) is field.kind


def joined_order(values: Mapping[str, Any], toml: str) -> dict[str, Any]:
    """The tables of an order: the form's fields, and its TOML, which wins. Empty fields are left out.

    Raises: OrderError if it is no TOML. Pure.
    """
    tables: dict[str, Any] = {}
    for one in COMMON:
        value = values.get(one.key)
        if value is None or value in ("", False):
            continue
        section, _, name = one.key.partition(".")
        number = int(value) if one.kind is int and float(value).is_integer() else value
        tables.setdefault(section, {})[name] = number
    for section, keys in tables_of(toml).items():
        ours = tables.get(section)
        tables[section] = {**ours, **keys} if isinstance(ours, dict) and isinstance(keys, Mapping) else keys
    return tables


async def open_new_job(view: View, copied: str = "") -> None:
    """Open the form, filled with the order and the seeds of the job `copied`, if one is named."""
    form = NewJobForm(view, await looked(lambda: view.console.templates.names) or [])
    if copied:
        found = await looked(
            lambda: (differing_tables(view.console.jobs.job(copied).order()), view.console.jobs.seeds(copied))
        )
        if found is not None:
            await form.fill(found[0], copied, found[1])


class NewJobForm:
    """The form in one window."""

    def __init__(self, view: View, templates: list[str]) -> None:
        self._view = view
        self._files: list[str] = []  # texts of uploaded files, which no browser has to show
        self._checked: tuple[object, ...] = ()  # what was checked last
        self._fields: dict[str, Any] = {}
        self._dialog = named_dialog("New job").props("persistent")
        with self._dialog, ui.card().classes("w-full").style("max-width:48rem"):
            self._heading = ui.label("New job").classes("text-h6").props("role=heading aria-level=2")
            self._make(templates)
            self._show(BLANK)
            every(1.0, self._check)
        self._dialog.on("hide", self._dialog.delete).open()  # with its timer and its files

    def _make(self, templates: list[str]) -> None:
        if templates:
            self._template = ui.select(templates, label="Start from a template", clearable=True)
            self._template.props("outlined dense").classes("w-full").on_value_change(self._take_template)
        self._name = ui.input("Name", placeholder="news").props("outlined dense autofocus").classes("w-full")
        self._seeds = (
            ui.textarea("Seeds, one URL per line", placeholder="https://example.org/")
            .props("outlined")
            .classes("w-full")
        )
        upload = ui.upload(
            on_upload=self._uploaded,
            on_rejected=lambda: say(f"a file of seeds has at most {MOST_SEED_BYTES >> 20} MiB", is_bad=True),
            auto_upload=True,
            max_file_size=MOST_SEED_BYTES,
        ).classes("hidden")  # its button has no name; it stays within the click, so that browsers open their dialog
        ui.button("Or upload a file of seeds …", icon="upload_file").props("outline dense").on(
            "click", js_handler=f"() => getElement({upload.id}).pickFiles()"
        )
        self._counts = ui.column().classes("w-full gap-0").props("role=status")
        with ui.element("div").classes("w-full").style(_FIELDS_STYLE):
            for one in COMMON:
                self._fields[one.key] = _field(one)
        self._tags = (
            ui.input("Tags", placeholder="portals, weekly").props("outlined dense stack-label").classes("w-full")
        )
        with ui.expansion("Advanced: other keys of the order, as TOML").classes("w-full") as self._advanced:
            ui.label("What stands here wins over the fields above.").classes("soft")
            self._toml = ui.codemirror("", language="TOML", theme="vscodeLight").classes("w-full")
        ui.run_javascript(_NAME_EDITOR.format(self._toml.id))
        self._fault = ui.label().classes("text-negative").props("role=alert").style(_LINES)
        self._warning = ui.label().classes("text-warning").props("role=status").style(_LINES)
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=self._dialog.close).props("flat")
            ui.button("Save as template …", on_click=self._save_template).props("flat")
            self._create = ui.button("Create", on_click=lambda: self._begin(starts=False)).props("outline")
            self._start = ui.button("Create and start", on_click=lambda: self._begin(starts=True))

    async def fill(self, tables: Mapping[str, Any], copied: str, seeds: str) -> None:
        """Show the order and the seeds of another job."""
        self._heading.text = f"Copy of {cut(copied, 100)}"
        self._show(tables)
        if len(seeds) <= _MOST_SHOWN_CHARS:
            self._seeds.value = seeds
        else:
            await self._take_file(f"seeds of {copied}", seeds)

    def _show(self, tables: Mapping[str, Any]) -> None:
        values, rest = split_order(tables)
        for one in COMMON:
            usual: object = {"scope.scope": "host", "write.warc": False}.get(one.key)
            self._fields[one.key].value = values.get(one.key, usual)
        self._toml.value = dump_tables(rest) if rest else ""
        self._advanced.value = bool(rest)

    async def _take_template(self) -> None:
        name = self._template.value
        if name:
            tables = await looked(lambda: self._view.console.templates.tables(str(name)))
            if tables is not None:
                self._show(tables)

    async def _uploaded(self, given: events.UploadEventArguments) -> None:
        await self._take_file(given.file.name, (await given.file.read()).decode("utf-8", "replace"))

    async def _take_file(self, name: str, text: str) -> None:
        if sum(map(len, self._files)) + len(text) > MOST_SEED_BYTES:
            say(f"{cut(name, 100)}: too large; add these seeds when the job runs", is_bad=True)
            return
        self._files.append(text)
        found = await run.io_bound(_seeds_in, text)
        if found is not None:  # the console ends
            with self._counts:
                _show_counts(cut(name, 100), found)

    def _tables(self) -> dict[str, Any]:
        """Raises: OrderError if the TOML is none."""
        return joined_order({key: field.value for key, field in self._fields.items()}, self._toml.value)

    async def _check(self) -> None:
        """Check what is in the form, if that has changed."""
        values = tuple(field.value for field in self._fields.values())
        given = (self._name.value.strip(), self._toml.value, self._seeds.value, values)
        if given == self._checked:
            return
        self._checked = given
        name, seeds = str(self._name.value).strip(), str(self._seeds.value)

        def find() -> NewJobCheck:
            try:
                return self._view.console.jobs.check(name or "name", self._tables(), seeds)
            except CrawlerError as error:
                return NewJobCheck(faults=(str(error),))

        found = await run.io_bound(find)
        if found is not None:  # the console ends
            self._fault.text = "\n".join(found.faults)
            head = [seeds_line(found.seeds, len(found.refused))] if found.refused else []
            self._warning.text = "\n".join([*head, *found.warnings])

    async def _begin(self, *, starts: bool) -> None:
        if not self._create.enabled:  # a second click, while the first one is at work
            return
        view, job, texts = self._view, self._name.value.strip(), "\n".join([self._seeds.value, *self._files])
        try:
            tables, tags = self._tables(), tags_in(self._tags.value)
        except OrderError as error:
            say(str(error), is_bad=True)
            return
        do = partial(view.console.jobs.create, job, texts, tables, tags=tags, starts=starts)
        buttons = (self._create, self._start)
        for button in buttons:
            button.disable()
        pressed = buttons[starts].props("loading")
        try:
            created = await act(view, "create", job, {"start": starts}, do)
        finally:
            pressed.props(remove="loading")
            for button in buttons:
                button.enable()
        if created is not None:
            ui.navigate.to(view.path("jobs", job))

    async def _save_template(self) -> None:
        try:
            tables = self._tables()
        except OrderError as error:
            say(str(error), is_bad=True)
            return
        await save_template(self._view, tables, str(self._name.value).strip())


async def save_template(view: View, tables: Mapping[str, Any], name: str) -> None:
    """Ask for the name of a template, and save the order as it."""
    with (
        named_dialog("Save as template") as dialog,
        ui.card().classes("w-full").style("max-width:28rem"),
    ):
        ui.label("New jobs can start from this order. A template of this name is replaced.")
        given = ui.input("Name of the template", value=name).props("outlined dense autofocus").classes("w-full")
        answer_buttons(dialog, "Save", color="primary")
    if not await answered(dialog):
        return
    chosen = str(given.value).strip()
    templates = view.console.templates
    if await act(view, "template", "", {"template": chosen}, lambda: templates.save(chosen, tables)) is not None:
        say(f"{cut(chosen, 100)} is saved")


def tags_in(text: str) -> list[str]:
    """The tags of a field, which commas part. Pure."""
    return [tag.strip() for tag in text.split(",") if tag.strip()]


def _field(one: CommonKey) -> Any:
    """An input of the form for a key."""
    if one.key == "scope.scope":
        return ui.select(_SCOPES, label=one.label).props("outlined dense")
    if one.kind is bool:
        return ui.switch(one.label)
    if one.kind is str:
        return ui.input(one.label, placeholder=one.hint).props("outlined dense stack-label")
    step = 1 if one.kind is int else 0.1
    return ui.number(one.label, placeholder=one.hint, min=0, step=step).props("outlined dense stack-label")


def _seeds_in(text: str) -> SeedList:
    """The seeds of a file, and its lines that are none. Pure."""
    return read_seeds(["-"], io.BytesIO(text.encode("utf-8", "surrogatepass")))


def _show_counts(name: str, found: SeedList) -> None:
    """A line about an uploaded file, with its refused lines as a download."""
    with ui.row().classes("items-center gap-2"):
        words = ui.label(f"{name}: {seeds_line(len(found.seeds), len(found.bad))}")
        if found.bad:
            words.classes("text-warning")
            lines = "".join(f"{line}\n" for line in refused_lines(found.bad)).encode("utf-8", "backslashreplace")
            ui.button(
                f"Download the {count(len(found.bad))} refused",
                icon="download",
                on_click=lambda: ui.download.content(lines, "refused-seeds.txt"),
            ).props("flat dense size=sm")
