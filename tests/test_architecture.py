"""The walls of the house: who may import whom, what stands where, and how large it may grow.

The rules are the tables at the top; the functions below them read the sources with `ast` and answer with one line
for each breach. Each function is first shown a breach that it must find.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from scripts.budgets import ROOMS, Source, blocks, definitions, excesses, measure, source, sources, walk
from scripts.measures import (
    circles,
    cycles,
    dummy_lambdas,
    folder_cycles,
    foreign_assignments,
    many_callables,
    median_lines,
    repeated_classes,
    row_makers,
    run_time_imports,
    unpackings,
)
from tests import costs
from tests.patience import HANG_S
from tests.rows import each_row

CLONE = Path(__file__).resolve().parent.parent

#: What `scripts/measures.py` counts, and how much of it may be: see docs/decisions.md, "A folder is a layer".
MOST_FILES = 394
#: The console is a process of its own, with a bound of its own.
MOST_CONSOLE_FILES = 45
LEAST_MEDIAN_LINES = 130
MOST_REPEATED_NAMES = 5
MOST_FOREIGN_ASSIGNMENTS = 60
#: Places without lab where six names or more are given values at once: a reader counts the columns there. One that is needed
#: for speed has its measured gain beside it.
MOST_UNPACKINGS = 8
#: (constructor, file, function) where a stored row is made by position: a new one, and one that a store has read.
ROW_MAKERS = {
    ("Row", "frontier/admission.py", "Admission._add_row"),
    ("Row._make", "frontier/stores/sql/reading.py", "row_of"),
}
MOST_DUMMY_LAMBDAS = 10
#: The classes that take three callables or more: give a class the object whose methods it calls.
OF_MANY_CALLABLES = ["frontier/stores/sql/worker.py:ShareWorker"]

#: (room, other room) -> the files in it that may import the other (fnmatch patterns); there is no other arrow.
ARROWS: dict[tuple[str, str], tuple[str, ...]] = {
    ("crawler", "frontier"): ("crawler/*",),
    # The command and the experiments on the filters; the similarity filter, which judges what the Frontier is given.
    ("crawler", "dedup"): ("crawler/cli/dedup.py", "crawler/lab/*", "crawler/scope/similarity.py"),
    # It builds the filters, which stand behind the seam in the other two.
    ("frontier", "dedup"): ("frontier/composition.py", "frontier/filterchoice.py", "frontier/filters.py"),
}

#: Modules that every room may import: the one place for durable files, locks and headers, and the one set of recent keys.
FOR_ALL = ("anabranch.dedup.files", "anabranch.dedup.files.*", "anabranch.dedup.recent")

#: The modules by which a room or a layer is seen from above, and the names that each has at most; they are imported at their
#: first use. That of the frontier has all that the crawler sees of it, but for the modules of `DOORS`.
FACES = {"frontier/__init__.py": 111, "crawler/operate/__init__.py": 40}

#: (files, package) -> the modules of it that they may import; every import counts, also one in a function or for types.
DOORS: dict[tuple[str, str], tuple[str, ...]] = {
    ("crawler/console/*", "anabranch.frontier"): ("anabranch.frontier", "anabranch.frontier.records"),
    ("crawler/console/*", "anabranch.crawler.operate"): ("anabranch.crawler.operate",),
    ("crawler/console/*", "anabranch.crawler.run"): (),
    # It runs crawls itself.
    ("crawler/api/*", "anabranch.frontier"): (
        "anabranch.frontier.cancellation",
        "anabranch.frontier.records",
        "anabranch.frontier.times",
    ),
    # Its face, and beside it what has many names: the words of the room, and the drivers and answers of its SQL.
    ("crawler/[!l]*", "anabranch.frontier"): (
        "anabranch.frontier",
        "anabranch.frontier.cancellation",
        "anabranch.frontier.errors",
        "anabranch.frontier.jobfolder",
        "anabranch.frontier.parts",
        "anabranch.frontier.policies.hosts",
        "anabranch.frontier.policies.userfunctions",
        "anabranch.frontier.records",
        "anabranch.frontier.stores.sql.execution",
        "anabranch.frontier.stores.sql.reading",
        "anabranch.frontier.stores.sql.sqlite",
        "anabranch.frontier.times",
    ),
    # It measures policies and filters, also parts of them.
    ("crawler/lab/*", "anabranch.frontier"): (
        "anabranch.frontier",
        "anabranch.frontier.completion",
        "anabranch.frontier.composition",
        "anabranch.frontier.errors",
        "anabranch.frontier.filterchoice",
        "anabranch.frontier.inspect.statistics",
        "anabranch.frontier.policies.assignment",
        "anabranch.frontier.policies.hosts",
        "anabranch.frontier.records",
        "anabranch.frontier.stores.memory.store",
    ),
}
#: (files, package) -> how many import statements may lead from these files into it.
MOST_STATEMENTS = {("crawler/console/*", "anabranch.frontier"): 3, ("crawler/lab/*", "anabranch.frontier"): 21}

#: library -> the files that may import it (fnmatch patterns; `*` spans folders). A library that is not here is new: enter it.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "abloom": ("crawler/lab/filters/contestants.py",),  # a peer that `compare --filters` measures
    "ada_url": ("crawler/urls/parsing.py",),
    "aiodns": ("crawler/fetch/dns.py",),
    "aiohttp": (
        "crawler/archive/cdxserver.py",  # asks a service of the operator
        "crawler/fetch/connections.py",
        "crawler/fetch/exchange.py",
        "crawler/fetch/fetcher.py",  # its errors
        "crawler/fetch/requests.py",
    ),
    "crawlee": ("frontier/hosts/crawlee/*",),
    "cronsim": ("crawler/order/schedule.py",),
    "fastapi": ("crawler/console/*", "crawler/cli/console.py"),
    "fsspec": ("crawler/archive/uploads.py",),
    "isal": ("crawler/archive/compression.py",),
    "matplotlib": ("crawler/lab/plots.py",),
    "multidict": ("crawler/fetch/response.py", "crawler/fetch/exchange.py"),  # the type of aiohttp's headers
    "nicegui": ("crawler/console/pages/*",),
    "re2": ("crawler/console/pages/logs.py",),
    "numpy": (
        "dedup/*",
        "crawler/archive/earlier.py",  # fills its filter, for an archive's digests at once
        "frontier/policies/assignment.py",
        "frontier/stores/sql/browse.py",
        "crawler/lab/*",
        "crawler/processors/seen_urls.py",
    ),
    "chardetng_py": ("crawler/extract/encoding.py",),
    "webencodings": ("crawler/extract/encoding.py",),
    "prometheus_client": ("crawler/report/exposition.py",),
    "publicsuffixlist": ("frontier/policies/hosts.py",),
    "pycares": ("crawler/fetch/dns.py",),
    "pydantic": (
        "crawler/console/api.py",
        "crawler/console/bodies.py",
        "crawler/order/*",
        "crawler/lab/policies/saved.py",
    ),  # orders, and results that are read again
    "psycopg": ("frontier/stores/sql/postgres.py",),
    "pydantic_core": ("crawler/order/*",),  # its errors
    "pydantic_settings": ("crawler/order/*",),
    "pyarrow": ("crawler/export/tables.py",),
    "pybloom_live": ("crawler/lab/filters/contestants.py",),  # a peer that `compare --filters` measures
    "pyfusefilter": ("crawler/lab/filters/contestants.py",),  # another
    "rbloom": ("crawler/lab/filters/contestants.py",),  # another
    "scf": ("crawler/lab/filters/contestants.py",),  # another
    "redis": ("dedup/bloom/redis.py",),
    "rich": ("crawler/cli/*", "crawler/report/progress*"),
    "scrapy": ("frontier/hosts/scrapy/*",),
    "selectolax": ("crawler/extract/html.py",),
    "sqlalchemy": (
        "frontier/stores/*",
        "dedup/similarity/url_db.py",
        "crawler/archive/databases.py",
        "crawler/archive/earlier.py",
        "crawler/archive/history.py",
        "crawler/accounts/database.py",
        "crawler/job/database.py",
        "crawler/job/scheduledruns.py",
        "crawler/job/seedtable.py",
        "crawler/cluster/*",
        "crawler/run/shared_*.py",
        "crawler/run/job_rows.py",
        "crawler/run/worker_lines.py",
        "crawler/processes/supervisor.py",
    ),
    "sqlite3": (
        "frontier/stores/*",
        "dedup/similarity/url_db.py",
        "crawler/archive/databases.py",
        "crawler/export/tables.py",
        "crawler/report/rounds.py",
    ),
    "socketio": ("crawler/console/pages/windows.py",),  # what the sockets of NiceGUI are made of
    "structlog": ("crawler/*",),
    "tomli_w": ("crawler/order/*",),
    "starlette": ("crawler/console/*",),  # what FastAPI is made of
    "twisted": ("frontier/hosts/scrapy/engine.py",),  # how another thread wakes a reactor that is not asyncio's
    "typer": ("crawler/cli/*",),
    "uvicorn": ("crawler/console/server.py",),
    "xxhash": (
        "crawler/lab/web/shape.py",
        "dedup/keys.py",
        "dedup/smm/addresses.py",
        "dedup/exact/runs.py",
        "frontier/records.py",
    ),
    "yarl": (
        "crawler/archive/cdxserver.py",
        "crawler/fetch/requests.py",
        "frontier/hosts/crawlee/requests.py",
    ),  # the type of aiohttp's URLs, and of Crawlee's
}

#: What is written for one engine of the Frontier's store, SQL texts included, is in these files: one for each engine.
ENGINES = ("frontier/stores/sql/sqlite.py", "frontier/stores/sql/postgres.py")
#: What reads a file of SQLite by the driver alone, because the import of SQLAlchemy takes longer than all that `status` does.
WITHOUT_SQLALCHEMY = ("frontier/stores/totals.py",)
#: What else takes something of an engine from SQLAlchemy: INSERT with ON CONFLICT, which both engines understand.
OF_AN_ENGINE = {"frontier/stores/sql/statements.py": {"insert"}}
_SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE)\s")

#: Names under which things without a home gather: a helper lives with its user.
HOMELESS = {"common", "helpers", "misc", "util", "utils"}

#: What `--help` must not wait for.
HEAVY = {"aiohttp", "numpy", "sqlalchemy", "structlog"}
#: Hosts of the Frontier, which is of use without them.
HOSTS = {"scrapy", "crawlee"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One name that a file imports: `module` is what the statement names, `name` what it takes out of it, if so."""

    module: str
    name: str | None
    line: int
    at_run_time: bool  #: on import of the file: neither inside a function nor under TYPE_CHECKING

    @property
    def top(self) -> str:
        """The package or module at the top of the dotted name."""
        return self.module.partition(".")[0]

    @property
    def room(self) -> str | None:
        """The room of ours that it imports from, if it does."""
        _, _, inside = f"{self.module}.{self.name}".partition("anabranch.")
        return inside.partition(".")[0] if self.top == "anabranch" else None


