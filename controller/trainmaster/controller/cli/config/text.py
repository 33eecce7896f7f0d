"""The texts of a configuration, of files or in a ConfigMap's manifest, and where in the files its options stand."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from trainmaster.controller.configuration import ConfigurationFile, ConfigurationInvalid, Problem
from trainmaster.controller.configuration.loading import file_of, no_yaml, read_file, read_files
from trainmaster.runtime.yamlmarks import FieldMark, find_field
from trainmaster.runtime.yamltext import YamlError, load_yaml_documents

STDIN: Final = "-"
KEY: Final = "controller_manager_config.yaml"
"""Under which the original's ConfigMap holds the configuration."""


@dataclass(frozen=True, slots=True)
class ConfigurationText:
    """The text of a configuration, which may be a part of a manifest."""

    file: str
    text: str
    described: str
    """What was read, by which it differs from others: for instance `key a of ConfigMap b`."""

    within: FieldMark | None = None
    """The key of the manifest that holds it."""

    indent: int = 0
    """How far it is indented in the manifest."""

    def locate(self, problem: Problem) -> tuple[int | None, int | None]:
        """Return line and column of a problem in the file, from 1."""
        if problem.line is not None:
            return self._of_file(problem.line, problem.column)
        if not problem.path:
            return None, None
        found = find_field(self.text, problem.path)
        return (None, None) if found is None else self._of_file(found.line, found.column)

    def line_of(self, path: str) -> int | None:
        """Return the line of an option in the file."""
        return self.locate(Problem(path, ""))[0]

    def _of_file(self, line: int, column: int | None) -> tuple[int, int | None]:
        if self.within is None:
            return line, column
        node = self.within.node
        if not isinstance(node, yaml.ScalarNode) or node.style != "|":
            return self.within.line, self.within.column  # folded or quoted: its lines are not those of the file
        return node.start_mark.line + 1 + line, None if column is None else column + self.indent


def named_files(texts: Iterable[ConfigurationText]) -> list[ConfigurationFile]:
    """Return texts as files, by what they are described as."""
    return [ConfigurationFile(each.described, each.text) for each in texts]


def deciding(texts: Sequence[ConfigurationText], problem: Problem) -> ConfigurationText | None:
    """Return the text that a problem is in, if it is in one of them."""
    if len(texts) == 1:
        return texts[0]
    name = problem.file or file_of(named_files(texts), problem.path)
    return next((each for each in texts if each.described == name), None)


def read_texts(file: str) -> list[ConfigurationText]:
    """Read a file or a directory of files, or standard input for `-`; of a ConfigMap's manifest what it holds.

    Raises:
        ConfigurationInvalid: It cannot be read, or holds no configuration, or there are several ConfigMaps.
    """
    if Path(file).is_dir():
        return [ConfigurationText(each.name, each.text, each.name) for each in read_files([Path(file)])]
    if file == STDIN:
        try:
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as error:
            raise ConfigurationInvalid(f"standard input is no UTF-8: {error}") from error
    else:
        text = read_file(Path(file))
    try:
        held = [
            _ConfigMap(number, within, obj)
            for number, (_, document) in enumerate(load_yaml_documents(text))
            for within, obj in _config_maps(document)
        ]
    except YamlError as error:
        raise ConfigurationInvalid(str(error), [no_yaml(error)]) from error
    with_key = [each for each in held if KEY in _data(each.object)] or held
    if not with_key:
        return [ConfigurationText(file, text, "standard input" if file == STDIN else file)]
    if len(with_key) > 1:
        names = ", ".join(_name(each.object) for each in with_key)
        raise ConfigurationInvalid(f"there are several ConfigMaps that may be meant: {names}; give one of them")
    (config_map,) = with_key
    data = _data(config_map.object)
    keys = configuration_keys(data)
    if not keys:
        there = ", ".join(data) or "none"
        raise ConfigurationInvalid(f"ConfigMap {_name(config_map.object)} has no key {KEY}; it has: {there}")
    return [_held(file, text, config_map, key) for key in keys]


def configuration_keys(data: Iterable[str]) -> list[str]:
    """Return the keys of a ConfigMap that a manager reads from it as a directory; a single one may have any name."""
    keys = list(data)
    return keys if len(keys) == 1 else sorted(key for key in keys if key.endswith(".yaml"))


def held_files(config_map: dict[str, Any]) -> list[ConfigurationFile]:
    """Return the files that a manager reads from a ConfigMap, by their keys."""
    data = _data(config_map)
    return [ConfigurationFile(key, data[key]) for key in configuration_keys(data) if isinstance(data[key], str)]


class _ConfigMap(NamedTuple):
    number: int
    """Of its document."""

    within: str
    """The path to what is in it."""

    object: dict[str, Any]


def _held(file: str, text: str, config_map: _ConfigMap, key: str) -> ConfigurationText:
    data, name = _data(config_map.object), _name(config_map.object)
    if not isinstance(data[key], str):
        raise ConfigurationInvalid(f"ConfigMap {name}: the value of {key} must be a text: put | after the key")
    mark = find_field(text, f"{config_map.within}data.{key}", document=config_map.number)
    indent = 0
    if mark is not None:
        lines = text.splitlines()[mark.node.start_mark.line + 1 : mark.node.end_mark.line]
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return ConfigurationText(file, data[key], f"key {key} of ConfigMap {name}", mark, indent)


def _config_maps(document: Any, within: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the ConfigMaps of a document, each with the path to what is in it."""
    if not isinstance(document, dict):
        return
    if document.get("kind") == "ConfigMap":
        yield within, document
    elif document.get("kind") in ("List", "ConfigMapList") and isinstance(document.get("items"), list):
        for index, item in enumerate(document["items"]):
            yield from _config_maps(item, f"items[{index}].")


def _data(config_map: dict[str, Any]) -> dict[str, Any]:
    data = config_map.get("data")
    return data if isinstance(data, dict) else {}


def _name(config_map: dict[str, Any]) -> str:
    metadata = config_map.get("metadata")
    return str(metadata.get("name", "without a name")) if isinstance(metadata, dict) else "without a name"
