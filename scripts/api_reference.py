"""Writes docs/reference/api.md from the public names of `anabranch`: signatures, docstrings, `#:` comments of attributes.

`python scripts/api_reference.py` writes the page; with `--check` it only exits 1 if the page is out of date.
`tests/test_api_reference.py` checks the same.
"""

from __future__ import annotations

import ast
import inspect
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import anabranch

CLONE = Path(__file__).resolve().parent.parent
PAGE = CLONE / "docs" / "reference" / "api.md"
COMMAND = "python scripts/api_reference.py"

#: Room -> the heading of its names.
ROOMS = {"crawler": "Crawls", "frontier": "The Frontier", "dedup": "Filters of URLs"}
#: Members by which the crawler uses a public class itself.
_OURS = {
    "Crawl": {"__init__", "take"},
    "CrawlOrder": {"model_config", "settings_customise_sources"},
    "Page": {"done"},
    "Visit": {
        "received",
        "recalled",
        "postponed",
        "foresee",
        "foreseen",
        "failed",
        "broke",
        "decide",
        "extracted",
        "edited",
        "lose",
        "archive",
        "archived_at",
    }
    | {"discover", "take_discovered", "close", "decision", "lost", "exchange", "place", "discovered", "worker"},
    "UniqFilter": {"count_known"},
    "UniqParameters": {"format"},
}
#: A signature longer than this has a line for each parameter.
_MOST_CHARS = 100

INTRODUCTION = f"""# Python API

The public names of `anabranch`. [Crawling from a Python program](../how-to/program.md), [plug-ins](../how-to/plugins.md) and
[embedding the Frontier](../how-to/embed.md) show them at work. This page is made of the docstrings by
`{COMMAND}`.
"""
#: Kinds of names, in the order of the page.
_FUNCTION, _CLASS, _TYPE, _ERROR = range(4)

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef | ast.Assign | ast.AnnAssign


class Source(NamedTuple):
    """A module of the rooms."""

    tree: ast.Module
    comments: dict[int, str]  #: line -> the text of its `#:` comment
    alone: frozenset[int]  #: lines with nothing but such a comment


class Entry(NamedTuple):
    """A public name and its definition."""

    name: str
    room: str
    kind: int
    node: Definition
    source: Source


def page() -> str:
    """The whole page."""
    entries = [entry_of(name) for name in anabranch.__all__]
    ordered = sorted(entries, key=lambda entry: (list(ROOMS).index(entry.room), entry.kind, entry.name))
    seen: Counter[str] = Counter()
    anchors = {}
    for entry in ordered:
        anchor = entry.name.lower()
        anchors[entry.name] = f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor  # as GitHub numbers them
        seen[anchor] += 1
    parts = [INTRODUCTION]
    for room, heading in ROOMS.items():
        here = [entry for entry in ordered if entry.room == room]
        links = " · ".join(f"[{entry.name}](#{anchors[entry.name]})" for entry in here)
        parts.append(f"\n## {heading}\n\n{links}\n")
        for entry in here:
            numbered = anchors[entry.name] != entry.name.lower()  # the site's builder numbers them otherwise
            parts += [f'\n<a id="{anchors[entry.name]}"></a>\n' if numbered else "", text_of(entry)]
    return "".join(parts)


def entry_of(name: str) -> Entry:
    """The definition behind a public name."""
    public = getattr(anabranch, name)
    kind = _FUNCTION if inspect.isfunction(public) else _CLASS if inspect.isclass(public) else _TYPE
    if kind == _CLASS and issubclass(public, Exception):
        kind = _ERROR
    node, source, room = found(CLONE / "anabranch" / "__init__.py", name)
    return Entry(name, room, kind, node, source)


