"""The configuration that is in effect, with the origin of each value: as a commented configuration file, or as JSON;
and what is wrong with its kinds of jobs, all at once: a manager would tell of the first and end.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trainmaster.controller.cli.config.text import ConfigurationText, deciding
from trainmaster.controller.cli.printers import to_yaml
from trainmaster.controller.configuration import EffectiveConfiguration, Problem
from trainmaster.controller.configuration.effective import FEATURE_GATES_FLAG
from trainmaster.controller.configuration.loading import merged
from trainmaster.controller.feature_gates import deciding_gates
from trainmaster.controller.job_kinds import text_option
from trainmaster.runtime.framework import PluginInvalid
from trainmaster.runtime.framework.loader import discover
from trainmaster.runtime.jobs.constants import ENTRY_POINT_GROUP
from trainmaster.runtime.jobs.interface import JobKind
from trainmaster.runtime.jobs.loader import SECTION, load_job_kinds, option_problems
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.version import __version__
from trainmaster.runtime.yamltext import load_yaml

_DEFAULT = "default"


def job_kind_problems(effective: EffectiveConfiguration) -> Iterator[Problem]:
    """Try to make every kind that would be served, with its options."""
    given = effective.configuration.training_operator
    if not given.enabled:
        return
    for point in discover(ENTRY_POINT_GROUP):
        if given.enable_scheme and point.name not in given.enable_scheme:
            continue
        try:
            (kind,) = load_job_kinds([point])
        except PluginInvalid as error:
            yield Problem(SECTION, str(error))
            continue
        for problem in option_problems(type(kind), _but_files(kind, given.options.get(point.name, {}))):
            path, _, message = problem.partition(": ")
            yield Problem(path, message)


def _but_files(kind: JobKind, options: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out options that name a file with the text of another one: only the manager has the file."""
    known = {field.alias for field in type(kind).options_model.model_fields.values()}
    return {name: value for name, value in options.items() if text_option(name) not in known}


class Origin(NamedTuple):
    """Where the value of an option comes from."""

    source: str
    """`default`, `file` or `flag`."""

    place: str
    """`file:line`, the flag, or what the default means if it is no value."""

    def __str__(self) -> str:
        if self.source == _DEFAULT:
            return f"default: {self.place}" if self.place else _DEFAULT
        return self.place


class Option(NamedTuple):
    """A value that is in effect."""

    path: tuple[str, ...]
    value: Any
    origin: Origin


def as_yaml(effective: EffectiveConfiguration, texts: Sequence[ConfigurationText]) -> str:
    """Write it as a configuration file that says the same, with the origin of each value in a comment."""
    lines = [f"# In effect with trainmaster {__version__}; behind each value stands where it comes from."]
    open_sections: tuple[str, ...] = ()
    for path, value, origin in effective_options(effective, texts):
        *around, _ = path
        for depth, section in enumerate(around):
            if open_sections[: depth + 1] != tuple(around[: depth + 1]):
                lines.append(f"{'  ' * depth}{section}:")
        open_sections = tuple(around)
        first, *rest = to_yaml({path[-1]: value}).splitlines()
        indent = "  " * len(around)
        lines.append(f"{indent}{first}  # {origin}")
        lines += [f"{indent}{line}" for line in rest]
    return "\n".join(lines) + "\n"


def as_json(effective: EffectiveConfiguration, texts: Sequence[ConfigurationText]) -> JsonObject:
    """Return it for programs: the configuration, and the origins by path."""
    configuration = effective.configuration.model_dump(by_alias=True, mode="json")
    configuration["featureGates"] = dict(effective.features)
    origins = {".".join(path): origin._asdict() for path, _, origin in effective_options(effective, texts)}
    return {"version": __version__, "configuration": configuration, "origins": origins}


def effective_options(effective: EffectiveConfiguration, texts: Sequence[ConfigurationText]) -> Iterator[Option]:
    """Return all options in the order of the models, feature gates one by one."""
    given: Any = functools.reduce(merged, (load_yaml(each.text) for each in texts), {})
    flags: dict[str, list[str]] = {}
    for each in effective.overrides:
        flags.setdefault(each.option, []).append(each.source)
    for option in _options(effective.configuration, (), given, texts):
        if option.path == ("featureGates",):
            yield from _gates(effective, texts)
        elif ".".join(option.path) in flags:
            yield option._replace(origin=Origin("flag", " ".join(flags[".".join(option.path)])))
        else:
            yield option


def _options(
    section: BaseModel, path: tuple[str, ...], given: Any, texts: Sequence[ConfigurationText]
) -> Iterator[Option]:
    for name, field in type(section).model_fields.items():
        alias, value = str(field.alias), getattr(section, name)
        own = given.get(alias) if isinstance(given, dict) else None
        if isinstance(value, BaseModel):
            yield from _options(value, (*path, alias), own, texts)
        elif own is not None:
            yield Option((*path, alias), value, _of_file(texts, ".".join((*path, alias))))
        else:
            yield Option((*path, alias), value, Origin(_DEFAULT, _worded(field, value)))


def _worded(field: FieldInfo, value: Any) -> str:
    """Return what a default means that is no value."""
    extra = field.json_schema_extra
    if not isinstance(extra, dict) or value != field.get_default(call_default_factory=True, validated_data={}):
        return ""
    return str(extra.get("default", "")).replace("`", "")


def _of_file(texts: Sequence[ConfigurationText], path: str) -> Origin:
    text = deciding(texts, Problem(path, ""))
    if text is None:  # there is no file
        return Origin("file", "")
    line = text.line_of(path)
    return Origin("file", text.file if line is None else f"{text.file}:{line}")


def _gates(effective: EffectiveConfiguration, texts: Sequence[ConfigurationText]) -> Iterator[Option]:
    """Say of each gate what decides: its own name rather than that of its stage, then the flag rather than the file."""
    in_file = effective.configuration.feature_gates
    for name, is_open in effective.features.items():
        origin = Origin(_DEFAULT, "")
        for decisive in deciding_gates(name):
            if decisive in effective.gates_of_flag:
                value = str(effective.gates_of_flag[decisive]).lower()
                origin = Origin("flag", f"{FEATURE_GATES_FLAG}={decisive}={value}")
                break
            if decisive in in_file and texts:
                origin = _of_file(texts, f"featureGates.{decisive}")
                break
        yield Option(("featureGates", name), is_open, origin)
