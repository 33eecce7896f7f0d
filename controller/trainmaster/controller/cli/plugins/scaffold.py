"""A package with a plugin to begin with: what it writes works, passes its own tests, and can be built to a wheel."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Final

from trainmaster.controller.cli.options import CommandError
from trainmaster.runtime.framework.interface import API_VERSION
from trainmaster.runtime.framework.loader import discover
from trainmaster.runtime.version import __version__

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST_NAME: Final = 40

_TEMPLATES: Final = Path(__file__).parent / "template"


def write_package(name: str, directory: Path) -> list[Path]:
    """Write a package with a plugin of a name.

    The directory must not exist, or be empty.

    Returns:
        The files that were written.

    Raises:
        CommandError: The name cannot be one, or there is something already, or it cannot be written.
    """
    module = name.replace("-", "_")
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME or keyword.iskeyword(module):
        raise CommandError(
            f"{name!r} cannot be the name of a plugin: use lower-case letters, digits and -, with a letter first, at "
            f"most {_LONGEST_NAME} characters, for instance cost-labels"
        )
    taken = {point.name: point for point in discover()}.get(name)
    if taken is not None:
        raise CommandError(f"a plugin {name!r} is installed already ({taken.value}); choose another name")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise CommandError(f"{directory} exists and is not empty; choose another --directory, or remove it")
    words = {
        "name": name,
        "module": module,
        "klass": "".join(word.capitalize() for word in name.split("-")),
        "api_version": ".".join(map(str, API_VERSION)),
        "release": __version__,
        "version": ".".join(__version__.split(".")[:2]),
    }
    try:
        return list(_written(directory, words))
    except OSError as error:
        raise CommandError(f"cannot write {error.filename}: {error.strerror}") from error


def _written(directory: Path, words: dict[str, str]) -> Iterator[Path]:
    for template in sorted(_TEMPLATES.rglob("*.in")):
        relative = str(template.relative_to(_TEMPLATES).with_suffix("")).replace("__module__", words["module"])
        target = directory / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(Template(template.read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
        yield target