def found(file: Path, name: str) -> tuple[Definition, Source, str]:
    """The definition of a name that a file defines, or imports from a module of ours, and its room."""
    text = file.read_text(encoding="utf-8")
    source = Source(ast.parse(text), *comments_of(text))
    for node in ast.walk(source.tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and name in {alias.asname or alias.name for alias in node.names}
        ):
            path = CLONE / node.module.removeprefix("anabranch.").replace(".", "/")
            return found(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"), name)
    for node in source.tree.body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        if getattr(node, "name", None) == name or name in {getattr(target, "id", None) for target in targets}:
            assert isinstance(node, Definition)
            return node, source, file.relative_to(CLONE).parts[0]
    raise LookupError(f"{file} has no {name}")


def comments_of(text: str) -> tuple[dict[int, str], frozenset[int]]:
    """The `#:` comments by their lines, and the lines that have nothing else."""
    comments, alone = {}, set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.string.startswith("#:"):
            comments[token.start[0]] = token.string[2:].strip()
            if not token.line[: token.start[1]].strip():
                alone.add(token.start[0])
    return comments, frozenset(alone)


def comment_of(node: ast.stmt, source: Source) -> str:
    """The `#:` comment on the lines of a statement, or on those above it."""
    behind = [text for line, text in source.comments.items() if node.lineno <= line <= (node.end_lineno or 0)]
    above: list[str] = []
    line = node.lineno - 1
    while line in source.alone:
        above.insert(0, source.comments[line])
        line -= 1
    return " ".join(behind or above)


def text_of(entry: Entry) -> str:
    """The part of the page about one name."""
    node = entry.node
    if isinstance(node, Function):
        head, body = signature(node), [inspect.cleandoc(ast.get_docstring(node) or "")]
    elif isinstance(node, ast.ClassDef):
        inside = () if entry.kind == _ERROR else members(node, entry.source)
        head, body = class_head(node), [ast.get_docstring(node) or "", *inside]
    else:
        assert node.value is not None
        head, body = f"{entry.name} = {ast.unparse(node.value)}", [comment_of(node, entry.source)]
    return f"\n### `{entry.name}`\n\n```python\n{head}\n```\n\n" + "\n\n".join(filter(None, body)) + "\n"


def class_head(node: ast.ClassDef) -> str:
    """`class Name(Base)`, with the parameters of a constructor that has a docstring."""
    bases = ", ".join(map(ast.unparse, node.bases))
    return f"class {node.name}({bases})" if bases else f"class {node.name}"


def members(node: ast.ClassDef, source: Source) -> Iterator[str]:
    """The attributes of a class as one list, then each public method."""
    lines = [f"- `{name}`{f': {comment}' if comment else ''}" for name, comment in attributes(node, source)]
    yield "\n".join(lines)
    for method in node.body:
        if isinstance(method, Function) and (text := ast.get_docstring(method)) and not is_property(method):
            is_constructor = method.name == "__init__"
            if is_public(node, method.name) or (is_constructor and method.name not in _OURS.get(node.name, ())):
                yield f"```python\n{signature(method, node.name)}\n```\n\n{text}"


def attributes(node: ast.ClassDef, source: Source) -> Iterator[tuple[str, str]]:
    """Each public attribute, with its type, and what is said about it: fields, those that `__init__` sets, properties."""
    for child in [*node.body, *set_by_constructor(node)]:
        if isinstance(child, ast.AnnAssign | ast.Assign):
            target = child.target if isinstance(child, ast.AnnAssign) else child.targets[0]
            name, comment = getattr(target, "attr", getattr(target, "id", "")), comment_of(child, source)
            kind = child.annotation if isinstance(child, ast.AnnAssign) else None
        elif isinstance(child, ast.FunctionDef) and is_property(child):
            name, comment, kind = child.name, (ast.get_docstring(child) or "").partition("\n\n")[0], child.returns
        else:
            continue
        if is_public(node, name):
            yield name + ("" if kind is None else f": {ast.unparse(kind)}"), " ".join(comment.split())


def set_by_constructor(node: ast.ClassDef) -> list[ast.AnnAssign]:
    """The statements of `__init__` that set an attribute and name its type."""
    constructors = [child for child in node.body if isinstance(child, ast.FunctionDef) and child.name == "__init__"]
    return [
        statement
        for constructor in constructors
        for statement in constructor.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Attribute)
    ]


def is_public(node: ast.ClassDef, name: str) -> bool:
    """It is for those who use the class."""
    return not name.startswith("_") and name not in _OURS.get(node.name, ())


def is_property(node: Function) -> bool:
    """It is read without a call."""
    return any(ast.unparse(mark) in {"property", "cached_property"} for mark in node.decorator_list)


def signature(node: Function, owner: str = "") -> str:
    """The signature of a function, or of a method of the class `owner`, as it is called."""
    parameters = list(_parameters(node))
    is_of_class = any(ast.unparse(mark) in {"classmethod", "staticmethod"} for mark in node.decorator_list)
    name = owner if node.name == "__init__" else f"{owner}.{node.name}" if is_of_class else node.name
    answer = "" if node.returns is None or name == owner else f" -> {ast.unparse(node.returns)}"
    start = f"{'await ' if isinstance(node, ast.AsyncFunctionDef) else ''}{name}("
    line = f"{start}{', '.join(parameters)}){answer}"
    if len(line) <= _MOST_CHARS:
        return line
    return "\n".join([start, *(f"    {parameter}," for parameter in parameters), f"){answer}"])


def _parameters(node: Function) -> Iterator[str]:
    """Yield the parameters as the source writes them, `self` and `cls` left out."""
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + given.defaults
    for argument, default in zip(plain, defaults, strict=True):
        if argument.arg not in {"self", "cls"}:
            yield _parameter(argument, default)
    if given.vararg:
        yield f"*{_parameter(given.vararg, None)}"
    elif given.kwonlyargs:
        yield "*"
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _parameter(argument, default)
    if given.kwarg:
        yield f"**{_parameter(given.kwarg, None)}"


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    kind = "" if argument.annotation is None else f": {ast.unparse(argument.annotation)}"
    equals = "" if default is None else f" = {ast.unparse(default)}" if kind else f"={ast.unparse(default)}"
    return f"{argument.arg}{kind}{equals}"


def main(arguments: Sequence[str]) -> int:
    """Write the page, or check it. Returns the exit status."""
    text = page()
    if "--check" not in arguments:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE.relative_to(CLONE)} is out of date; run `{COMMAND}`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
