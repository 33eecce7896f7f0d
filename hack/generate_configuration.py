"""Write the list of options in docs/configuration.md: from the models, which have defaults and descriptions.

    python hack/generate_configuration.py [--check]

Only what stands between the two markers of the page is written. The program fails if an option has no description.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import generator
from trainmaster.controller.configuration import Configuration

TARGET: Final = Path(__file__).resolve().parents[1] / "docs/configuration.md"
BEGIN: Final = "<!-- Written by hack/generate_configuration.py from the models; edit those. -->\n"


class Option(NamedTuple):
    """One line of the list."""

    path: str
    default: str
    description: str


def options(model: type[BaseModel], path: str = "") -> Iterator[Option]:
    """Return all options of a section and of the sections in it, in order."""
    for field in model.model_fields.values():
        name = f"{path}{field.alias}"
        section = section_of(field)
        if section is not None:
            yield from options(section, f"{name}.")
            continue
        if not field.description:
            raise SystemExit(f"{name} has no description: give its Field one")
        yield Option(name, default_of(field), field.description)


def marked(mark: str, model: type[BaseModel] = Configuration, path: str = "") -> Iterator[str]:
    """Return the options and whole sections that have a mark."""
    for field in model.model_fields.values():
        name, section = f"{path}{field.alias}", section_of(field)
        if extra(field).get(mark):
            yield name
        elif section is not None:
            yield from marked(mark, section, f"{name}.")


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of a field that is a section."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def extra(field: FieldInfo) -> dict[str, Any]:
    """Return what a field adds to its JSON schema."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def default_of(field: FieldInfo) -> str:
    """Write the default of an option: as the field words it, or its value as it stands in a file."""
    if "default" in extra(field):
        return str(extra(field)["default"])
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, dict | list) and not value:
        return ""
    if isinstance(value, list):
        return ", ".join(f"`{each}`" for each in value)
    return f"`{value if isinstance(value, str) else json.dumps(value)}`".replace(".0`", "`")


def render() -> str:
    """Write what stands between the markers."""
    lines = [
        f"- `{each.path}`{each.default and f' ({each.default})'}: {each.description}" for each in options(Configuration)
    ]
    names = [f"`{name}`" for name in marked("ours")]
    lines += ["", f"{', '.join(names[:-1])} and {names[-1]} are ours: the Go manager refuses a file that has them."]
    names = [f"`{name}`" for name in marked("reloaded")]
    lines += [
        "",
        f"When the file changes, a running manager puts {', '.join(names)} into effect. All else needs a restart.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the command."""
    arguments = generator.parser(__doc__).parse_args()
    return generator.write({TARGET: generator.spliced(TARGET, BEGIN, render())}, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
