"""The loader of job kinds: from the entry points of installed distributions to kinds, with their options.

Guarantee: a kind that does not load, or that does not fit the interface, is a `PluginInvalid` that names it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import EntryPoint
from typing import Any, Final

from trainmaster.runtime.api.decoding import ApiTypeError, parse_part
from trainmaster.runtime.field_errors import did_you_mean
from trainmaster.runtime.framework.loader import discover
from trainmaster.runtime.framework.signatures import PluginInvalid
from trainmaster.runtime.jobs.constants import ENTRY_POINT_GROUP
from trainmaster.runtime.jobs.interface import MAX_REPLICAS, JobKind

SECTION: Final = "trainingOperator"
"""The section of the configuration that the kinds' options are in."""

_TEXTS: Final = ("kind", "plural", "framework", "replica_specs_field", "container_name")
_TYPES: Final = ("replica_types", "leading_types")


def load_job_kinds(
    points: Iterable[EntryPoint] | None = None,
    *,
    enabled: Collection[str] = (),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    cluster_domain: str = "",
    max_replicas: int = MAX_REPLICAS,
) -> list[JobKind]:
    """Load and construct kinds.

    Args:
        points: The entry points to load; default is everything installed.
        enabled: Kinds that are wanted, in any case; empty: all of them. The others are not imported.
        cluster_domain: The domain of the cluster, for names that are to be complete.
        max_replicas: How many pods a job may have.

    Raises:
        PluginInvalid: A kind does not load, does not fit the interface, or is not known.
    """
    found = list(discover(ENTRY_POINT_GROUP) if points is None else points)
    names = {point.name for point in found}
    given = {name.lower(): value for name, value in (options or {}).items()}
    wanted = {name.lower() for name in enabled} or names
    _refuse_unknown("enableScheme", wanted - names, names)
    _refuse_unknown("options", given.keys() - names, names)
    kinds: dict[str, JobKind] = {}
    for point in found:
        if point.name not in wanted:
            continue
        source = f"{point.value}, from {point.dist.name if point.dist else 'an unknown distribution'}"
        origin = f"job kind {point.name!r} ({source})"
        if point.name in kinds:
            raise PluginInvalid(f"{origin} has the same name as another one; uninstall one of the two")
        try:
            loaded = point.load()
        except BaseException as error:
            raise PluginInvalid(f"{origin} cannot be loaded: {type(error).__name__}: {error}") from error
        kind = _construct(loaded, given.get(point.name, {}), cluster_domain, origin, point.name)
        kind.max_replicas = max_replicas
        kinds[point.name] = kind
    return list(kinds.values())


def _construct(loaded: Any, options: Mapping[str, Any], domain: str, origin: str, name: str) -> JobKind:
    if not (isinstance(loaded, type) and issubclass(loaded, JobKind)):
        raise PluginInvalid(f"{origin} is no class that is derived from trainmaster.runtime.jobs.interface.JobKind")
    _check_attributes(loaded, origin, name)
    problems = option_problems(loaded, options)
    if problems:
        raise PluginInvalid(f"{origin} does not accept its options: {'; '.join(problems)}")
    parsed = parse_part(loaded.options_model, dict(options), f"{SECTION}.options.{name}")
    try:
        return loaded(parsed, cluster_domain=domain)
    except Exception as error:
        raise PluginInvalid(f"{origin} cannot be made: {type(error).__name__}: {error}") from error


def option_problems(kind: type[JobKind], options: Mapping[str, Any]) -> list[str]:
    """Say what is wrong with the options of a kind, each with its path in the configuration file."""
    path = f"{SECTION}.options.{kind.kind.lower()}"
    known = [field.alias or name for name, field in kind.options_model.model_fields.items()]
    problems = [f"{path}.{name}: unknown option {did_you_mean(name, known)}" for name in options if name not in known]
    try:
        parse_part(kind.options_model, dict(options), path)
    except ApiTypeError as error:
        problems += error.problems
    return problems


def _check_attributes(kind: type[JobKind], origin: str, name: str) -> None:
    for attribute in _TEXTS:
        value = getattr(kind, attribute, None)
        if not isinstance(value, str) or not value:
            raise PluginInvalid(f"{origin} has no {attribute}: give its class one, a text")
    for attribute in _TYPES:
        value = getattr(kind, attribute, None)
        if not isinstance(value, tuple) or not value or not all(isinstance(each, str) for each in value):
            raise PluginInvalid(f'{origin} has no {attribute}: give its class some, for instance ("Worker",)')
    strange = [
        each for each in (*kind.leading_types, *filter(None, [kind.scale_type])) if each not in kind.replica_types
    ]
    if strange:
        raise PluginInvalid(f"{origin} names {strange[0]!r}, which is none of its replica_types")
    if kind.kind.lower() != name:
        raise PluginInvalid(f"{origin} is of kind {kind.kind}: call its entry point {kind.kind.lower()!r}")


def _refuse_unknown(where: str, unknown: Collection[str], known: Collection[str]) -> None:
    if unknown:
        name = min(unknown)
        raise PluginInvalid(f"{SECTION}.{where}: scheme {name} is not supported {did_you_mean(name, sorted(known))}")
