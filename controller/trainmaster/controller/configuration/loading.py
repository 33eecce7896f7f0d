"""From the text of a configuration file to a `Configuration`, or all that is wrong with it, each with its path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

from trainmaster.controller.configuration.types import API_VERSION, KIND, Configuration
from trainmaster.runtime.field_errors import did_you_mean
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

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigurationInvalid(Exception):
    """The configuration cannot be used; the message, of one line, has all that is wrong."""

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = problems or [Problem("", message)]


def load_configuration(path: Path | None) -> Configuration:
    """Read the configuration file; without one, the defaults.

    Raises:
        ConfigurationInvalid: The file cannot be read, or says something wrong.
    """
    if path is None:
        return Configuration()
    return decode_configuration(read_file(path), name=str(path))


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


def decode_configuration(text: str, *, name: str) -> Configuration:
    """Read the text of a configuration file that is called `name`.

    Raises:
        ConfigurationInvalid: It says something wrong.
    """
    try:
        return parse_configuration(load_yaml(text))
    except YamlError as error:
        raise ConfigurationInvalid(f"failed to decode config file: {name}: {error}", [no_yaml(error)]) from error
    except ConfigurationInvalid as error:
        raise ConfigurationInvalid(f"failed to decode config file: {name}: {error}", error.problems) from error


def parse_configuration(data: object) -> Configuration:
    """Check a decoded configuration.

    Raises:
        ConfigurationInvalid: It says something wrong.
    """
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
    try:
        return Configuration.model_validate(data)
    except ValidationError as error:
        raise invalid(problems_of(error)) from error


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
