"""The page of the templates: saved orders, from which new jobs start."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui
from starlette.requests import Request

from anabranch.crawler.console.pages.shell import (
    View,
    act,
    confirmed,
    cut,
    looked,
    page,
    say,
    text_block,
    title,
    view_of,
)
from anabranch.crawler.console.routing import Console
from anabranch.crawler.console.templates import SavedOrder
from anabranch.crawler.console.urlfacts import safe_text


def add_templates_page(console: Console) -> None:
    """Add the page at `/templates`."""

    @ui.page("/templates")
    async def templates(request: Request) -> None:
        view = view_of(console, request)
        with page(view, "Templates"):
            title("Templates")
            ui.label(
                "Orders for new jobs: the form of a new job saves them, and the menu of a job. Each is a file in "
                f"{cut(str(console.templates.folder))}, which `anabranch crawl -c` takes, too."
            ).classes("soft").style("overflow-wrap:anywhere")
            place = ui.column().classes("w-full")
        ui.timer(0.0, lambda: _show(view, place), once=True)


async def _show(view: View, place: ui.column) -> None:
    saved = view.console.templates
    found: Sequence[SavedOrder] | None = await looked(lambda: [saved.template(name) for name in saved.names])
    place.clear()
    with place:
        if not found:
            ui.label("No templates yet.").classes("soft")
        for one in found or ():
            with ui.expansion(cut(one.name, 100)).classes("w-full"):
                text_block(safe_text(one.toml), f"The template {one.name}")
                if view.may_change:
                    ui.button(
                        "Remove …", icon="delete", on_click=lambda _, name=one.name: _remove(view, name, place)
                    ).props("outline dense")


async def _remove(view: View, name: str, place: ui.column) -> None:
    if not await confirmed(
        f"Remove the template {cut(name, 100)}? Jobs that were made with it keep their orders.", "Remove"
    ):
        return
    removed = await act(view, "template-remove", "", {"template": name}, lambda: view.console.templates.remove(name))
    if removed is not None:
        say(f"{cut(name, 100)} is removed")
        await _show(view, place)