@pytest.fixture(scope="module")
def rooms() -> list[Source]:
    with costs.shared_start():
        return sources(CLONE)


def assert_none(breaches: list[str]) -> None:
    """All breaches in the failure's message, not the first alone."""
    assert not breaches, "\n" + "\n".join(breaches)


@cache
def imports(file: Source) -> list[Import]:
    """All imports of a file, relative ones made absolute."""
    return [
        Import(module=module, name=name, line=node.lineno, at_run_time=at_run_time)
        for node, at_run_time in import_nodes(file.tree, at_run_time=True)
        for module, name in imported_names(file, node)
    ]


def import_nodes(tree: ast.AST, *, at_run_time: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in blocks(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, at_run_time
        elif isinstance(node, ast.If) and is_for_type_checking(node.test):
            for child in node.body:
                yield from import_nodes(ast.Module([child], []), at_run_time=False)
            for child in node.orelse:
                yield from import_nodes(ast.Module([child], []), at_run_time=at_run_time)
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from import_nodes(node, at_run_time=at_run_time and not is_function)


def is_for_type_checking(condition: ast.expr) -> bool:
    return any(
        isinstance(part, ast.Name | ast.Attribute)
        and (part.id if isinstance(part, ast.Name) else part.attr) == "TYPE_CHECKING"
        for part in ast.walk(condition)
    )


def imported_names(file: Source, node: ast.Import | ast.ImportFrom) -> list[tuple[str, str | None]]:
    if isinstance(node, ast.Import):
        return [(alias.name, None) for alias in node.names]
    module = node.module or ""
    if node.level:
        package = file.module.split(".") if file.path.endswith("/__init__.py") else file.module.split(".")[:-1]
        module = ".".join([*package[: len(package) + 1 - node.level], *filter(None, [module])])
    return [(module, alias.name) for alias in node.names]


def forbidden_arrows(files: list[Source]) -> list[str]:
    return [
        f"{file.path}:{found.line} imports {found.module}"
        for file in files
        for room in [file.path.partition("/")[0]]
        for found in imports(file)
        for other in [found.room or found.top]
        if other in {*ROOMS, "tests", "scripts"} - {room}
        if not any(fnmatchcase(found.module, module) for module in FOR_ALL)
        if not any(fnmatchcase(file.path, door) for door in ARROWS.get((room, other), ()))
    ]


def breached_walls(files: list[Source]) -> list[str]:
    """The imports of modules behind a face, and the packages into which too many statements lead."""
    modules, breaches = {file.module for file in files}, []
    for (pattern, package), doors in DOORS.items():
        entering = {
            f"{file.path}:{found.line} imports {module}": module
            for file in files
            if fnmatchcase(file.path, pattern)
            for found in imports(file)
            for inner in [f"{found.module}.{found.name}"]
            for module in [inner if inner in modules else found.module]
            if module == package or module.startswith(f"{package}.")
        }
        breaches += [place for place, module in entering.items() if module not in doors]
        most = MOST_STATEMENTS.get((pattern, package), len(entering))
        if len(entering) > most:
            breaches.append(f"{pattern}: {len(entering)} statements import {package}; {most} may")
    return breaches


def names_of_face(face: Source) -> set[str]:
    """The names that a face offers: those that it imports for types."""
    return {found.name for found in imports(face) if found.name and not found.at_run_time}


def misplaced_libraries(files: list[Source]) -> list[str]:
    breaches = []
    for file in files:
        for found in imports(file):
            if found.top == "anabranch" or (found.top in sys.stdlib_module_names and found.top not in LIBRARIES):
                continue
            places = LIBRARIES.get(found.top, ())
            if not any(fnmatchcase(file.path, place) for place in places):
                allowed = " or ".join(places) or "nothing: the library is not in the table"
                breaches.append(f"{file.path}:{found.line} imports {found.top}; allowed: {allowed}")
    return breaches


def import_graph(files: list[Source]) -> dict[str, set[str]]:
    """Module -> the modules that its import runs, among `files`; that a package runs first is left aside."""
    modules = {file.module for file in files}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for file in files:
        for found in imports(file):
            submodule = f"{found.module}.{found.name}"
            target = submodule if submodule in modules else found.module
            if found.at_run_time and target in modules:
                graph[file.module].add(target)
    return graph


def beside_the_engines(files: list[Source]) -> list[str]:
    """Texts of SQL, and questions which engine it is, that are not in the files of the engines."""
    breaches = []
    for file in files:
        if not file.path.startswith("frontier/") or file.path in (*ENGINES, *WITHOUT_SQLALCHEMY):
            continue
        taken = OF_AN_ENGINE.get(file.path, set())
        breaches += [
            f"{file.path}:{found.line} imports {found.module}"
            for found in imports(file)
            if found.module.startswith("sqlalchemy.dialects") and found.name not in taken
        ]
        for node in walk(file.tree):
            match node:
                case ast.Attribute(attr="dialect"):
                    breaches.append(f"{file.path}:{node.lineno} asks for the engine")
                case ast.Constant(value=str(text)) if _SQL.match(text):
                    breaches.append(f"{file.path}:{node.lineno} has a statement as text: {text.strip()[:30]}")
    return breaches


def bad_habits(files: list[Source]) -> list[str]:
    breaches = [f"{file.path}: name it after what it does" for file in files if HOMELESS & {*file.module.split(".")}]
    for file in files:
        breaches += [f"{file.path}:{line} {habit}" for line, habit in habits_in(file)]
    return breaches


def habits_in(file: Source) -> Iterator[tuple[int, str]]:
    for found in imports(file):
        if (found.module, found.name) == ("time", "sleep"):
            yield found.line, "time.sleep"
    for node in walk(file.tree):
        match node:
            case ast.ExceptHandler(type=None):
                yield node.lineno, "bare except"
            case ast.Attribute(value=ast.Name(id="time"), attr="sleep"):
                yield node.lineno, "time.sleep"
            case ast.Global():
                yield node.lineno, f"global {', '.join(node.names)}"


def without_docstring(file: Source) -> list[str]:
    """The public module, classes, functions and methods that say nothing (overloads and setters need not)."""
    silent = [] if ast.get_docstring(file.tree) else [file.path]
    nodes = dict(definitions(file.tree))
    for name, node in nodes.items():
        parents = [nodes.get(name.rsplit(".", depth)[0]) for depth in range(1, name.count(".") + 1)]
        is_public = not any(part.startswith("_") for part in name.split("."))
        is_inside_function = any(not isinstance(parent, ast.ClassDef) for parent in parents)
        repeats = any(ast.unparse(mark).endswith((".setter", "overload")) for mark in node.decorator_list)
        if is_public and not is_inside_function and not repeats and not ast.get_docstring(node):
            silent.append(f"{file.path}:{node.lineno} {name}")
    return silent


def modules_imported_by(*arguments: str) -> set[str]:
    """The names of all modules that `python ARGUMENTS` imports; it must end with 0."""
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, cwd=CLONE, capture_output=True, text=True, check=True, timeout=HANG_S)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip() for line in lines}


