"""From the text of a configuration file to a `Configuration`, or all that is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainmaster.controller.configuration.types import API_VERSION, KIND, Configuration
from trainmaster.runtime.yamltext import YamlError, load_yaml


class ConfigurationInvalid(Exception):
    """The configuration file cannot be used; the message has one line for each error."""


def load_configuration(path: Path | None) -> Configuration:
    """Read the configuration file; without one, the defaults.

    Raises:
        ConfigurationInvalid: The file cannot be read, or says something wrong.
    """
    if path is None:
        return Configuration()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationInvalid(f"failed to read config file: {path}: {error}") from error
    try:
        return parse_configuration(load_yaml(text))
    except (YamlError, ConfigurationInvalid) as error:
        raise ConfigurationInvalid(f"failed to decode config file: {path}: {error}") from error


def parse_configuration(data: object) -> Configuration:
    """Check a decoded configuration.

    Raises:
        ConfigurationInvalid: It says something wrong.
    """
    if not isinstance(data, dict):
        raise ConfigurationInvalid(f"the file must hold a mapping with apiVersion {API_VERSION} and kind {KIND}")
    for field, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if data.get(field) != expected:
            raise ConfigurationInvalid(f"{field} must be {expected!r}, not {data.get(field)!r}")
    try:
        return Configuration.model_validate(data)
    except ValidationError as error:
        lines = [f"{_path(problem['loc'])}: {_text(problem)}" for problem in error.errors()]
        raise ConfigurationInvalid("invalid configuration: " + "; ".join(lines)) from error


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def _text(problem: Any) -> str:
    if problem["type"] == "extra_forbidden":
        return "unknown field"
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    message = str(problem["msg"]).removeprefix("Input ").removeprefix("should ")
    return f"must {message[0].lower()}{message[1:]}, got {problem['input']!r}" if message else str(problem["msg"])
