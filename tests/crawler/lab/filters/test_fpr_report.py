"""What figure 7's points are made into."""

import pytest

from anabranch.crawler.lab.filters.fpr_report import Asked, Point, report, same_leaf_size, same_memory
from anabranch.crawler.lab.report import Report


def point(urls: int, hits: int, formula: float, *, leaves: int = 1, worst: float = 0.0) -> Point:
    return Point(
        leaves=leaves,
        bits=leaves << 20,
        urls=urls,
        fullest=urls // leaves + 1,
        mean=Asked(probes=10_000, hits=hits, formula=formula),
        worst=Asked(probes=1000, hits=hits // 10, formula=worst or formula),
    )


def reported(*curves: tuple[Point, ...]) -> Report:
    return report([same_memory(1 << 20, curves), same_leaf_size(1 << 20, curves)], 10, 1e-3)


def test_a_sampling_error_is_that_of_a_share() -> None:
    """sqrt(p (1 - p) / probes), with p of the formula."""
    asked = Asked(probes=10_000, hits=230, formula=0.02)
    assert asked.sigma == pytest.approx(0.0014)
    assert asked.deviation == pytest.approx(0.003 / 0.0014)


@pytest.mark.parametrize("formula", [0.0, 0.0009, 0.9991, 1.0])
def test_too_few_hits_or_misses_tell_nothing(formula: float) -> None:
    """Fewer than ten expected: a distance in sigmas would be about single hits."""
    assert Asked(probes=10_000, hits=50, formula=formula).deviation is None


def test_without_probes_there_is_no_rate() -> None:
    """A leaf that no probe meets divides nothing by nothing."""
    asked = Asked(probes=0, hits=0, formula=0.5)
    assert (asked.rate, asked.sigma, asked.deviation) == (0.0, 0.0, None)


@pytest.mark.parametrize(
    ("hits", "words"),
    [
        (250, "at most 3.6 sigma apart (c = 1, n = 2,000"),
        (255, "as chance has it"),
        (300, "more than chance explains"),
        (100, "more than chance explains"),
    ],
)
def test_the_farthest_point_decides_whether_the_formula_holds(hits: int, words: str) -> None:
    """Far means beyond four sigma; the nearer points do not hide it."""
    closing = reported((point(1000, 205, 0.02), point(2000, hits, 0.02), point(3000, 201, 0.02)))
    assert any(words in line for line in closing.closing)


def test_points_without_enough_hits_are_said_not_to_count() -> None:
    """All rates too small: no verdict."""
    lines = reported((point(1000, 0, 1e-9),)).closing
    assert any("too few hits at every point" in line for line in lines)


def test_f_max_is_crossed_where_the_measured_rate_says() -> None:
    """Each c on its own; one that never does is named, too."""
    low = tuple(point(urls, 1, 1e-4, leaves=2) for urls in (1000, 2000, 3000))
    high = (point(1000, 10, 1e-3), point(2000, 11, 1e-3), point(3000, 90, 9e-3))
    assert "f_max = 0.001 is exceeded from n = 2,000 on with c = 1, nowhere with c = 2." in reported(high, low).closing


def test_the_worst_leaf_is_that_of_the_last_n_with_the_largest_ratio() -> None:
    """Its load and its rate beside the mean ones."""
    curves = [(point(3000, 60, 6e-3, leaves=c, worst=6e-3 * ratio),) for c, ratio in ((1, 1.0), (5, 1.25), (10, 1.1))]
    assert reported(*curves).closing[-1] == (
        "Worst leaf and mean query: with c = 5 the fullest leaf holds 601 URLs, 600 on average; its rate by formula is 1.250 "
        "times that of the mean query."
    )


def test_rates_of_one_or_two_hits_are_not_drawn() -> None:
    """A curve begins where there are three; its formula goes on as far down as a tenth of a hit."""
    drawn = reported((point(1000, 2, 1e-6), point(2000, 2, 1e-5), point(3000, 3, 3e-4))).panels[1]
    assert [(curve.label, curve.x) for curve in drawn.curves] == [
        ("c = 1", (3000,)),
        ("formula (8), c = 1", (2000, 3000)),
        ("f_max", (1000, 3000)),
    ]


def test_with_the_same_memory_n_is_scaled_to_the_classic_filter() -> None:
    """A filter of three quarters of the memory with three quarters of the URLs stands at the same x."""
    three = Point(
        leaves=3,
        bits=3 << 18,
        urls=750,
        fullest=251,
        mean=Asked(probes=75, hits=9, formula=0.1),
        worst=Asked(probes=25, hits=3, formula=0.1),
    )
    panel = report([same_memory(1 << 20, [(three,)]), same_leaf_size(1 << 18, [(three,)])], 10, 1e-3).panels
    assert (panel[0].curves[0].x, panel[1].curves[0].x) == ((1000,), (750,))
