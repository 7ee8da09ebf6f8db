"""Templates: orders that operators save for new jobs, each a file `templates/NAME.toml` in the console's own folder.

A template is a crawl order, so `anabranch crawl -c` takes the file as well. It may set what an order from the API may set.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.crawler.console.access import is_name
from anabranch.crawler.console.orders import examined_order, sound_order, tables_of
from anabranch.crawler.order.order import dump_tables
from anabranch.crawler.outcomes.errors import UsageError, storage_errors
from anabranch.dedup.files.durable import replace_file

_SUFFIX = ".toml"
#: Templates of a console.
_MOST = 1000


class NoSuchTemplate(UsageError):
    """There is no template of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r}: there is no such template")


class SavedOrder(NamedTuple):
    """A saved order."""

    name: str
    toml: str


class Templates:
    """The templates in a folder. A file that another program writes there counts at once. Raises: StorageError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def names(self) -> list[str]:
        """The names of all templates, in order."""
        with storage_errors(self.folder):
            if not self.folder.is_dir():
                return []
            found = (file.stem for file in self.folder.iterdir() if file.suffix == _SUFFIX and file.is_file())
            return sorted(filter(is_name, found))

    def template(self, name: str) -> SavedOrder:
        """A template by its name. Raises: NoSuchTemplate."""
        file = self._file(name)
        with storage_errors(file):
            return SavedOrder(name, file.read_text(encoding="utf-8", errors="replace"))

    def tables(self, name: str) -> dict[str, Any]:
        """The sections of a template. Raises: NoSuchTemplate; OrderError if somebody has made it no TOML."""
        return tables_of(self.template(name).toml)

    def save(self, name: str, order: str | Mapping[str, Any]) -> SavedOrder:
        """Save an order, in place of the template of this name. Raises: UsageError for a wrong name, OrderError, all faults."""
        if not is_name(name) or name.startswith((".", "-")):
            raise UsageError(
                f"{name!r}: give the template a name of up to 64 letters, digits, dots, dashes, underscores"
            )
        tables = {
            section: dict(keys) if isinstance(keys, Mapping) else keys for section, keys in tables_of(order).items()
        }
        for key in ("name", "seeds", "seed_files"):  # of one job
            if isinstance(tables.get("job"), dict):
                tables["job"].pop(key, None)
        sound_order(examined_order("template", tables, self.folder / "seeds.txt"))
        text = order if isinstance(order, str) and tables == tables_of(order) else dump_tables(tables)
        with storage_errors(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if name not in self.names and len(self.names) >= _MOST:
                raise UsageError(f"{self.folder}: has {_MOST:,} templates; remove one")
            replace_file(self.folder / f"{name}{_SUFFIX}", text.encode("utf-8", "surrogatepass"))
        return SavedOrder(name, text)

    def remove(self, name: str) -> str:
        """Remove a template. Returns its name. Raises: NoSuchTemplate."""
        file = self._file(name)
        with storage_errors(file):
            file.unlink(missing_ok=True)
        return name

    def _file(self, name: str) -> Path:
        # A name is compared with those that there are, and never made a path.
        found = next((one for one in self.names if one == name), None)
        if found is None:
            raise NoSuchTemplate(name)
        return self.folder / f"{found}{_SUFFIX}"
