"""Golden cases: inputs, and what the Go controller made of them on a real API server.

A case is a YAML document with `given` objects, optional `steps` of actions, and for each step the objects and events
that were seen once everything had settled. `play` runs a case on a simulated cluster on which Trainmaster runs and
yields, for each step, what was expected and what was seen, both normalised: without what differs from run to run
(UIDs, versions, times of now).
"""

import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from trainmaster.controller.kube.clock import Clock
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import ApiError
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, EVENTS, NAMESPACES, SECRETS, Resource
from trainmaster.controller.resources import CLUSTER_TRAINING_RUNTIMES, JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

GOLDEN: Final = Path(__file__).parents[1] / "golden"

POD_GROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", namespaced=True)
VOLCANO_POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", namespaced=True)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False)

RESOURCES: Mapping[str, Resource] = {
    resource.kind: resource
    for resource in (
        *(TRAINJOBS, TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES, JOBSETS, CONFIGMAPS, SECRETS, EVENTS),
        PRIORITY_CLASSES,
    )
} | {f"{resource.kind}.{resource.group}": resource for resource in (POD_GROUPS, VOLCANO_POD_GROUPS)}
"""By kind, and by group where two share a kind, as cases name them."""

SEEN = (
    *("TrainJob", "JobSet", "ConfigMap", "Secret", "Event"),
    *("PodGroup.scheduling.x-k8s.io", "PodGroup.scheduling.volcano.sh"),
)
SAME = "<same as in the step before>"

MASKED = "<masked>"

OURS = frozenset({"runtimeSnapshotDigest", "restarts"})
"""Fields of the status of a TrainJob that the original does not have: SNAPSHOTS, RESTARTS of docs/differences.md."""

SETTLED = 0.5
"""Virtual seconds without any change after which a cluster with an idle controller counts as settled."""

PATIENCE = 20.0
"""Virtual seconds to wait for the expected state before looking at the difference."""