def test_rooms_import_only_along_the_arrows(rooms: list[Source]) -> None:
    """The crawler imports frontier, frontier imports dedup where it builds filters; nothing else crosses a wall."""
    assert_none(forbidden_arrows(rooms))


@each_row(
    ("path", "text"),
    [
        ("dedup/smm/store.py", "import anabranch.frontier.frontier"),
        ("dedup/smm/store.py", "if TYPE_CHECKING:\n    from anabranch.crawler.urls.parsing import Urls"),
        ("frontier/frontier.py", "from anabranch.dedup.uniq import UniqFilter"),
        ("frontier/composition.py", "from anabranch.crawler import urls"),
        ("crawler/run/workers.py", "def f():\n    import anabranch.dedup"),
        ("crawler/run/workers.py", "from tests.site import server"),
        ("crawler/fetch/fetcher.py", "from ...dedup import smm"),
    ],
)
def test_a_forbidden_arrow_is_found(path: str, text: str) -> None:
    """A breach is found wherever the import stands, also for types alone."""
    assert len(forbidden_arrows([source(path, text)])) == 1


def test_the_arrows_themselves_are_allowed() -> None:
    """An import along an arrow of the design is no breach."""
    door = source(
        "frontier/composition.py",
        "from anabranch.dedup.uniq import UniqFilter\nfrom anabranch.frontier.frontier import Frontier",
    )
    lab = source("crawler/lab/filters/balance.py", "from anabranch.dedup.bloom.filter import Dsbf")
    files = source("crawler/job/folder.py", "from anabranch.dedup.files.durable import replace_file")
    workers = source("crawler/run/workers.py", "from anabranch.frontier.records import Lease")
    assert forbidden_arrows([door, lab, files, workers]) == []


