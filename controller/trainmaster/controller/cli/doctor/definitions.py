"""Checks of the definitions of Trainer's kinds that are in the cluster, against those that would be applied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from trainmaster.controller.cli.crds import definition, definitions_of
from trainmaster.controller.cli.doctor.facts import Facts, Finding, fail, ok, some, warn
from trainmaster.runtime.api.constants import GROUP
from trainmaster.runtime.jsontree import JsonObject

Path = tuple[str, ...]
"""A field in a schema: names, `*` for each element of a list or value of a map."""

GO_GENERATOR: Final = "controller-gen.kubebuilder.io/version"
"""The annotation by which the original's definitions are known."""

_EACH: Final = "*"
NEEDED: Final = frozenset({("status", "replicaStatuses", _EACH, field) for field in ("restarts", "restartedPodUIDs")})
"""Fields of ours alone that the manager relies on."""

APPLY: Final = "trainmaster crds | kubectl apply --server-side --force-conflicts -f -"


def check_definitions(facts: Facts) -> Iterator[Finding]:
    """The definitions: whose are they, and would applying ours take anything away?"""
    yield from compare(facts, definitions_of(GROUP), of="Trainer")


def compare(facts: Facts, names: Sequence[str], *, of: str) -> Iterator[Finding]:
    """Say which of these definitions are not there, and compare the others with ours."""
    absent = [name for name in names if facts.definitions[name].value is None]
    if absent:
        some = "none" if len(absent) == len(names) else f"not {', '.join(absent)}"
        yield ok(f"definitions of {of}: {some} yet; `trainmaster crds` has them, and so have the manifests")
    for name in names:
        live = facts.definitions[name].value
        if live is not None:
            yield from _compare(name, live)


def _compare(name: str, live: JsonObject) -> Iterator[Finding]:
    if live["metadata"].get("deletionTimestamp"):
        yield fail(f"{name} is being deleted, and all of its objects with it", "wait, or see what holds it up")
        return
    ours = definition(name)
    versions = {each["name"] for each in ours["spec"]["versions"]}
    stored = (live.get("status") or {}).get("storedVersions") or []
    foreign = [version for version in stored if version not in versions]
    if foreign:
        yield fail(
            f"{name} may have objects that are stored as {', '.join(foreign)}, which ours does not serve",
            "migrate them, and take the version out of status.storedVersions",
        )
        return
    if ours["spec"]["scope"] != live["spec"]["scope"]:
        yield fail(f"{name} is {live['spec']['scope']}, and that cannot change", "see who made it")
        return
    owner = owner_of(live)
    lost, gained = lost_fields(live), set() if serve_alike(ours, live) else _fields(ours) - _fields(live)
    if lost:
        yield warn(
            f"{name} is {owner} and has fields that ours lacks: {_some(lost)}",
            "see below whether objects use them; a newer Trainmaster may have them",
        )
    elif needed := NEEDED & gained:
        yield warn(
            f"{name} is {owner} and lacks {_some(needed)}: what is written there is dropped, and backoffLimit counts "
            "no restart of a pod that is gone",
            APPLY,
        )
    elif gained:
        yield ok(f"{name} is {owner}; ours adds {_some(gained)}: {APPLY}")
    else:
        yield ok(f"{name} is {owner}, with the same fields")


def owner_of(live: JsonObject) -> str:
    """Say whose definition it is."""
    metadata = live["metadata"]
    chart = (metadata.get("labels") or {}).get("helm.sh/chart")
    by = f", of the chart {chart}" if chart else ""
    generator = (metadata.get("annotations") or {}).get(GO_GENERATOR)
    go = "Go manager" if live["spec"]["group"] == GROUP else "Training Operator"
    return f"that of the {go} (controller-gen {generator}){by}" if generator else f"one of Trainmaster{by}"


def lost_fields(live: JsonObject) -> set[Path]:
    """Return the fields of a definition that would be pruned from its objects with ours in its place."""
    ours = definition(str(live["metadata"]["name"]))
    if serve_alike(ours, live):
        return set()
    known, free = _fields(ours), set(_free(ours))
    lost = {path for path in _fields(live) - known if not any(path[: len(each)] == each for each in free)}
    return _roots(lost)


def uses(obj: Any, path: Path) -> bool:
    """Tell whether an object has a field."""
    if not path:
        return True
    step, *rest = path
    if step == _EACH:
        values = obj if isinstance(obj, list) else obj.values() if isinstance(obj, dict) else ()
        return any(uses(each, tuple(rest)) for each in values)
    return isinstance(obj, dict) and step in obj and uses(obj[step], tuple(rest))


class LostFields:
    """The fields that stored objects would lose with our definitions in the place of those that are there."""

    def __init__(self, live: Iterable[JsonObject]) -> None:
        self._by_kind = {each["spec"]["names"]["kind"]: lost_fields(each) for each in live}
        self._objects: dict[tuple[str, Path], list[str]] = {}

    def look(self, obj: JsonObject) -> None:
        """Look at a stored object."""
        for path in self._by_kind.get(obj["kind"], ()):
            if uses(obj, path):
                metadata = obj["metadata"]
                name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
                self._objects.setdefault((obj["kind"], path), []).append(name)

    def findings(self) -> Iterator[Finding]:
        """Say which objects would lose something."""
        for (kind, path), names in self._objects.items():
            yield fail(
                f"with our definition {kind}s would lose {written(path)}: {some(names)}",
                "use a newer Trainmaster, or take the field out of them",
            )


def _schemas(crd: JsonObject) -> Iterator[JsonObject]:
    for version in crd["spec"]["versions"]:
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if isinstance(schema, dict):
            yield schema


def serve_alike(ours: JsonObject, live: JsonObject) -> bool:
    """Tell whether two definitions have the same schemas, so that no field of thousands has to be looked at."""
    return list(_schemas(ours)) == list(_schemas(live))


def _fields(crd: JsonObject) -> set[Path]:
    return {path for schema in _schemas(crd) for path, _ in _walk(schema, ())}


def _free(crd: JsonObject) -> Iterator[Path]:
    """Return where anything may stand."""
    for schema in _schemas(crd):
        for path, part in [((), schema), *_walk(schema, ())]:
            if part.get("x-kubernetes-preserve-unknown-fields") or (
                part.get("type") == "object" and not (part.get("properties") or part.get("additionalProperties"))
            ):
                yield path


def _walk(schema: JsonObject, path: Path) -> Iterator[tuple[Path, JsonObject]]:
    for name, part in (schema.get("properties") or {}).items():
        yield (*path, name), part
        yield from _walk(part, (*path, name))
    for keyword in ("items", "additionalProperties"):
        part = schema.get(keyword)
        if isinstance(part, dict):
            yield from _walk(part, (*path, _EACH))


def _roots(paths: set[Path]) -> set[Path]:
    """Return the fields that are in no other one of them."""
    return {path for path in paths if not any(path[:length] in paths for length in range(len(path)))}


def _some(paths: Iterable[Path]) -> str:
    roots = sorted(_roots(set(paths)), key=lambda path: (len(path), path))
    return some([written(path) for path in roots])


def written(path: Path) -> str:
    """Write a field as people do: `spec.trainer.env[*].name`."""
    return ".".join(path).replace(f".{_EACH}", "[*]")
