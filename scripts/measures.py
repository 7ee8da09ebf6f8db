"""Measures the source tree: number and length of files, imports, and assignments to foreign attributes.

`python scripts/measures.py [CLONE]` prints the table. `tests/test_architecture.py` holds the goals.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from scripts.budgets import ROOMS, Source, blocks, measure, sources, walk

#: Files that are short on purpose: a Protocol, errors, a table of constants, or a door. They are left out of the median.
SEAMS: frozenset[str] = frozenset()


def table(root: Path) -> list[tuple[str, str]]:
    """Each measure of the clone at `root`, and its value as text. Reads every file."""
    files = sources(root)
    in_cycles = sum(map(len, folder_cycles(files)))
    in_room, in_house = repeated_classes(files)
    lines, methods, name = biggest_class(files)
    return [
        ("product files", f"{len(files)}"),
        ("median lines of modules", f"{median_lines(files):.0f}"),
        ("folders in an import cycle", f"{in_cycles}"),
        ("class names defined twice in a room / in the house", f"{len(in_room)} / {len(in_house)}"),
        ("product lines without lab", f"{sum(size(file) for file in files if '/lab/' not in file.path):,}"),
        ("assignments to attributes of other objects", f"{sum(len(foreign_assignments(file)) for file in files)}"),
        ("longest class", f"{lines} lines, {methods} public methods at most ({name})"),
    ]


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


def run_time_imports(tree: ast.AST, modules: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The modules among these that a file imports, lazily too, except for types only."""
    for node in blocks(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
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
            yield from run_time_imports(node, modules)


def folder_cycles(files: Sequence[Source]) -> list[set[str]]:
    """The groups of layers of one room that import each other, directly or indirectly."""
    return cycles({here: set(there) for here, there in folder_graph(files).items()})


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
    for what, value in table(root):
        print(f"{what:<52} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