def test_clients_see_jobs_and_queues_through_faces(rooms: list[Source]) -> None:
    """The console imports next to nothing of the Frontier and nothing of a run: what it needs of a job is in `operate`."""
    assert_none(breached_walls(rooms))


@each_row(
    ("text", "module"),
    [
        ("from anabranch.crawler.run.verbs import Facts", "crawler.run.verbs"),
        ("from anabranch.crawler import run", "crawler.run"),
        ("def f():\n    import anabranch.crawler.run.status", "crawler.run.status"),
        ("if TYPE_CHECKING:\n    from anabranch.frontier.times import counted", "frontier.times"),
        ("from ..operate.listing import row_of", "crawler.operate.listing"),
    ],
)
def test_a_breached_wall_is_found(text: str, module: str) -> None:
    """A breach is found wherever the import stands, also for types alone."""
    files = [source("crawler/console/watch.py", text), source("crawler/run/__init__.py", "")]
    assert [place.partition(" ")[2] for place in breached_walls(files)] == [f"imports anabranch.{module}"]


def test_too_many_statements_are_found_though_each_is_allowed() -> None:
    """A statement counts once, however many names it imports."""
    text = "from anabranch.frontier import (\n    Lease,\n    Frontier,\n)"
    files = [source(f"crawler/console/{name}.py", text) for name in "abcd"]
    assert breached_walls(files[:3]) == []
    assert breached_walls(files) == ["crawler/console/*: 4 statements import anabranch.frontier; 3 may"]


