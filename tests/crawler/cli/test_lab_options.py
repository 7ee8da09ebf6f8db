"""The flags of the four experiments: each reaches its field, and what is not given is left to the experiment."""

import dataclasses
import importlib
import inspect
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from anabranch.crawler.cli import lab, lab_options
from anabranch.crawler.cli.app import app
from anabranch.crawler.lab.filters.compare import FilterOptions

REPOSITORY = Path(__file__).resolve().parents[3]
OPTIONS = {"smm": "SmmOptions", "fpr": "FprOptions", "redis": "RedisOptions", "balance": "BalanceOptions"}
#: What the frame keeps for itself.
FRAME = {"ctx", "plot", "csv"}

COMMON = {"urls": ("--urls u.txt", Path("u.txt")), "seed": ("--seed 7", 7)}
FLAGS = {
    "smm": COMMON
    | {
        "count": ("--count 2k", 2000),
        "repeats": ("--repeats 0.5", 0.5),
        "runs": ("--runs 12", 12),
        "probes": ("--probes 10k", 10_000),
        "signature": ("--signature md5", "md5"),
        "levels": ("--levels 1,1,3", (1, 1, 3)),
        "quick": ("--quick", True),
    },
    "fpr": COMMON
    | {
        "n": ("--n 3M", 3_000_000),
        "leaves": ("--leaves 1,4", (1, 4)),
        "points": ("--points 4", 4),
        "false_positive": ("--false-positive 0.01", 0.01),
    },
    "redis": COMMON
    | {
        "count": ("--count 9", 9),
        "batch": ("--batch 64", 64),
        "threads": ("--threads 1,3", (1, 3)),
        "leaves": ("--leaves 2", (2,)),
        "latency_s": ("--latency 0.4ms", 0.0004),
        "false_positive": ("--false-positive 0.01", 0.01),
        "server": ("--server /opt/redis-server", Path("/opt/redis-server")),
    },
    "balance": COMMON
    | {
        "count": ("--count 9", 9),
        "leaves": ("--leaves 12", 12),
        "filters": ("--filters 300", 300),
        "two_gigabytes": ("--no-two-gigabytes", False),
        "false_positive": ("--false-positive 0.01", 0.01),
    },
}


@pytest.fixture
def commands(monkeypatch):
    """The commands that the command line makes, in place of running them."""
    made = []
    monkeypatch.setattr(lab, "run_lab", lambda name, flags, **frame: made.append((name, flags, frame)) or 0)
    return made


def run(*arguments):
    return CliRunner().invoke(app, ["lab", *arguments])


def options_of(verb):
    return getattr(importlib.import_module(f"anabranch.crawler.lab.filters.{verb}"), OPTIONS[verb])


@pytest.mark.parametrize("verb", OPTIONS)
def test_every_field_of_the_options_is_a_flag(verb) -> None:
    """And every flag a field, but for what the frame keeps."""
    fields = {field.name for field in dataclasses.fields(options_of(verb))}
    assert set(inspect.signature(getattr(lab_options, verb)).parameters) - FRAME == fields == FLAGS[verb].keys()


@pytest.mark.parametrize(("verb", "field"), [(verb, field) for verb, flags in FLAGS.items() for field in flags])
def test_each_flag_reaches_its_field(commands, verb, field) -> None:
    """With a value of the field's type, and no other field gets one."""
    text, value = FLAGS[verb][field]
    result = run(verb, *text.split())
    assert result.exit_code == 0, result.output
    ((name, flags, _),) = commands
    assert name == verb
    given = {key: flag for key, flag in flags.items() if flag is not None}
    assert given == {field: value}
    assert getattr(options_of(verb)(**given), field) == value
    assert getattr(options_of(verb)(), field) != value


COMPARED = {
    "expected": ("--expected 10k", 10_000),
    "false_positive": ("--false-positive 0.01", 0.01),
    "bits": ("--bits 16", 16.0),
    "urls": ("--urls -", Path("-")),
    "kinds": ("--kind hosts", ("hosts",)),
    "pages": ("--pages 5k", 5000),
    "hosts": ("--hosts 7", 7),
    "seed": ("--seed 2", 2),
    "replay": ("--replay crawl.log", Path("crawl.log")),
}


