"""Taking over from the Go controller: what it left of each recorded case stays as it is.

The objects of every step of every case are put into one cluster as the Go controller had written them, by server-side
apply with its field manager. Then a manager starts that never saw any of them, and has every reason to write that a
real one has on the day of the swap. Where it does, the case and the reason stand in `takeover.yaml`.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.golden import GOLDEN, RESOURCES, Case, in_namespace, load_case, load_yaml, recorded_cases
from support.original_crds import SCHEMAS, install_original_definitions
from support.stack import Stack, api_server
from support.takeover import written_by_a_new_manager

from trainmaster.controller.cli.doctor.trainjobs import plan_take_over
from trainmaster.controller.kube.clock import SystemClock
from trainmaster.controller.kube.rest.errors import AlreadyExists
from trainmaster.controller.kube.rest.resources import NAMESPACES, Resource
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.apiserver.jsonpatch import json_patch
from trainmaster.runtime.framework import Framework, load_plugins
from trainmaster.runtime.jsontree import JsonObject

DIFFERENT = {entry["case"]: entry for entry in load_yaml((GOLDEN / "differences.yaml").read_text())["cases"]}
FIELD_MANAGER = "trainer"
TRAINER_PORT = 29500

pytestmark = pytest.mark.golden


class StoppedClock(SystemClock):
    """A clock on which no deadline of a job passes, however long it takes to put all states into the cluster."""

    def __init__(self) -> None:
        self._now = super().now()

    def now(self) -> datetime:
        return self._now


@dataclass(frozen=True)
class State:
    """What the Go controller left after one step of a case."""

    case: Case
    step: str
    number: int

    @property
    def namespace(self) -> str:
        return f"takeover-{self.case.name[:3]}-{self.number}"

    @property
    def name(self) -> str:
        return f"{self.case.name}/{self.step}"

    @property
    def objects(self) -> list[JsonObject]:
        return [
            obj
            for key, obj in in_namespace(self.case.expected[self.step], self.namespace).items()
            if key not in ("Event", "results")
        ]

    @property
    def different(self) -> set[str]:
        """The objects of which we make something else, as declared."""
        entry = DIFFERENT.get(self.case.name, {})
        recorded = self.case.expected[self.step]
        if "refused" in entry:
            return {key for key in recorded if key.startswith("TrainJob/")}  # it is told what is wrong with it
        ours = json_patch(recorded, entry.get("steps", {}).get(self.step, []))
        told = {key for key in recorded if key.startswith("TrainJob/") and "SNAPSHOTS" in entry.get("reasons", ())}
        # Our snapshots cannot be edited; of one that the Go controller left and somebody has, the owner is told.
        return {key for key in ours if ours[key] != recorded.get(key)} | told


def states(definitions: str) -> Iterator[State]:
    for name in recorded_cases("cases"):
        if definitions == "ours" and "refused" in DIFFERENT.get(name, {}):
            continue  # it could not have been created
        case = load_case(name)
        for number, step in enumerate(case.steps):
            yield State(case, step["name"], number)


async def put(stack: Stack, state: State) -> None:
    """Have the cluster hold what the Go controller had left."""
    client = stack.client
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": state.namespace}})
    for obj in in_namespace(state.case.given, state.namespace):
        if obj["kind"] == "TrainJob":
            continue
        resource = RESOURCES[obj["kind"]]
        if resource.namespaced:
            obj["metadata"]["namespace"] = state.namespace
        try:
            await client.create(resource, obj)
        except AlreadyExists:
            assert not resource.namespaced  # the recorded cases share the built-in runtimes
    uids: dict[str, str] = {}
    for recorded in sorted(state.objects, key=lambda each: each["kind"] != "TrainJob"):
        obj = as_written(recorded, uids)
        resource = resource_of(obj)
        status = obj.pop("status", None)
        if resource is TRAINJOBS:
            stored = await client.create(resource, obj)
            uids[stored["metadata"]["name"]] = stored["metadata"]["uid"]
        else:
            stored = await client.apply(resource, as_applied(obj), field_manager=FIELD_MANAGER, force=True)
        if status:
            name = stored["metadata"]["name"]
            await client.patch(resource, state.namespace, name, {"status": status}, subresource="status")


def as_written(obj: JsonObject, uids: dict[str, str]) -> JsonObject:
    """Undo what the recorder did to make objects comparable."""
    obj = fresh(obj)
    for owner in obj["metadata"].get("ownerReferences") or []:
        owner.setdefault("uid", uids.get(owner["name"], "00000000-0000-4000-8000-000000000000"))
    data = obj.get("data") or {}
    for name, value in data.items():
        if obj["kind"] == "Secret":
            data[name] = base64.b64encode(b"a key").decode()
        elif isinstance(value, dict):
            ((_, content),) = value.items()
            data[name] = yaml.safe_dump(content)
    return obj


def fresh(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: fresh(value) for key, value in node.items()}
    if isinstance(node, list):
        return [fresh(value) for value in node]
    if isinstance(node, str) and "<now>" in node:
        return node.replace("<now>", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    return node


def as_applied(node: Any) -> Any:
    """Leave out what the API server added to what the Go controller applied: the protocol of the trainer's port."""
    if isinstance(node, list):
        return [as_applied(each) for each in node]
    if not isinstance(node, dict):
        return node
    added = {"protocol"} if node.get("containerPort") == TRAINER_PORT else set()
    return {key: as_applied(value) for key, value in node.items() if key not in added}


def resource_of(obj: JsonObject) -> Resource:
    kind, group = obj["kind"], obj["apiVersion"].partition("/")[0]
    return RESOURCES.get(f"{kind}.{group}") or RESOURCES[kind]


@pytest.mark.parametrize("definitions", SCHEMAS)
async def test_what_the_go_controller_left_stays_as_it_is(tmp_path: Path, definitions: str) -> None:
    """Nothing is written but where `differences.yaml` says that we make something else of the case."""
    found, clock = list(states(definitions)), StoppedClock()
    async with api_server(tmp_path) as stack:
        if definitions == "original":
            if stack.cluster is None:
                pytest.skip("the definitions of a foreign cluster stay as they are")
            await install_original_definitions(stack)
        for state in found:
            await put(stack, state)
        framework = Framework(load_plugins())
        plan = await plan_take_over(stack.client, framework, namespaces=(), now=clock.now())
        foreseen = {job.partition("/")[0] for job in plan.value.writes}
        written = await written_by_a_new_manager(stack, "takeover-", clock=clock, foreseen=foreseen)
    # What `trainmaster doctor` says beforehand is what happens.
    assert {key.partition(" ")[0] for key in written} == foreseen
    names = {state.namespace: state.name for state in found}
    allowed = {f"{state.namespace} {key}" for state in found for key in state.different}
    assert sorted(f"{names[key.partition(' ')[0]]} {key}" for key in written - allowed) == []