def test_a_face_is_small_and_each_of_its_names_exists(rooms: list[Source]) -> None:
    """What its type checker sees is what it resolves at run time."""
    for face in rooms:
        if face.path in FACES:
            names = names_of_face(face)
            module = importlib.import_module(face.module)
            assert names == set(module.__all__)
            assert len(names) <= FACES[face.path], f"{face.path}: {len(names)} names"
            assert {name for name in names if getattr(module, name, None) is None} == set()
            with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
                module.nothing  # noqa: B018


def test_clients_use_each_name_of_the_face_of_jobs(rooms: list[Source]) -> None:
    """A name that no client imports goes from the face."""
    (face,) = (file for file in rooms if file.path == "crawler/operate/__init__.py")
    used = {found.name for file in rooms for found in imports(file) if found.module == face.module}
    assert names_of_face(face) - used == set()


def test_a_library_is_imported_in_its_one_place(rooms: list[Source]) -> None:
    """To replace a library is to change one file; a new library is entered in the table first."""
    assert_none(misplaced_libraries(rooms))


@each_row(
    ("path", "text"),
    [
        ("crawler/run/workers.py", "from aiohttp import ClientSession"),
        ("frontier/frontier.py", "import sqlite3"),
        ("frontier/frontier.py", "import sqlalchemy.exc as exc"),
        ("crawler/report/reports.py", "def f():\n    from rich.table import Table"),
        ("crawler/urls/parsing.py", "import requests"),
    ],
)
def test_a_misplaced_library_is_found(path: str, text: str) -> None:
    """A library outside its place and one that nobody entered are breaches."""
    assert len(misplaced_libraries([source(path, text)])) == 1


def test_a_library_in_its_place_is_allowed() -> None:
    """Places may be patterns; the standard library and the rooms themselves are free."""
    command = source(
        "crawler/cli/crawl.py", "import json\nimport typer\nfrom anabranch.crawler.urls.parsing import Urls"
    )
    assert misplaced_libraries([command, source("crawler/report/progress_log.py", "import rich")]) == []


def test_sql_is_written_once_for_both_engines(rooms: list[Source]) -> None:
    """Statements of the Frontier are expressions of SQLAlchemy Core; what differs is in one file an engine."""
    assert_none(beside_the_engines(rooms))


