"""Measures the source tree: number and length of files, imports, and assignments to foreign attributes.

`python scripts/measures.py [CLONE]` prints the table. `tests/test_architecture.py` holds the goals.
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.budgets import ROOMS, Source, blocks, definitions, measure, sources, walk

#: Files that are short on purpose: a Protocol, errors, a table of constants, or a door. They are left out of the median.
SEAMS: frozenset[str] = frozenset()


class Line(NamedTuple):
    """One measure."""

    what: str
    value: str
    goal: str = ""  #: empty: none
    how: str = ""  #: how it is counted


def table(root: Path) -> list[Line]:
    """The measures of the clone at `root`. Reads every file, and runs two commands."""
    files = sources(root)
    in_cycles = sum(map(len, folder_cycles(files)))
    in_room, in_house = repeated_classes(files)
    lines, methods, name = biggest_class(files)
    whole, without_lab = (sum(map(size, kept)) for kept in (files, [file for file in files if not _is_lab(file)]))
    clients = [file for file in files if file.path.startswith("crawler/console/")]
    calls, called = command_to_controller(root)
    touched, cpu_s = status_of_stopped(root)
    counts = ", ".join(f"{concept} {len(found)}" for concept, found in concepts(files).items())
    return [
        Line("product files", f"{len(files)}"),
        Line("median lines of modules", f"{median_lines(files):.0f}"),
        Line("folders in an import cycle", f"{in_cycles}", "0"),
        Line("import circles", f"{len(circles(files))}", "0", "modules; lazy imports and those for types, too"),
        Line(
            "places that make a Row by position / unpackings",
            f"{sum(made[0] == 'Row' for file in files for made in row_makers(file))} / {len(unpackings(files))}",
            "1 / 8",
            "without `row_of`, which reads the table's columns; six names or more at once, without lab",
        ),
        Line("class names defined twice in a room / in the house", f"{len(in_room)} / {len(in_house)}", "0 / 5"),
        Line("assignments to attributes of other objects", f"{sum(len(foreign_assignments(file)) for file in files)}"),
        Line("longest class", f"{lines} lines, {methods} public methods at most ({name})"),
        Line("product lines, with lab / without", f"{whole:,} / {without_lab:,}", "66,500 / 58,500 and what was added"),
        Line("classes of a concept", counts, "1 each", "classes that hold it: `CONCEPTS`"),
        Line(
            "checks of a job's kind outside crawler/job",
            f"{len(kind_checks(files))}",
            "0",
            "isinstance of a class that ends in Job or JobFolder, but for the error NoSuchJob",
        ),
        Line(
            "classes with 3 callables or more in the constructor",
            f"{len(many_callables(files))}",
            "1",
            "parameters and fields annotated with Callable or a name for one",
        ),
        Line("functions that do nothing", f"{len(dummy_lambdas(files))}", "10", "lambdas with a constant for a body"),
        Line(
            "frontier modules that crawler imports",
            f"{len(imported_modules(files, 'crawler/', 'anabranch.frontier'))}",
            "12",
            "without lab; lazily and for types, too",
        ),
        Line(
            "imports of console from frontier / from run",
            f"{statements_into(clients, 'anabranch.frontier')} / {statements_into(clients, 'anabranch.crawler.run')}",
            "3 / 0",
            "import statements, lazy ones and those for types, too",
        ),
        Line(
            "calls / files from the command to the controller",
            f"{calls} / {called}",
            "150 / 20",
            "our functions from `main` to `CrawlController.run`, one seed, by sys.setprofile, without imports",
        ),
        Line(
            "status of a stopped job: modules of ours / CPU",
            f"{touched} / {cpu_s:.2f} s",
            "40 / 0.5 s",
            "of a job of one URL; of the whole process",
        ),
        Line("elliptic docstrings", f"{elliptic_docstrings(root)}", "60", "product, tests and scripts: `ELLIPTIC`"),
    ]


def _is_lab(file: Source) -> bool:
    return file.path.startswith("crawler/lab/")


#: The classes that hold a concept of a job. One each is the goal.
CONCEPTS: Mapping[str, Sequence[str]] = {
    "seeds": ("Seeds", "SeedBook", "SeedTable"),
    "totals": ("Accounts", "AccountsDatabase"),
    "limits": ("PageTickets", "PageLimit", "WorkerTickets"),
    "requests": ("Responder", "Command"),
    "job": ("Job", "FolderJob", "EmbeddedFolderJob", "DatabaseJob"),
}
#: How a docstring begins that is no sentence.
ELLIPTIC = re.compile(r"^(Of|Who|Whose|What|Where|The same|As)\b")


def concepts(files: Iterable[Source]) -> dict[str, list[str]]:
    """Each concept of `CONCEPTS`, and those of its classes that there are."""
    names = {node.name for file in files for node in file.tree.body if isinstance(node, ast.ClassDef)}
    return {concept: [name for name in listed if name in names] for concept, listed in CONCEPTS.items()}


def kind_checks(files: Iterable[Source]) -> list[str]:
    """Where clients ask for the kind of a job."""
    found = []
    for file in files:
        if file.path.startswith("crawler/job/"):
            continue
        for node in walk(file.tree):
            is_check = isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
            if is_check and re.search(r"(?<!NoSuch)Job(Folder)?\b", ast.unparse(node.args[1])):
                found.append(f"{file.path}:{node.lineno}")
    return found


def many_callables(files: Sequence[Source]) -> list[str]:
    """The classes whose constructor takes three callables or more."""
    names = {"Callable"} | {
        node.targets[0].id
        for file in files
        for node in file.tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and ast.unparse(node.value).startswith("Callable[")
    }
    is_callable = re.compile(rf"(^|[\[| ])({'|'.join(sorted(names))})\b")
    found = []
    for file in files:
        for node in walk(file.tree):
            if isinstance(node, ast.ClassDef):
                taken = [text for text in _taken(node) if is_callable.search(text)]
                if len(taken) >= 3:
                    found.append(f"{file.path}:{node.name}")
    return found


def _taken(made: ast.ClassDef) -> Iterator[str]:
    """The annotations of what a class is constructed with: fields of a dataclass or named tuple, or parameters."""
    is_record = any("dataclass" in ast.unparse(one) for one in made.decorator_list) or "NamedTuple" in map(
        ast.unparse, made.bases
    )
    for node in made.body:
        if is_record and isinstance(node, ast.AnnAssign):
            yield ast.unparse(node.annotation)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            listed = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            yield from (ast.unparse(one.annotation) for one in listed if one.annotation is not None)


def dummy_lambdas(files: Iterable[Source]) -> list[str]:
    """Lambdas that return a constant: a callable that somebody must give and nobody needs."""
    return [
        f"{file.path}:{node.lineno}"
        for file in files
        for node in walk(file.tree)
        if isinstance(node, ast.Lambda) and isinstance(node.body, ast.Constant)
    ]


def imported_modules(files: Sequence[Source], folder_of: str, room: str) -> set[str]:
    """The modules of a room that the files below a folder import, but those of lab."""
    modules = {file.module for file in sources(Path(__file__).resolve().parent.parent)}
    found = set()
    for file in files:
        if file.path.startswith(folder_of) and not _is_lab(file):
            for node in walk(file.tree):
                if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(room):
                    for alias in node.names:
                        inside = f"{node.module}.{alias.name}"
                        found.add(inside if inside in modules else node.module)
    return found


def statements_into(files: Iterable[Source], package: str) -> int:
    """The import statements of these files that name the package."""
    return sum(
        isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package)
        for file in files
        for node in walk(file.tree)
    )


def elliptic_docstrings(root: Path) -> int:
    """Docstrings that begin with a word of `ELLIPTIC`."""
    count = 0
    for folder_name in (*ROOMS, "tests", "scripts"):
        for path in (root / folder_name).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    count += bool(ELLIPTIC.match(ast.get_docstring(node) or ""))
    return count


#: Counts calls of our functions, without those that import, until the controller runs, which then ends the process.
_COUNTED = """
import sys
import anabranch.crawler.run.controller as controller
from anabranch.crawler.cli import main

