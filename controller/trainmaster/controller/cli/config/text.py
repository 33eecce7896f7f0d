"""The texts of a configuration, of files or in a ConfigMap's manifest, and where in the files its options stand."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from trainmaster.controller.cli.files.manifests import STDIN, Manifest, scan_text
from trainmaster.controller.configuration import ConfigurationFile, ConfigurationInvalid, Problem
from trainmaster.controller.configuration.loading import file_of, read_file, read_files
from trainmaster.runtime.yamlmarks import FieldMark, find_field

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
    config_maps = [each for each in scan_text(text, file) if isinstance(each, Manifest) and each.kind == "ConfigMap"]
    with_key = [each for each in config_maps if KEY in _data(each.object)] or config_maps
    if not with_key:
        return [ConfigurationText(file, text, "standard input" if file == STDIN else file)]
    if len(with_key) > 1:
        names = ", ".join(each.title.partition(" ")[2] for each in with_key)
        raise ConfigurationInvalid(f"there are several ConfigMaps that may be meant: {names}; give one of them")
    (config_map,) = with_key
    data = _data(config_map.object)
    keys = configuration_keys(data)
    if not keys:
        there = ", ".join(data) or "none"
        raise ConfigurationInvalid(f"{config_map.title} has no key {KEY}; it has: {there}")
    return [_held(config_map, data[key], key) for key in keys]


def configuration_keys(data: Iterable[str]) -> list[str]:
    """Return the keys of a ConfigMap that a manager reads from it as a directory; a single one may have any name."""
    keys = list(data)
    return keys if len(keys) == 1 else sorted(key for key in keys if key.endswith(".yaml"))


def held_files(config_map: dict[str, Any]) -> list[ConfigurationFile]:
    """Return the files that a manager reads from a ConfigMap, by their keys."""
    data = _data(config_map)
    return [ConfigurationFile(key, data[key]) for key in configuration_keys(data) if isinstance(data[key], str)]


def _held(config_map: Manifest, text: Any, key: str) -> ConfigurationText:
    if not isinstance(text, str):
        raise ConfigurationInvalid(f"{config_map.title}: the value of {key} must be a text: put | after the key")
    source = config_map.source
    mark = source.find(f"data.{key}")
    indent = 0
    if mark is not None:
        lines = source.text.splitlines()[mark.node.start_mark.line + 1 : mark.node.end_mark.line]
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return ConfigurationText(source.file, text, f"key {key} of {config_map.title}", mark, indent)


def _data(config_map: dict[str, Any]) -> dict[str, Any]:
    data = config_map.get("data")
    return data if isinstance(data, dict) else {}
