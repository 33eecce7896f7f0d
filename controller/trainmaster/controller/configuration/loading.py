"""From the texts of configuration files to a `Configuration`, or all that is wrong with them, each with its path.

Guarantees:
- Files are merged in order: mappings key by key, everything else is replaced, and null takes away what was said before.
- Each file has its own apiVersion and kind. A problem names the file that decides the option.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

from trainmaster.controller.configuration.types import API_VERSION, KIND, Configuration
from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamlmarks import find_field
from trainmaster.runtime.yamltext import YamlError, load_yaml

_EXPECTED: Final = {
    "model_type": "must be a mapping of options",
    "model_attributes_type": "must be a mapping of options",
    "dict_type": "must be a mapping",
    "list_type": "must be a list",
    "string_type": "must be a text, in quotes if it looks like a number",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
}
"""What values of a wrong type should be, in the words of YAML, by pydantic's name of the error."""

_POSITION: Final = re.compile(r" at line \d+ column \d+$")
_KEY: Final = "[key]"  # pydantic's last step to a key, as opposed to its value


class Problem(NamedTuple):
    """What is wrong with one option, or why it has no effect."""

    path: str
    """For instance `webhook.port`; empty if it is the whole file."""

    message: str
    line: int | None = None
    """In which it was noticed, if there is no path."""

    column: int | None = None
    file: str = ""
    """Which says it, where that is known."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigurationInvalid(Exception):
    """The configuration cannot be used; the message, of one line, has all that is wrong."""

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = problems or [Problem("", message)]


class ConfigurationFile(NamedTuple):
    """The text of a configuration file."""

    name: str
    text: str


def load_configuration(*paths: Path) -> Configuration:
    """Read the configuration files; without any, the defaults.

    Raises:
        ConfigurationInvalid: One cannot be read, or says something wrong.
    """
    return decode_configuration(read_files(paths))


def read_files(paths: Iterable[Path]) -> list[ConfigurationFile]:
    """Read configuration files; of a directory all `*.yaml` in the order of their names.

    Raises:
        ConfigurationInvalid: One cannot be read, or a directory has none.
    """
    return [ConfigurationFile(str(path), read_file(path)) for each in paths for path in _within(each)]


def _within(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.yaml"))
    if not found:
        raise ConfigurationInvalid(f"failed to read config directory: {path}: it has no file *.yaml")
    return found


def read_file(path: Path) -> str:
    """Read the text of a configuration file.

    Raises:
        ConfigurationInvalid: It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationInvalid(f"failed to read config file: {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationInvalid(f"failed to read config file: {path}: it is no UTF-8: {error}") from error


def decode_configuration(files: Sequence[ConfigurationFile]) -> Configuration:
    """Merge the texts of configuration files in their order.

    Raises:
        ConfigurationInvalid: One says something wrong.
    """
    if not files:
        return Configuration()
    data = functools.reduce(merged, map(_decoded, files))
    try:
        return parse_configuration(data)
    except ConfigurationInvalid as error:
        problems = [each._replace(file=file_of(files, each.path)) for each in error.problems]
        text = invalid(with_files(problems, files))
        raise ConfigurationInvalid(f"failed to decode {named(files)}: {text}", problems) from error


def parse_configuration(data: object) -> Configuration:
    """Check a decoded configuration.

    Raises:
        ConfigurationInvalid: It says something wrong.
    """
    try:
        return Configuration.model_validate(_checked_head(data))
    except ValidationError as error:
        raise invalid(problems_of(error)) from error


def merged(before: Any, value: Any) -> Any:
    """Return a value with another one over it, as a JSON merge patch does; null for what is not there stays."""
    if not (isinstance(before, dict) and isinstance(value, dict)):
        return value
    result = dict(before)
    for key, each in value.items():
        if each is None and key in result:
            del result[key]
        else:
            result[key] = merged(result.get(key), each)
    return result


def file_of(files: Sequence[ConfigurationFile], path: str) -> str:
    """Return the name of the file that decides an option: of those that lead furthest along its path the last one."""
    marks = [(file.name, find_field(file.text, path)) for file in reversed(files)]
    missing = {name: len(path if mark is None else mark.rest) for name, mark in marks}
    return min(missing, key=missing.__getitem__, default="") if path else ""


def named(files: Sequence[ConfigurationFile]) -> str:
    """Return how files are called in a message: `config file: NAME`."""
    return f"config file{'s' if len(files) > 1 else ''}: {', '.join(file.name for file in files)}"


def with_files(problems: Iterable[Problem], files: Sequence[ConfigurationFile]) -> Iterator[Problem]:
    """Say of each problem which file it is in, if there are several."""
    for each in problems:
        file = each.file or file_of(files, each.path)
        yield each._replace(message=f"{each.message} (in {file})") if len(files) > 1 and file else each


def _decoded(file: ConfigurationFile) -> JsonObject:
    try:
        return _checked_head(load_yaml(file.text))
    except (YamlError, ConfigurationInvalid) as error:
        found = [no_yaml(error)] if isinstance(error, YamlError) else error.problems
        problems = [each._replace(file=file.name) for each in found]
        raise ConfigurationInvalid(f"failed to decode config file: {file.name}: {error}", problems) from error


def _checked_head(data: object) -> JsonObject:
    if not isinstance(data, dict):
        raise ConfigurationInvalid(f"the file must hold a mapping with apiVersion {API_VERSION} and kind {KIND}")
    expected = {"apiVersion": API_VERSION, "kind": KIND}
    wrong = [
        Problem(
            field, f"must be {value!r}, not {data[field]!r}" if field in data else f"is missing; it must be {value!r}"
        )
        for field, value in expected.items()
        if data.get(field) != value
    ]
    if wrong:  # it is another file, and nothing else in it would fit
        raise invalid(wrong)
    return data


def problems_of(error: ValidationError) -> list[Problem]:
    """Say what is wrong with each option that a model refuses."""
    return [Problem(_path(each["loc"]), _text(each)) for each in error.errors()]


def invalid(problems: Iterable[Problem]) -> ConfigurationInvalid:
    """Make the error of several problems."""
    listed = list(problems)
    return ConfigurationInvalid("invalid configuration: " + "; ".join(map(str, listed)), listed)


def no_yaml(error: YamlError) -> Problem:
    """Say where a text is no YAML."""
    return Problem("", _POSITION.sub("", str(error)), error.line, error.column)


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if part != _KEY:
            path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def _text(problem: Mapping[str, Any]) -> str:
    kind, value = problem["type"], problem["input"]
    if kind == "extra_forbidden":
        *around, name = problem["loc"]
        return f"unknown field {did_you_mean(str(name), _fields_of(around))}"
    if kind == "value_error":
        return str(problem["ctx"]["error"])
    if kind in _EXPECTED:
        return f"{_EXPECTED[kind]}, got {value!r}"
    message = str(problem["msg"]).removeprefix("Input ").removeprefix("should ")
    return f"must {message[0].lower()}{message[1:]}, got {value!r}"


def _fields_of(location: Iterable[int | str]) -> list[str]:
    """Return the names that there are in a section."""
    model: type[BaseModel] = Configuration
    for part in location:
        for field in model.model_fields.values():
            for kind in (field.annotation, *get_args(field.annotation)):
                if field.alias == part and isinstance(kind, type) and issubclass(kind, BaseModel):
                    model = kind
                    break
    return [str(field.alias) for field in model.model_fields.values()]