_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_VOLATILE = frozenset({"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "generateName"})


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: times are text, and so are yes and no."""


_Loader.yaml_implicit_resolvers = {
    first: [each for each in resolvers if each[0].rpartition(":")[2] not in ("timestamp", "bool")]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false|True|False)$"), list("tfTF"))


def load_yaml(text: str) -> Any:
    """Load one document."""
    return yaml.load(text, _Loader)


@cache
def recorded_cases(folder: str) -> dict[str, str]:
    """Return the text of each case in a folder of `tests/golden`, by its name, in the order of their numbers."""
    documents = [text for path in (GOLDEN / folder).glob("*.yaml") for text in path.read_text().split("\n---\n")]
    return dict(sorted((text.partition("\n")[0].removeprefix("name: "), text) for text in documents))


@dataclass(frozen=True)
class Case:
    """One recorded case."""

    name: str
    """With its number, as `174-life-failed`."""

    given: list[JsonObject]
    steps: list[JsonObject]
    expected: dict[str, JsonObject]
    """By step: objects by `Kind/name`, and `Event` for the list of events."""

    unordered: list[str]
    """Names of fields whose lists were recorded in an order that is chance."""

    undetermined: list[str]
    dump: list[str]


@dataclass(frozen=True)
class Step:
    """What a step led to."""

    name: str
    expected: JsonObject
    seen: JsonObject


def given(obj: JsonObject) -> JsonObject:
    """Return the runtime that `{$file: ...}` stands for, and everything else as it is."""
    if "$file" not in obj:
        return obj
    runtime: JsonObject = load_yaml((GOLDEN / "runtimes" / Path(obj["$file"]).name).read_text())
    runtime["metadata"]["name"] = obj.get("$name", runtime["metadata"]["name"])
    return runtime


def load_case(name: str) -> Case:
    """Load a case of `tests/golden/cases`."""
    data = load_yaml(recorded_cases("cases")[name])
    steps = data.get("steps") or [{"name": "created"}]
    expected: dict[str, JsonObject] = {}
    last: JsonObject = {}
    for step in steps:
        last = {
            key: last[key] if value == SAME else value
            for key, value in data["expect"].get(step["name"], {}).items()
            if key.partition("/")[0] in (*SEEN, "results", *data.get("dump", ()))
        }
        for obj in last.values():
            if isinstance(obj, dict) and obj["kind"] == "Secret":
                obj["data"] = dict.fromkeys(obj.get("data") or {}, MASKED)
        expected[step["name"]] = last
    return Case(
        name=name,
        given=[given(obj) for obj in data["given"]],
        steps=steps,
        expected=expected,
        unordered=data.get("unordered") or [],
        undetermined=data.get("undetermined") or [],
        dump=data.get("dump") or [],
    )


class Player:
    """Plays a case on a simulated cluster."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def play(self, case: Case, namespace: str, expected: dict[str, JsonObject]) -> AsyncIterator[Step]:
        """Play a case in a new namespace."""
        normaliser = Normaliser(namespace, case.unordered, now=self._clock.now())
        await self._client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
        for obj in in_namespace(case.given, namespace):
            resource = RESOURCES[obj["kind"]]
            if resource.namespaced:
                obj["metadata"]["namespace"] = namespace
            await self._client.create(resource, obj)
        for step in case.steps:
            refused = []
            for action in in_namespace(step.get("do") or [], namespace):
                try:
                    await self._act(action, namespace)
                except ApiError as error:
                    refused.append({"code": error.status, "reason": error.reason, "message": error.message})
            wanted = expected[step["name"]]
            seen = await self._settle(case, normaliser, wanted)
            if refused:
                seen["results"] = normaliser.tree(refused)
            yield Step(step["name"], wanted, seen)

    async def _settle(self, case: Case, normaliser: "Normaliser", wanted: JsonObject) -> JsonObject:
        """Look until the expected state lasts, or until patience ends."""
        end = self._clock.monotonic() + PATIENCE
        since, last = self._clock.monotonic(), None
        without_results = {key: value for key, value in wanted.items() if key != "results"}
        while True:
            seen = await self._look(case, normaliser)
            now = self._clock.monotonic()
            if seen != last:
                since, last = now, seen
            if (agree(without_results, seen) and now - since >= SETTLED) or now > end:
                return seen
            await self._clock.sleep(0.05)

    async def _look(self, case: Case, normaliser: "Normaliser") -> JsonObject:
        seen: JsonObject = {}
        for kind in (*SEEN, *case.dump):
            resource = RESOURCES[kind]
            items = (await self._client.list(resource, normaliser.namespace))["items"]
            if kind == "Event":
                events = {orjson.dumps(normaliser.event(item), option=orjson.OPT_SORT_KEYS) for item in items}
                if events:
                    seen["Event"] = [orjson.loads(event) for event in sorted(events)]
                continue
            for item in items:
                key = f"{kind}/{item['metadata']['name']}"
                if key not in case.undetermined and key != "ConfigMap/kube-root-ca.crt":
                    item |= {"kind": resource.kind, "apiVersion": resource.api_version}
                    seen[key] = normaliser.object(item)
        return seen

    async def _act(self, action: JsonObject, namespace: str) -> None:
        if "sleep" in action:
            await self._clock.sleep(action["sleep"])
            return
        ((verb, target),) = action.items()
        resource = _resource_of(target)
        where = namespace if resource.namespaced else None
        if verb == "create":
            if resource.namespaced:
                target["metadata"]["namespace"] = namespace
            await self._client.create(resource, target)
        elif verb == "merge":
            await self._client.patch(
                resource, where, target["name"], target["body"], subresource=target.get("subresource")
            )
        elif verb == "delete":
            await self._client.delete(resource, where, target["name"])
        else:
            raise AssertionError(f"unknown action {verb!r}")


class Normaliser:
    """Brings live objects into comparable form."""

    def __init__(self, namespace: str, unordered: Iterable[str] = (), *, now: datetime | None = None) -> None:
        self.namespace = namespace
        self._unordered = frozenset(unordered)
        self._recent = (now or datetime.now(UTC)) - timedelta(hours=1)

    def object(self, obj: JsonObject) -> JsonObject:
        """Normalise an object."""
        obj = self._metadata(obj)
        if obj["kind"] == "Secret":
            obj["data"] = dict.fromkeys(obj.get("data") or {}, MASKED)
        data = obj.get("data") or {}
        if obj["kind"] == "ConfigMap" and obj["metadata"]["name"].endswith("-runtime-snapshot") and "runtime" in data:
            try:
                inner = load_yaml(data["runtime"])
            except yaml.YAMLError:
                inner = None
            if isinstance(inner, dict):
                obj["data"] = {**data, "runtime": {"<yaml>": self._metadata(inner)}}
        if obj["kind"] == "ConfigMap" and obj["metadata"]["name"].endswith("-flux-entrypoint"):
            obj["data"] = {name: {"<script facts>": script_facts(text)} for name, text in data.items()}
        if obj["kind"] == "ConfigMap" and obj["metadata"]["name"].endswith("-runtime-snapshot"):
            obj.pop("immutable", None)  # SNAPSHOTS of docs/differences.md
        elif obj["kind"] == "TrainJob" and "status" in obj:
            status = {name: value for name, value in obj["status"].items() if name not in OURS}
            obj = {**obj, "status": status} if status else {name: obj[name] for name in obj.keys() - {"status"}}
        normalised: JsonObject = self.tree(obj)
        return normalised

    def event(self, event: JsonObject) -> JsonObject:
        """Normalise an event."""
        regarding = event.get("regarding") or {}
        kept = {key: event.get(key) for key in ("type", "reason", "action", "note", "reportingController")}
        normalised: JsonObject = self.tree({**kept, "regarding": f"{regarding.get('kind')}/{regarding.get('name')}"})
        return normalised

    def _metadata(self, obj: JsonObject) -> JsonObject:
        metadata = {key: value for key, value in (obj.get("metadata") or {}).items() if key not in _VOLATILE}
        if metadata.get("ownerReferences"):
            metadata["ownerReferences"] = [
                {key: value for key, value in owner.items() if key != "uid"} for owner in metadata["ownerReferences"]
            ]
        return {**obj, "metadata": metadata}

    def tree(self, node: Any, field: str = "") -> Any:
        """Normalise texts and chance orders anywhere in a tree."""
        if isinstance(node, dict):
            return {self.tree(key): self.tree(value, key) for key, value in node.items()}
        if isinstance(node, list):
            items = [self.tree(value) for value in node]
            if field in self._unordered:
                # The order in which the recorder wrote them down.
                items.sort(key=lambda item: json.dumps(item, sort_keys=True))
            return items
        if isinstance(node, str):
            return _TIME.sub(self._time, _UUID.sub("<uid>", node.replace(self.namespace, "NS")))
        return node

    def _time(self, match: re.Match[str]) -> str:
        return "<now>" if datetime.fromisoformat(match.group()) >= self._recent else match.group()


_SCRIPT_FACTS = {
    "hosts": re.compile(r"[a-z0-9-]+-node-\d+-(?:\[[^\]]*\]|\d+)"),
    "run flags": re.compile(r"-N +\d+(?: +-[ng] +\d+)*"),
    "resources": re.compile(r"--cores=\S+(?: +--gpus?=\S+)?"),
    "settings": re.compile(
        r"^(?:allow-[a-z-]+|path|curve_cert|default_[a-z]+|dbpath|period|busytimeout|queue-policy) = .*$", re.MULTILINE
    ),
}


def script_facts(text: str) -> JsonObject:
    """What the recorder noted of a script of Flux: the numbers and names in it, while its wording is free."""
    found = {name: sorted(set(pattern.findall(text))) for name, pattern in _SCRIPT_FACTS.items()}
    return {name: listers for name, listers in found.items() if listers}


def agree(expected: JsonObject, seen: JsonObject) -> bool:
    """Tell whether what was seen is what was expected.

    Further events of an expected kind are fine: the Go recorder keeps the first text of a series for minutes.
    """
    if expected.get("Event") and seen.get("Event"):
        kinds = {(event["type"], event["reason"], event["regarding"]) for event in expected["Event"]}
        if not all(event in seen["Event"] for event in expected["Event"]):
            return False
        if not all((event["type"], event["reason"], event["regarding"]) in kinds for event in seen["Event"]):
            return False
        seen = {**seen, "Event": expected["Event"]}
    return expected == seen


def assert_same(seen: Any, expected: Any, where: str = "") -> None:
    """Fail unless both are written alike; 1, 1.0 and true are three."""
    written, wanted = (orjson.dumps(each, option=orjson.OPT_SORT_KEYS) for each in (seen, expected))
    if written != wanted:
        # As YAML, because pytest's difference of its lines is the one that people can read.
        assert yaml.safe_dump(seen) == yaml.safe_dump(expected), where


def _resource_of(target: JsonObject) -> Resource:
    kind = target["kind"]
    group = target.get("apiVersion", "").partition("/")[0]
    return RESOURCES.get(f"{kind}.{group}") or RESOURCES[kind]


def in_namespace(node: Any, namespace: str) -> Any:
    """Put the name of a namespace where the records have a mark for it."""
    if isinstance(node, dict):
        return {key: in_namespace(value, namespace) for key, value in node.items()}
    if isinstance(node, list):
        return [in_namespace(value, namespace) for value in node]
    if isinstance(node, str):
        return namespace if node == "NS" else node.replace("@NS@", namespace)
    return node