@each_row(
    ("path", "text"),
    [
        ("frontier/stores/sql/reading.py", "def f(connection):\n    return connection.dialect.name == 'sqlite'"),
        ("frontier/stores/sql/work.py", "from sqlalchemy.dialects import postgresql"),
        ("frontier/stores/sql/statements.py", "from sqlalchemy.dialects.sqlite import dialect"),
        ("frontier/stores/sql/schema.py", "FACTS = 'SELECT name FROM crawl'"),
        ("frontier/stores/sql/schema.py", "FACTS = f'\\nDELETE FROM {TABLE}'"),
        ("frontier/hosts/scrapy/payloads.py", "def f(c):\n    c.execute('UPDATE url SET payload = ?')"),
    ],
)
def test_sql_beside_the_engines_is_found(path: str, text: str) -> None:
    """A text of SQL, a question for the engine, and what SQLAlchemy has for one engine alone are breaches."""
    assert len(beside_the_engines([source(path, text)])) == 1


def test_sql_of_an_engine_is_allowed_in_its_file() -> None:
    """Catalogues and settings differ; other rooms have rules of their own, and a sentence is no statement."""
    files = [
        source("frontier/stores/sql/postgres.py", "SESSION = 'SELECT pid FROM pg_stat_activity'"),
        source("frontier/stores/sql/statements.py", "from sqlalchemy.dialects.sqlite import insert"),
        source("frontier/stores/sql/work.py", "'Selects batches.'\nNAME = 'UPDATE'"),
        source("crawler/cluster/totals.py", "GONE = 'SELECT worker FROM job_counted'"),
    ]
    assert beside_the_engines(files) == []


def test_no_module_imports_itself_by_a_detour(rooms: list[Source]) -> None:
    """The imports that run on import form no cycle, over all three rooms."""
    assert_none([" <-> ".join(sorted(group)) for group in cycles(import_graph(rooms))])


def test_a_cycle_is_found_with_all_its_members() -> None:
    """A cycle through a package's `__init__` counts; one that only types or functions close does not."""
    files = [
        source("dedup/__init__.py", "from anabranch.dedup.a import A"),
        source("dedup/a.py", "from . import b"),
        source("dedup/b.py", "try:\n    from anabranch.dedup import A\nexcept ImportError:\n    pass"),
        source("dedup/c.py", "if TYPE_CHECKING:\n    import anabranch.dedup.d"),
        source("dedup/d.py", "import anabranch.dedup.c\ndef f():\n    import anabranch.dedup.d"),
    ]
    assert cycles(import_graph(files)) == [{"anabranch.dedup", "anabranch.dedup.a", "anabranch.dedup.b"}]


def test_a_module_that_imports_itself_is_a_cycle() -> None:
    """The smallest cycle has one member."""
    assert cycles({"a": {"a"}, "b": {"a"}}) == [{"a"}]


def test_no_files_know_each_other(rooms: list[Source]) -> None:
    """What knows each other is in one file: imports for types, and those in functions, close no circle either."""
    found = set(map(frozenset, circles(rooms)))
    assert_none([" <-> ".join(sorted(group)) for group in found])


def test_a_circle_that_only_types_or_functions_close_is_found() -> None:
    """Those that run on import close none here; a module that imports itself is none."""
    files = [
        source("frontier/a.py", "if TYPE_CHECKING:\n    from anabranch.frontier.b import B"),
        source("frontier/b.py", "def f():\n    from anabranch.frontier import a"),
        source("frontier/c.py", "def f():\n    import anabranch.frontier.c\nimport anabranch.frontier.b"),
    ]
    assert circles(files) == [{"anabranch.frontier.a", "anabranch.frontier.b"}]
    assert cycles(import_graph(files)) == []


def test_few_places_give_values_to_many_names_at_once(rooms: list[Source]) -> None:
    """Columns are read by their names."""
    found = unpackings(rooms)
    assert len(found) <= MOST_UNPACKINGS, "\n".join(found)


@each_row(
    "text",
    [
        "a, b, c, d, e, f = row",
        "_, _, _, d, *_, self.f = row",
        "((a, b, c, d, e, f),) = rows",
        "for number, (a, b, c, d, e, f) in rows:\n    pass",
        "found = [f for a, b, c, d, e, f in rows]",
        "[a, b, c, d, e, f] = row",
    ],
)
def test_names_that_get_values_at_once_are_counted(text: str) -> None:
    """Names left out count, because a reader counts them; a tuple of values, and five names, do not."""
    more = "\na, b, c, d, e = 1, 2, 3, 4, 5\nf(1, 2, 3, 4, 5, 6)\nx = (1, 2, 3, 4, 5, 6)"
    assert len(unpackings([source("dedup/a.py", text + more)])) == 1


