"""The panel of a row shows what was read last, however long each reading takes."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from nicegui import Client, ui

from anabranch.crawler.console.pages.panel import PanelFacts, RowPanel


class Readings:
    """Each reading waits until the test lets it end, and says when it began."""

    def __init__(self) -> None:
        self.begun: list[threading.Event] = []

    def __call__(self, _: str) -> PanelFacts:
        number, may_end = len(self.begun), threading.Event()
        self.begun.append(may_end)
        may_end.wait()
        return PanelFacts(f"reading {number}", {}, [], [])

    async def are(self, count: int) -> None:
        while len(self.begun) < count:
            await asyncio.sleep(0.001)


async def test_a_reading_that_began_before_another_one_and_ends_behind_it_is_not_shown() -> None:
    """Such as that of the panel's opening, if a verb was quicker."""
    readings = Readings()
    view: Any = SimpleNamespace(may_change=False)
    with Client(ui.page("/panel")):
        panel = RowPanel(view, "news", readings, "queue")
        opening = asyncio.create_task(panel.open("a.test"))
        await readings.are(1)
        again = asyncio.create_task(panel._redraw())
        await readings.are(2)
        readings.begun[1].set()
        await again
        assert panel._reason.text == "reading 1"
        readings.begun[0].set()
        await opening
        assert panel._reason.text == "reading 1"
