"""Charts of values over time."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from anabranch.crawler.console.pages.shell import LINES, zone_ms
from anabranch.crawler.console.watch import Moment
from anabranch.crawler.report.logtail import RunMark

#: Style of a section that shows as many charts in a row as fit.
SIDE_BY_SIDE = "display:grid;grid-template-columns:repeat(auto-fill,minmax(min(22rem,100%),1fr));gap:12px"
#: JavaScript that formats a number at an axis.
_NUMBER = """value => value && Math.abs(value) < .001 ? Number(value.toPrecision(3)).toExponential()
  : Number(value.toPrecision(3)).toLocaleString("en", {maximumFractionDigits: 6})"""
#: A line has a gap where no value was read for longer than this.
_GAP_S = 120.0


def thinned(samples: Sequence[Moment], most: int = 600) -> Sequence[Moment]:
    """At most `most` samples: every nth, and the last one. Pure."""
    step = -(-len(samples) // most) or 1
    return [*samples[:-1:step], *samples[-1:]]


def points(moments: Sequence[tuple[float, float | None]]) -> list[list[float | None]]:
    """The points of a line, from epoch seconds and values, with a gap where no value was read for long. Pure."""
    found: list[list[float | None]] = []
    last_s = None
    for time_s, value in moments:
        if value is None:
            continue
        if last_s is not None and time_s - last_s > _GAP_S:
            found.append([zone_ms(last_s) + 1, None])
        found.append([zone_ms(time_s), value])
        last_s = time_s
    return found


#: Colours of the marks in a chart.
_MARKS = {"start": "#2e7d32", "resume": "#2e7d32", "pause": "#b26a00", "stop": "#808890", "kill": "#d03a30"}
#: Marks of a chart, the last ones.
_MOST_MARKS = 20


def begin_of(samples: Sequence[Moment], marks: Sequence[RunMark]) -> float:
    """When a chart begins: with the first sample, or with a mark that is shortly before it. Pure."""
    first_s = samples[0].time_s
    return min((mark.time_s for mark in marks if 0 <= first_s - mark.time_s <= _GAP_S), default=first_s)


def mark_lines(marks: Sequence[RunMark], begin_s: float) -> dict[str, object]:
    """The vertical lines of a chart that begins then, one at each mark, with its name. Pure."""
    shown = [mark for mark in marks if mark.time_s >= begin_s][-_MOST_MARKS:]
    return {
        "symbol": "none",
        "silent": True,
        "animation": False,
        "data": [
            {
                "xAxis": zone_ms(mark.time_s),
                "lineStyle": {"color": _MARKS[mark.what], "type": "solid" if mark.what == "kill" else "dashed"},
                "label": {
                    "formatter": mark.what,
                    "color": _MARKS[mark.what],
                    "fontSize": 10,
                    "position": "insideEndBottom",
                },
            }
            for mark in shown
        ],
    }


def chart(
    title: str,
    names: Sequence[str],
    *,
    colours: Sequence[str] = LINES,
    is_area: bool = False,
    is_log: bool = False,
) -> ui.echart:
    """An empty chart of lines over time. It shows no text from the web."""
    series = [
        {
            "name": name,
            "type": "line",
            "showSymbol": False,
            "data": [],
            **({"stack": "all", "areaStyle": {}, "lineStyle": {"width": 0}} if is_area else {}),
        }
        for name in names
    ]
    made = ui.echart({
        "useUTC": True,  # times are shifted to the zone of the page, see `zone_ms`
        "title": {"text": title, "textStyle": {"fontSize": 14, "color": "#808890"}},
        "color": list(colours),
        "aria": {"enabled": True},
        "animation": False,
        "grid": {"left": 8, "right": 28, "top": 48, "bottom": 32 if is_area else 8, "containLabel": True},
        "tooltip": {"trigger": "axis", "renderMode": "richText"},
        "legend": {
            "show": is_area, "bottom": 0, "itemWidth": 12, "itemGap": 8, "icon": "roundRect", "textStyle": {"color": "#808890"},
        },
        "xAxis": {"type": "time", "splitNumber": 4, "axisLabel": {"color": "#808890", "hideOverlap": True}},
        "yAxis": {
            "type": "log" if is_log else "value",
            "min": "dataMin" if is_log else 0,
            "splitLine": {"lineStyle": {"color": "#80889050"}},
            "axisLabel": {"color": "#808890", ":formatter": _NUMBER},
        },
        "series": series,
    })  # fmt: skip
    return made.classes("w-full").style("height:220px").props(f'role=img aria-label="{title}"')