def test_a_row_is_made_by_position_in_one_place(rooms: list[Source]) -> None:
    """For a new URL, and from the columns of the table; all others name the columns."""
    assert set().union(*map(row_makers, rooms)) == ROW_MAKERS


def test_what_makes_a_row_by_position_is_found() -> None:
    """Calls, and what is passed on to make rows; a call with names is no breach, nor is another `Row`."""
    taken = "from anabranch.frontier.records import Row\n"
    made = (
        "class A:\n    def f(self):\n        return Row(1, url='')\nmake = Row._make\ndef g():\n    map(Row._make, [])"
    )
    named = "\ndef h():\n    return Row(queue=1)"
    file = source("frontier/a.py", taken + made + named)
    expected = {("Row", "A.f"), ("Row._make", "make"), ("Row._make", "g")}
    assert {(maker, name) for maker, _, name in row_makers(file)} == expected
    assert row_makers(source("crawler/a.py", made)) == set()


def test_the_folders_of_a_room_form_no_cycle(rooms: list[Source]) -> None:
    """A folder is a layer: what it imports when it runs, lazily too, lies below it."""
    assert_none([" <-> ".join(sorted(group)) for group in folder_cycles(rooms)])


def test_a_cycle_of_folders_is_found_though_an_import_is_lazy() -> None:
    """An import in a function closes it; one for types alone does not."""
    files = [
        source("crawler/job/seeds.py", "def f():\n    from anabranch.crawler.report import logs"),
        source("crawler/report/logs.py", "import anabranch.crawler.job.seeds"),
        source("crawler/fetch/dns.py", "if TYPE_CHECKING:\n    import anabranch.crawler.report.logs"),
        source("crawler/report/table.py", "import anabranch.crawler.fetch.dns"),
    ]
    assert folder_cycles(files) == [{"crawler/job", "crawler/report"}]


def test_the_house_keeps_its_measures(rooms: list[Source]) -> None:
    """Few files that are concepts, one meaning a class name, and objects that are complete when they are made."""
    in_room, in_house = repeated_classes(rooms)
    # A page is drawn by assigning to the elements of its library.
    own = [file for file in rooms if not file.path.startswith("crawler/console/pages/")]
    changed_elsewhere = [place for file in own for place in foreign_assignments(file)]
    assert_none(in_room)
    assert len(in_house) <= MOST_REPEATED_NAMES, in_house
    assert len(changed_elsewhere) <= MOST_FOREIGN_ASSIGNMENTS, "\n".join(changed_elsewhere)
    console = [file for file in rooms if file.path.startswith("crawler/console/")]
    assert len(rooms) - len(console) <= MOST_FILES
    assert len(console) <= MOST_CONSOLE_FILES
    assert median_lines(rooms) >= LEAST_MEDIAN_LINES


def test_a_class_takes_objects_and_not_their_methods(rooms: list[Source]) -> None:
    """Few callables a constructor, and few functions that are given because one must be."""
    assert set(many_callables(rooms)) <= {*OF_MANY_CALLABLES}
    dummies = dummy_lambdas(rooms)
    assert len(dummies) <= MOST_DUMMY_LAMBDAS, "\n".join(dummies)


def test_callables_and_dummies_are_found() -> None:
    """Parameters of constructors and fields of records count, by the name of a type, too; so does a lambda of a constant."""
    files = [
        source("dedup/a.py", "Clock = Callable[[], float]"),
        source(
            "dedup/b.py",
            "class A:\n    def __init__(self, a: Clock, b: Callable[[], None] | None, *, c: Clock = lambda: 0.0): pass",
        ),
        source("dedup/c.py", "class B(NamedTuple):\n    a: Clock\n    b: Clock\n    c: Clock\n    d: int"),
        source(
            "dedup/d.py", "class C:\n    def __init__(self, a: Clock, b: Clock, c: list[int]): pass\nf = lambda x: x"
        ),
    ]
    assert many_callables(files) == ["dedup/b.py:A", "dedup/c.py:B"]
    assert dummy_lambdas(files) == ["dedup/b.py:2"]


def test_what_changes_another_object_is_found() -> None:
    """Any target but `self.x`, also in a tuple, and `setattr`."""
    text = "def f(a, self):\n    a.x = self.y = 1\n    b, a.z = 1, 2\n    setattr(a, 'w', 3)"
    assert len(foreign_assignments(source("dedup/a.py", text))) == 3


def test_everything_is_within_its_budget(rooms: list[Source]) -> None:
    """No function, class or module is above a limit."""
    assert_none([str(excess) for excess in excesses([what for file in rooms for what in measure(file)])])


def test_the_rooms_have_no_bad_habits(rooms: list[Source]) -> None:
    """No homeless modules, bare excepts, blocking sleeps or names rebound by `global`."""
    assert_none(bad_habits(rooms))


