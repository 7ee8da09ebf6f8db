import pytest

from dedup.errors import BadParameters
from dedup.registered import imported


def test_a_function_is_imported_by_its_name() -> None:
    """`package.module:function`, from wherever Python finds it."""
    assert imported("os.path:basename", "feature", ())("a/b") == "b"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("basename", "thing 'basename' is unknown; give package.module:function or one, two"),
        (":basename", "is unknown"),
        ("os.path:", "is unknown"),
        ("os.nothing:basename", "cannot be imported: No module"),
        ("os.path:nothing", "cannot be imported"),
        (".path:basename", "cannot be imported"),
        ("os.path:sep", "thing 'os.path:sep' is not a function"),
    ],
)
def test_what_is_no_function_is_refused(name: str, message: str) -> None:
    """One line that names what was asked for and what there is."""
    with pytest.raises(BadParameters, match=message):
        imported(name, "thing", ["one", "two"])
