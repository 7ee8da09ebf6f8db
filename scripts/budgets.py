"""Measures the rooms against the project's budgets: lines, public methods, parameters, cyclomatic complexity.

`python scripts/budgets.py [FOLDER]` prints the two largest files and the longest function of each room, and everything that
exceeds a limit; it exits 1 if anything does. `tests/test_architecture.py` asks the same questions.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

#: The rooms, in the order of their arrows: a room may import the next one. They are imported as `anabranch.ROOM`.
ROOMS = ("crawler", "frontier", "dedup")

#: kind -> measure -> limit; a value equal to the limit is within it.
LIMITS = {
    "function": {"lines": 60, "parameters": 7, "complexity": 12},
    "class": {"lines": 500, "methods": 25},
    "module": {"lines": 700},
}

#: (kind, measure, start of "file:name") without a limit, with the reason.
EXEMPT = (
    ("function", "parameters", "crawler/cli/"),  # a command's parameters are its options; typer reads them there
)

DECISIONS = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler)
Function = ast.FunctionDef | ast.AsyncFunctionDef
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One Python file of a room."""

    path: str  #: relative to the clone, with slashes
    text: str
    tree: ast.Module

    @property
    def module(self) -> str:
        """The dotted name under which the file is imported."""
        return "anabranch." + self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One function, class or module and its sizes."""

    kind: str  #: function, class or module
    place: str  #: file:name, or the file for a module
    line: int  #: where it begins, from 1
    sizes: dict[str, int]  #: measure -> value


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """A measure above its limit."""

    what: Measured
    measure: str
    limit: int

    def __str__(self) -> str:
        """`frontier/frontier.py:Frontier.open line 40: 61 lines (limit 50)`."""
        what = self.what
        return f"{what.place} line {what.line}: {what.sizes[self.measure]} {self.measure} (limit {self.limit})"


def sources(root: Path, rooms: Sequence[str] = ROOMS) -> list[Source]:
    """All Python files of the rooms under `root`, sorted by path. Raises: SyntaxError."""
    files = sorted(file for room in rooms for file in (root / room).rglob("*.py"))
    return [source(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")) for file in files]


def source(path: str, text: str) -> Source:
    """The file `path` with this text. Raises: SyntaxError."""
    return Source(path=path, text=text, tree=ast.parse(text, path))


def measure(file: Source) -> list[Measured]:
    """The module itself, then its classes and functions, nested ones too."""
    found = [Measured(kind="module", place=file.path, line=1, sizes={"lines": len(file.text.splitlines())})]
    for name, node in definitions(file.tree):
        place = f"{file.path}:{name}"
        if isinstance(node, ast.ClassDef):
            sizes = {"lines": _span(node, node), "methods": len(set(_public_methods(node)))}
            found.append(Measured(kind="class", place=place, line=node.lineno, sizes=sizes))
        else:
            sizes = {
                "lines": _body_lines(node),
                "parameters": _parameters(node),
                "complexity": complexity(node),
            }
            found.append(Measured(kind="function", place=place, line=node.lineno, sizes=sizes))
    return found


def blocks(node: ast.AST) -> Iterator[ast.AST]:
    """The statements right below a module or statement, with its handlers and cases; not the expressions, which are most."""
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        yield from getattr(node, name, ())


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield child nodes as `ast.iter_child_nodes` does, without Load, Store and Del, in a third of its time."""
    for value in vars(node).values():
        if isinstance(value, list):
            yield from (item for item in value if isinstance(item, ast.AST))
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            yield value


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all nodes below it, without Load, Store and Del, in no particular order."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(children(node))


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Every class and function below `tree` with its dotted name, outer ones first."""
    for node in blocks(tree):
        if isinstance(node, DEFINITIONS):
            yield prefix + node.name, node
            yield from definitions(node, f"{prefix}{node.name}.")
        else:
            yield from definitions(node, prefix)


def complexity(function: Function) -> int:
    """Cyclomatic complexity: 1 + branches, loops, handlers, and/or, cases, comprehension parts; nested functions aside."""
    return 1 + sum(_decisions(node) for node in _own_nodes(function))


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if not isinstance(node, DEFINITIONS):
            yield node
            waiting.extend(children(node))


def _decisions(node: ast.AST) -> int:
    match node:
        case ast.BoolOp():
            return len(node.values) - 1
        case ast.comprehension():
            return 1 + len(node.ifs)
        case ast.match_case(pattern=ast.MatchAs(pattern=None), guard=None):  # takes all, like else
            return 0
        case ast.match_case():
            return 1
    return int(isinstance(node, DECISIONS))


def _body_lines(function: Function) -> int:
    """The lines of the body without the docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return _span(body[0], function) if body else 0


def _span(first: ast.stmt, last: ast.stmt) -> int:
    begin = first.lineno
    if isinstance(first, DEFINITIONS) and first.decorator_list:
        begin = first.decorator_list[0].lineno
    return (last.end_lineno or begin) - begin + 1


def _parameters(function: Function) -> int:
    """All parameters but self and cls; `*args` and `**kwargs` are one each."""
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    own = named[:1] and named[0].arg in ("self", "cls")
    return len(named) - bool(own) + bool(given.vararg) + bool(given.kwarg)


def _public_methods(node: ast.ClassDef) -> Iterator[str]:
    """Names of the public methods; a property and its setter, or overloads, have one name."""
    for method in node.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_"):
            yield method.name


def excesses(measured: Iterable[Measured]) -> list[Excess]:
    """All measures above their limits, except exempt ones."""
    return [
        Excess(what=what, measure=name, limit=limit)
        for what in measured
        for name, limit in LIMITS[what.kind].items()
        if what.sizes[name] > limit and not _is_exempt(what, name)
    ]


def _is_exempt(what: Measured, name: str) -> bool:
    return any(
        (what.kind, name) == (kind, measure_name)
        and (what.place == place or (place[-1:] == "/" and what.place.startswith(place)))
        for kind, measure_name, place in EXEMPT
    )


def summary(room: str, measured: Sequence[Measured]) -> list[str]:
    """The room's two largest files and its longest function, one line each."""
    own = [what for what in measured if what.place.startswith(f"{room}/")]
    files = _largest(own, "module", 2)
    functions = _largest(own, "function", 1)
    return [
        f"{room}: {sum(w.kind == 'module' for w in own)} files, {sum(w.kind == 'function' for w in own)} functions"
    ] + [
        f"  {kind} {what.place}: {what.sizes['lines']} lines"
        for kind, chosen in (("file", files), ("function", functions))
        for what in chosen
    ]


def _largest(measured: Iterable[Measured], kind: str, count: int) -> list[Measured]:
    chosen = [what for what in measured if what.kind == kind]
    return sorted(chosen, key=lambda what: (-what.sizes["lines"], what.place))[:count]


def main(arguments: Sequence[str]) -> int:
    """Print the report on the clone at `arguments[0]` (default: this one); 1 if a budget is broken."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    measured = [what for file in sources(root) for what in measure(file)]
    for room in ROOMS:
        print(*summary(room, measured), sep="\n")
    broken = excesses(measured)
    if broken:
        print("broken:", *(f"  {excess}" for excess in broken), sep="\n")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
