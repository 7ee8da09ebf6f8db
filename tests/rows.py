"""`@each_row`: a test of a pure function for many rows, as one test."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from itertools import zip_longest
from typing import Any

import pytest

Test = Callable[..., None]
_Row = type(pytest.param())


def each_row(
    names: str | Iterable[str], rows: Iterable[Any], *, ids: Callable[[Any], object] | Iterable[object] | None = None
) -> Callable[[Test], Test]:
    """Run a test with every row, as one test; all rows that fail are reported, each with its id or its values.

    Takes what `pytest.mark.parametrize` takes, and may stand above another `each_row`. For functions without fixtures: a row
    costs microseconds, a test of its own costs 2 ms and is collected by every test process.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    named = [] if ids is None or callable(ids) else [*ids]
    table: list[tuple[Mapping[str, Any], object]] = []  # the arguments of each row, and what it is called
    for row, name in zip_longest(rows, named):
        if isinstance(row, _Row):
            values, label = row.values, row.id or name
        else:
            values, label = (row if len(keys) > 1 else (row,)), name
        arguments = dict(zip(keys, values, strict=True))
        table.append((arguments, label or arguments))

    def decorate(test: Test) -> Test:
        signature = inspect.signature(test)

        @wraps(test)
        def all_rows(*others: object, **more: object) -> None:
            failures: list[BaseException] = []
            for arguments, label in table:
                try:
                    test(*others, **more, **arguments)
                except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001  # it is reported with the others
                    failure.add_note(f"row {label}")
                    failures.append(failure)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(table)} rows failed", failures)

        others = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        all_rows.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return all_rows

    return decorate