files, calls = set(), 0

def count(frame, event, argument):
    global calls
    code = frame.f_code
    is_ours = "/anabranch/" in code.co_filename and "site-packages" not in code.co_filename
    if event == "call" and is_ours and not code.co_name.startswith("<"):
        above, importing = frame.f_back, False
        while above is not None:
            importing = importing or above.f_code.co_filename.startswith("<frozen importlib")
            above = above.f_back
        if not importing:
            calls += 1
            files.add(code.co_filename)

async def end(self):
    sys.setprofile(None)
    print(calls, len(files))
    raise SystemExit

controller.CrawlController.run = end
sys.argv = ["anabranch", "crawl", "http://127.0.0.1:9/", "--job", sys.argv[1]]
sys.setprofile(count)
main()
"""
_CREATED = """
import sys
from anabranch.crawler.cli import main

sys.argv = ["anabranch", "create", "http://a.test/", "--job", sys.argv[1]]
main()
"""
_TOUCHED = """
import atexit, sys, time

def end():
    ours = [name for name, module in sys.modules.items() if name.startswith("anabranch") and getattr(module, "__file__", "")]
    print("\\n", len(ours), time.process_time())

atexit.register(end)
sys.argv = ["anabranch", "status", sys.argv[1]]
from anabranch.crawler.cli import main
main()
"""


def command_to_controller(root: Path) -> tuple[int, int]:
    """How many calls of ours, in how many files, a crawl makes before its controller runs."""
    with tempfile.TemporaryDirectory() as folder:
        calls, called = _last_line(root, _COUNTED, f"{folder}/job").split()
    return int(calls), int(called)


def status_of_stopped(root: Path) -> tuple[int, float]:
    """How many modules of ours the status of a stopped job imports, and the CPU seconds of its process."""
    with tempfile.TemporaryDirectory() as folder:
        _last_line(root, _CREATED, f"{folder}/job")
        touched, cpu_s = _last_line(root, _TOUCHED, f"{folder}/job").split()
    return int(touched), float(cpu_s)


def _last_line(root: Path, program: str, argument: str) -> str:
    """The last line that a program prints, run in the clone."""
    command = [sys.executable, "-c", program, argument]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return ran.stdout.strip().rpartition("\n")[2]


def size(file: Source) -> int:
    """The number of lines of a file."""
    return len(file.text.splitlines())


def median_lines(files: Iterable[Source]) -> float:
    """The median of the modules without seams and `__init__.py`."""
    return statistics.median(
        size(file) for file in files if not file.path.endswith("__init__.py") and file.path not in SEAMS
    )


def folder(path: str) -> str:
    """The layer of a file: its folder, or the file itself if it lies directly in the room."""
    return path.rpartition("/")[0] if path.count("/") > 1 else path


def folder_graph(files: Sequence[Source]) -> dict[str, dict[str, set[str]]]:
    """Layer -> the layers of its room that it imports when it runs, and the lines that do; imports in functions count."""
    modules = {file.module: file.path for file in files}
    graph: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for file in files:
        here = folder(file.path)
        for module, line in run_time_imports(file.tree, modules):
            there = folder(modules[module])
            if there != here and there.split("/")[0] == here.split("/")[0]:
                graph[here][there].add(f"{file.path}:{line} imports {module}")
    return graph


def run_time_imports(tree: ast.AST, modules: Iterable[str], *, for_types: bool = False) -> Iterator[tuple[str, int]]:
    """The modules among these that a file imports, lazily too; those for types only with `for_types`."""
    for node in blocks(tree):
        if not for_types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inside = f"{node.module}.{alias.name}"
                module = inside if inside in modules else node.module
                if module in modules and module is not None:
                    yield module, node.lineno
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names if alias.name in modules)
        else:
            yield from run_time_imports(node, modules, for_types=for_types)


def folder_cycles(files: Sequence[Source]) -> list[set[str]]:
    """The groups of layers of one room that import each other, directly or indirectly."""
    return cycles({here: set(there) for here, there in folder_graph(files).items()})


def circles(files: Sequence[Source]) -> list[set[str]]:
    """The groups of modules that import each other, directly or indirectly, in whatever way: lazily or for types, too."""
    modules = {file.module for file in files}
    return cycles(
        {
            file.module: {module for module, _ in run_time_imports(file.tree, modules, for_types=True)} - {file.module}
            for file in files
        }
    )


def cycles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """The groups of nodes each of which reaches every other of its group (strongly connected components with an edge)."""
    reached = {here: _reachable(graph, here) for here in graph}
    groups: list[set[str]] = []
    for here in sorted(graph):
        group = {other for other in reached[here] if here in reached.get(other, ())}
        if group and group not in groups:
            groups.append(group)
    return groups


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        there = waiting.pop()
        if there not in found:
            found.add(there)
            waiting.extend(graph.get(there, ()))
    return found


def unpackings(files: Iterable[Source], names: int = 6) -> list[str]:
    """Where at least so many names are given values at once, without lab: in assignments, loops, comprehensions, nested too."""
    return [
        f"{file.path}:{node.lineno} {ast.unparse(node)}"
        for file in files
        if not _is_lab(file)
        for node in walk(file.tree)
        if isinstance(node, ast.Tuple | ast.List) and isinstance(node.ctx, ast.Store) and len(node.elts) >= names
    ]


def row_makers(file: Source) -> set[tuple[str, str, str]]:
    """Where the file makes a `Row` of the Frontier by position: (constructor, file, function or name)."""
    if not re.search(r"anabranch\.frontier\.records import (\([^)]*|.*)\bRow\b", file.text):
        return set()
    places = [(name, node) for name, node in definitions(file.tree) if not isinstance(node, ast.ClassDef)]
    found = {(made, file.path, name) for name, place in places for made in _positional_rows(place)}
    for node in file.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            found |= {(made, file.path, ast.unparse(target)) for made in _positional_rows(node)}
    return found


def _positional_rows(place: ast.AST) -> Iterator[str]:
    """What of `Row` takes its columns by position below a node: `Row(…)` with a positional argument, or `Row._make`."""
    for node in walk(place):
        match node:
            case ast.Call(func=ast.Name(id="Row"), args=[_, *_]):
                yield "Row"
            case ast.Attribute(value=ast.Name(id="Row"), attr="_make"):
                yield "Row._make"


def repeated_classes(files: Iterable[Source]) -> tuple[list[str], list[str]]:
    """Names of public classes defined twice in a room, and in the whole tree."""
    rooms: dict[str, Counter[str]] = {room: Counter() for room in ROOMS}
    for file in files:
        names = [node.name for node in file.tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]
        rooms[file.path.split("/")[0]].update(names)
    house = sum(rooms.values(), Counter[str]())
    in_room = sorted({name for counted in rooms.values() for name, count in counted.items() if count > 1})
    return in_room, sorted(name for name, count in house.items() if count > 1)


def foreign_assignments(file: Source) -> list[str]:
    """Find assignments to another object's attributes: a target that is not `self.x`, setattr, `object.__setattr__`."""
    found = []
    for node in walk(file.tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [
                f"{file.path}:{node.lineno} {ast.unparse(target)}"
                for target in _flat(targets)
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) not in ("self", "cls")
            ]
        elif isinstance(node, ast.Call) and re.fullmatch(r"setattr|object\.__setattr__", ast.unparse(node.func)):
            found.append(f"{file.path}:{node.lineno} {ast.unparse(node)}")
    return found


def _flat(targets: Iterable[ast.expr]) -> Iterator[ast.expr]:
    for target in targets:
        if isinstance(target, ast.Tuple | ast.List):
            yield from _flat(target.elts)
        else:
            yield target


def biggest_class(files: Iterable[Source]) -> tuple[int, int, str]:
    """Lines of the longest class and most public methods of one, and the name of the longest."""
    classes = [what for file in files for what in measure(file) if what.kind == "class"]
    longest = max(classes, key=lambda what: what.sizes["lines"])
    return longest.sizes["lines"], max(what.sizes["methods"] for what in classes), longest.place


def main(arguments: Sequence[str]) -> int:
    """Print the table of the clone at `arguments[0]` (default: this one)."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    for line in table(root):
        goal = f"  (goal {line.goal})" if line.goal else ""
        how = f"  [{line.how}]" if line.how else ""
        print(f"{line.what:<52} {line.value}{goal}{how}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