@pytest.mark.parametrize("field", COMPARED)
def test_compare_with_filters_gives_its_options_to_the_comparison_of_filters(commands, field) -> None:
    """Every field of its options is one; nothing that is left out is passed on."""
    fields = {each.name for each in dataclasses.fields(FilterOptions)}
    assert fields == COMPARED.keys() | {"filters"} == lab._OF_COMPARED
    text, value = COMPARED[field]
    assert CliRunner().invoke(app, ["compare", "--filters", "smm,exact", *text.split()]).exit_code == 0
    assert commands == [("filters", {"filters": ("smm", "exact"), field: value}, {})]


def test_compare_without_filters_compares_policies(commands) -> None:
    """Policies are the default comparison."""
    assert CliRunner().invoke(app, ["compare", "--workers", "9", "--json", "-"]).exit_code == 0
    assert commands == [("policies", {"workers": 9}, {"json": Path("-")})]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "--filters smm --workers 9 --min-delay 3s --seeds s.txt",
            "--workers, --min-delay, --seeds: only for a comparison of policies; --filters compares filters",
        ),
        (
            "--expected 5 --urls u.txt",
            "--expected, --urls: only for a comparison of filters; without --filters policies are compared",
        ),
    ],
)
def test_options_of_the_other_comparison_are_refused_in_one_line(commands, capsys, arguments, said) -> None:
    """Nothing is run; exit code 2."""
    result = CliRunner().invoke(app, ["compare", *arguments.split()])
    assert (result.exit_code, commands) == (2, [])
    assert result.stderr == f"anabranch: {said}\n"


DEFAULTS = [
    (verb, field.name, field.default)
    for verb in OPTIONS
    for field in dataclasses.fields(options_of(verb))
    if field.default is not None and not isinstance(field.default, bool)
]


@pytest.mark.parametrize(("verb", "field", "default"), DEFAULTS)
def test_the_help_names_the_defaults(commands, verb, field, default) -> None:
    """A default from the help, given as the flag, equals the value that the experiment takes without it."""
    flag = FLAGS[verb][field][0].split()[0]
    shown = CliRunner().invoke(app, ["lab", verb, "--help"], env={"COLUMNS": "200"}).output
    named = re.search(rf"{flag} .*\(default ([^)]+)\)", shown)
    assert named, shown
    assert run(verb, flag, named[1]).exit_code == 0
    assert commands[0][1][field] == default


def test_the_help_names_what_is_made_out_of_other_options() -> None:
    """And a switch that is on."""
    shown = CliRunner().invoke(app, ["lab", "balance", "--help"], env={"COLUMNS": "200"}).output
    assert "(default: as much memory as the DSBF)" in shown
    assert "too (default yes)" in shown


@pytest.mark.parametrize("verb", OPTIONS)
def test_picture_and_csv_are_the_frames(commands, verb) -> None:
    """Every experiment has them."""
    assert run(verb, "--plot", "a.png", "--csv", "b.csv").exit_code == 0
    ((_, flags, frame),) = commands
    assert frame == {"plot": Path("a.png"), "csv": Path("b.csv")}
    assert set(flags.values()) == {None}


@pytest.mark.parametrize(
    "arguments",
    [
        ("fpr", "--leaves", "1,0"),
        ("fpr", "--leaves", "1,,2"),
        ("redis", "--threads", "many"),
        ("redis", "--latency", "soon"),
        ("smm", "--levels", "1;3"),
        ("smm", "--count", "1.5"),
        ("nothing",),
        (),
    ],
)
def test_a_command_line_that_makes_no_sense_exits_with_2(commands, arguments) -> None:
    """Nothing is run."""
    assert run(*arguments).exit_code == 2
    assert commands == []


def test_the_exit_code_is_the_runs(monkeypatch) -> None:
    """The command line adds nothing to it."""
    monkeypatch.setattr(lab, "run_lab", lambda *_, **__: 3)
    assert run("smm").exit_code == 3


def test_lists_and_durations_are_read_as_people_write_them() -> None:
    """With blanks or without; anything else is refused."""
    assert lab_options.parse_numbers("1, 2,16") == (1, 2, 16)
    assert lab_options.parse_seconds("0.4ms") == 0.0004
    for wrong in ("", "1.5", "-1", "²"):
        with pytest.raises(typer.BadParameter):
            lab_options.parse_numbers(wrong)