@each_row(
    ("path", "text"),
    [
        ("crawler/utils.py", ""),
        ("crawler/helpers/text.py", ""),
        ("dedup/smm/store.py", "try:\n    f()\nexcept:\n    raise"),
        ("dedup/smm/store.py", "import time\ntime.sleep(1)"),
        ("dedup/smm/store.py", "from time import monotonic, sleep"),
        ("dedup/smm/store.py", "def f():\n    global count\n    count = 1"),
    ],
)
def test_a_bad_habit_is_found(path: str, text: str) -> None:
    """Each habit is found by itself."""
    assert len(bad_habits([source(path, text)])) == 1


def test_everything_public_has_a_docstring(rooms: list[Source]) -> None:
    """A reader learns the rule, the units and the errors where the name stands."""
    assert_none([breach for file in rooms for breach in without_docstring(file)])


def test_what_is_silent_is_found() -> None:
    """Module, class, method and function count; private ones, overloads, setters and what is inside a function do not."""
    text = """
class Public:
    def method(self): pass
    def _own(self): pass
    @property
    def size(self): "Bytes."
    @size.setter
    def size(self, value): pass
class _Private:
    def method(self): pass
async def function():
    def inner(): pass
    class Inner:
        def method(self): pass
@typing.overload
def function_of(x: int): ...
"""
    found = without_docstring(source("dedup/smm/store.py", text))
    assert found == [
        "dedup/smm/store.py",
        "dedup/smm/store.py:2 Public",
        "dedup/smm/store.py:3 Public.method",
        "dedup/smm/store.py:11 function",
    ]


def test_help_waits_for_no_heavy_library() -> None:
    """`--help` answers at once: it imports no HTTP, store, array or log library, and no host of the Frontier."""
    assert modules_imported_by("-m", "anabranch", "--help") & (HEAVY | HOSTS) == set()


def test_the_frontier_knows_its_hosts_in_their_adapters_only() -> None:
    """A program that embeds it elsewhere, inspects a host's job or lists the adapters needs no host installed."""
    others = "import anabranch.frontier.hosts.embedding.job, anabranch.frontier.hosts, anabranch.crawler.job.inspection"
    assert modules_imported_by("-c", others) & HOSTS == set()
    assert "scrapy" in modules_imported_by("-c", "import anabranch.frontier.hosts.scrapy")


def test_a_heavy_library_is_seen_when_it_is_imported() -> None:
    """The measure sees imports of imports too."""
    assert {"json", "json.decoder"} <= modules_imported_by("-c", "import json")


# The picture

#: The page with the picture of rooms and floors.
PAGE = CLONE / "docs" / "explanation" / "architecture.md"


def drawn() -> set[tuple[str, str]]:
    """The arrows of the picture."""
    picture = PAGE.read_text().partition("```mermaid\n")[2].partition("```")[0]
    return set(re.findall(r"^ *(\w+) --> (\w+)$", picture, re.MULTILINE))


def place(path: str) -> str:
    """Where a file is in the picture: a folder of the crawler, a file beside these, or another room."""
    room, _, rest = path.partition("/")
    return rest.partition("/")[0].removesuffix(".py") if room == "crawler" else room


def drawn_imports(rooms: list[Source]) -> dict[str, set[str]]:
    """Each place, and the places that it imports."""
    files = [file for file in rooms if file.path != "crawler/__init__.py"]
    modules = {file.module: file.path for file in files}
    graph: dict[str, set[str]] = {}
    for file in files:
        for module, _ in run_time_imports(file.tree, modules):
            here, there = place(file.path), place(modules[module])
            graph.setdefault(here, set()).update({there} - {here})
            graph.setdefault(there, set())
    return graph


def below(graph: dict[str, set[str]], start: str) -> set[str]:
    """All places that one leads to."""
    found, waiting = set[str](), [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_the_arrows_are_the_imports_without_those_that_follow_from_others(rooms: list[Source]) -> None:
    """None is missing, none is made up, and none leads up."""
    graph = drawn_imports(rooms)
    reached = {here: below(graph, here) for here in graph}
    assert not [here for here in graph if here in reached[here]], "these import each other"
    least = {
        (here, there)
        for here, places in graph.items()
        for there in places
        if not any(there in reached[other] for other in places)
    }
    assert drawn() == least


def test_each_folder_of_the_crawler_has_its_line() -> None:
    """The table names every folder, and the files beside them."""
    table = PAGE.read_text().partition("| folder of `crawler` |")[2].partition("\n\n")[0]
    named = {name.removesuffix(".py") for name in re.findall(r"`([\w.]+)`", table)}
    there = {entry.parent.name for entry in (CLONE / "crawler").glob("*/__init__.py")}
    assert named >= there | {entry.stem for entry in (CLONE / "crawler").glob("[!_]*.py")}
