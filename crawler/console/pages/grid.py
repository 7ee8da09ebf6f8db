"""A grid of any number of rows with its filters: a browser asks for those that it shows, a hundred at a time.

They come as JSON from a route of the console, which needs a session as all pages do. So what is in a row is data at every step,
and the cells show it as text.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any
from urllib.parse import urlencode

from nicegui import events, ui
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse

from anabranch.crawler.console.pages.panel import RowPanel
from anabranch.crawler.console.pages.shell import Column, every, keep_in_address, looked
from anabranch.crawler.console.queues import PageQuery, RowsFound
from anabranch.crawler.operate import counted, duration_words
from anabranch.crawler.outcomes.errors import UsageError

_BLOCK = 100
_MOST_ROWS = 1000
_MOST_TEXT = 1000
#: Between two looks whether there are newer rows.
_REFRESH_S = 10.0
#: Sorted by this column at first, the largest on top.
_FIRST_SORT = "urls"
#: A narrower grid shows these columns alone; the panel of a row has the rest.
_NARROW_PX, _NARROW_COLUMNS = 600, {"key", "state", "urls"}
#: Heights of the head and of a row, and of the grid, which is no higher than its rows.
_HEAD_PX, _ROW_PX = 36, 32
_HEIGHT = "height:min(70vh, 48rem, {}px)"
#: Events of a window: rows have come, with words about them and how many there are; a row was chosen, with its id.
_ROWS_CAME, _CHOSEN = "rows_came", "row_chosen"
#: What AG Grid asks for rows; {} is an address, as a literal of JavaScript.
_SOURCE = """{{
  getRows: asked => {{
    const more = new URLSearchParams({{offset: asked.startRow, limit: asked.endRow - asked.startRow}});
    const address = new URL(location.href);
    for (const name of ["sort", "descending"]) address.searchParams.delete(name);
    for (const {{colId, sort}} of asked.sortModel) {{
      more.set("sort", colId); more.set("descending", sort === "desc");
      address.searchParams.set("sort", colId); address.searchParams.set("descending", sort === "desc");
    }}
    history.replaceState(history.state, "", address);
    fetch({} + "&" + more).then(async answer => {{
      if (answer.redirected) throw Error("the session has ended: log in again");
      const found = await answer.json();
      if (!answer.ok) throw Error(found.error);
      asked.successCallback(found.rows, found.total);
      emitEvent("{}", {{words: found.words, total: found.total}});
    }}).catch(error => {{ asked.failCallback(); emitEvent("{}", {{words: error.message, total: 0}}); }});
  }}
}}"""


class Grid:
    """A grid in the page that is being made; above it are its filters, and a line about its rows."""

    def __init__(
        self,
        address: str,
        columns: Sequence[Column],
        states: Sequence[str],
        panel: RowPanel,
        renew: Callable[[], None],
        asked: QueryParams,
    ) -> None:
        """`address`: of the rows, a route of `rows_route`. `states`: those that a row may have. `panel` opens for a row that
        is chosen. `renew` reads the rows now, and blocks. `asked`: the filters and the sort that the address of the page has.
        """
        self._address = address
        query = first_query(asked)
        self._panel = panel
        self._renew = renew
        with ui.row().classes("w-full items-center gap-2"):
            self.text = ui.input("Part of the name", value=query.text).props("outlined dense clearable debounce=300")
            self._states = ui.select(
                [*states], multiple=True, label="States", value=[state for state in query.states if state in states]
            ).props("outlined dense use-chips")
            self._states.style("min-width:12rem")
            self._least = ui.number("URLs, at least", value=query.least_urls, min=0, precision=0)
            self._least.props("outlined dense clearable debounce=300")
        with ui.row().classes("w-full items-center gap-2"):
            self._words = ui.label("Reading the queue …").classes("soft figure").props("role=status")
            self._again = ui.button("Read again", icon="refresh", on_click=self._read_again)
            self._again.props("flat dense")
            self._all = ui.button("Show empty ones, too", on_click=lambda: self._least.set_value(0)).props("flat dense")
            self._all.visible = False
            ui.label("Click a row for details and actions.").classes("soft gt-xs")
        with ui.element("div").classes("w-full").style(_HEIGHT.format(_HEAD_PX + 8 * _ROW_PX)) as self._place:
            self._grid = self._made(columns, (query.sort, "desc" if query.descending else "asc")).props(
                'aria-label="Rows"'
            )
        for box in (self.text, self._states, self._least):
            box.on_value_change(self._show)
        ui.on(_CHOSEN, self._chosen)
        ui.on(_ROWS_CAME, self._came)
        ui.timer(0.0, self._show, once=True)
        every(_REFRESH_S, self._refresh)

    def _made(self, columns: Sequence[Column], sort: tuple[str, str]) -> ui.aggrid:
        minor = [column.name for column in columns if column.name not in _NARROW_COLUMNS]
        return ui.aggrid(
            {
                "columnDefs": [_column(column, sort) for column in columns],
                "defaultColDef": {"resizable": True, "sortingOrder": ["desc", "asc"], "suppressHeaderMenuButton": True},
                "rowHeight": _ROW_PX,
                "headerHeight": _HEAD_PX,
                "rowModelType": "infinite",
                "cacheBlockSize": _BLOCK,
                "maxBlocksInCache": 20,
                "maxConcurrentDatasourceRequests": 2,
                "infiniteInitialRowCount": 1,
                "blockLoadDebounceMillis": 100,
                ":onGridSizeChanged": (
                    f"grid => grid.api.setColumnsVisible({json.dumps(minor)}, grid.clientWidth >= {_NARROW_PX})"
                ),
                ":getRowId": "asked => asked.data.id",
                ":onCellClicked": f"asked => asked.data && emitEvent('{_CHOSEN}', asked.data.id)",  # none while it comes
                ":onCellKeyDown": (
                    f"asked => asked.event.key === 'Enter' && asked.data && emitEvent('{_CHOSEN}', asked.data.id)"
                ),
            },
            auto_size_columns=False,
        ).classes("w-full h-full")

    def _show(self) -> None:
        """Show the rows that the filters let through, from the first one on."""
        asked = [("text", self.text.value or ""), ("least", str(int(self._least.value or 0)))]
        asked += [("state", state) for state in self._states.value]
        least = str(int(self._least.value or 0))
        states = ",".join(self._states.value)
        keep_in_address(text=self.text.value or "", state=states, least="" if least == "1" else least)
        source = _SOURCE.format(json.dumps(f"{self._address}?{urlencode(asked)}"), _ROWS_CAME, _ROWS_CAME)
        self._grid.run_grid_method("updateGridOptions", {":datasource": source})

    async def _refresh(self) -> None:
        """Ask again for the rows that are shown."""
        self._grid.run_grid_method("refreshInfiniteCache")

    async def _read_again(self) -> None:
        self._again.props("loading")
        await looked(self._renew)
        self._again.props(remove="loading")
        await self._refresh()

    def _came(self, event: events.GenericEventArguments) -> None:
        self._words.text = str(event.args["words"])[:_MOST_TEXT]
        self._all.visible = not event.args["total"] and bool(self._least.value)
        shown = min(max(int(event.args["total"]), 2), _BLOCK)
        self._place.style(_HEIGHT.format(_HEAD_PX + shown * _ROW_PX + _ROW_PX // 2))

    async def _chosen(self, event: events.GenericEventArguments) -> None:
        await self._panel.open(str(event.args))


def _column(column: Column, sort: tuple[str, str]) -> dict[str, Any]:
    """A column as AG Grid has it; `sort` is the column by which the rows are sorted at first, and how."""
    return {
        "field": column.name,
        "headerName": column.label,
        "sortable": column.is_sortable,
        "minWidth": 88 if column.is_number else 104,
        "flex": 2 if column.name == "key" else 1,
        "initialSort": sort[1] if column.name == sort[0] else None,
        "type": "rightAligned" if column.is_number else None,
    }


def rows_route(
    find: Callable[[str, PageQuery], RowsFound[Any]],
    row: Callable[[Any, float], Mapping[str, object]],
    noun: str,
) -> Callable[[Request], JSONResponse]:
    """Return the handler of a route with `{name}` in its path. It answers with the found rows, as `row` makes them."""

    def answer(request: Request) -> JSONResponse:
        query, now_s = page_query(request.query_params), time.time()
        page = find(request.path_params["name"], query)
        words = page_words(page, noun, now_s, query.least_urls)
        facts = {"rows": [row(one, now_s) for one in page.rows], "total": page.total, "words": words}
        return JSONResponse(facts, headers={"Cache-Control": "no-store"})

    return answer


def page_words(page: RowsFound[Any], noun: str, now_s: float, least: int = 0) -> str:
    """How many rows there are, and how old they are. Pure."""
    words = [f"{counted(page.total, noun)}, as of {_ago(now_s - page.taken_s)}"]
    if page.live_s is not None:
        words.append(f"active ones as of {_ago(now_s - page.live_s)}")
    if page.unknown:
        words.append(f"{page.unknown}, so states are from the database")
    if least == 1:
        words.append("those without URLs are left out")
    return "; ".join(words)


def _ago(seconds: float) -> str:
    return "now" if seconds < 1 else f"{duration_words(seconds)} ago"


def first_query(asked: QueryParams) -> PageQuery:
    """The filters and the sort of a page by its address; what is wrong there counts as left out. Pure."""
    usual = {"sort": _FIRST_SORT, "descending": "true", "least": "1"}
    given = {name: value for name, value in asked.items() if value}
    try:
        return page_query(QueryParams({**(usual if "sort" not in given else {"least": "1"}), **given}))
    except UsageError:
        return page_query(QueryParams(usual))


def page_query(asked: QueryParams) -> PageQuery:
    """The rows for which a browser asks. Pure. Raises: UsageError."""
    return PageQuery(
        sort=asked.get("sort", "key"),
        descending=asked.get("descending") == "true",
        text=asked.get("text", "").strip()[:_MOST_TEXT],
        states=tuple(chain.from_iterable(state.split(",") for state in asked.getlist("state") if state)),
        least_urls=_whole(asked, "least"),
        offset=_whole(asked, "offset"),
        limit=min(_whole(asked, "limit"), _MOST_ROWS),
    )


def _whole(asked: QueryParams, name: str) -> int:
    text = asked.get(name) or "0"
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise UsageError(f"{name} must be a whole number from 0; it is {text[:40]!r}")
    return int(text)
