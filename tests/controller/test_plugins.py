"""Plugins in the controller: whatever one does, other TrainJobs, the caches and our own decisions do not notice."""

import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.objects import replicated_job, runtime_object, trainjob_object
from support.vandal import EXTENSION_POINTS, vandal

from trainmaster.controller.cli.files.manifests import scan_manifests
from trainmaster.controller.cli.files.offline import OfflineValidation
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, Resource
from trainmaster.controller.reconciling.event_handlers import OWNER_INDEX, owner_values
from trainmaster.controller.reconciling.listers import StoreListers
from trainmaster.controller.reconciling.trainjobs.observe import DeletedWorkload, Observed, observe
from trainmaster.controller.reconciling.trainjobs.plan import plan
from trainmaster.controller.reconciling.trainjobs.status import Plan
from trainmaster.controller.reconciling.writes import GroupVersionKind
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, watched_resource
from trainmaster.runtime.api.decoding import parse_trainjob
from trainmaster.runtime.framework import Framework, PluginFailed, load_plugins
from trainmaster.runtime.framework.interface import Desired
from trainmaster.runtime.jsontree import JsonObject, copy_tree
from trainmaster.runtime.listers import Watch
from trainmaster.runtime.ownership import owner_reference
from trainmaster.runtime.snapshot import build_snapshot, encode_runtime
from trainmaster.runtime.validation import validate_trainjob

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch-digits"
NOW = datetime(2026, 1, 1, 1, tzinfo=UTC)
POLICY = {
    "numNodes": 2,
    "futureField": {"deep": [1]},
    "torch": {"numProcPerNode": 1, "envInjection": {"targets": [{"jobName": "node", "containerNames": ["node"]}]}},
}
TRAINER = {
    "env": [{"name": "A", "value": "1"}],
    "command": ["train"],
    "resourcesPerNode": {"limits": {"cpu": "2"}},
    "futureField": {"deep": [1]},
}
PATCHES = [
    {
        "manager": "acme.io/kueue",
        "trainingRuntimeSpec": {
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "replicatedJobs": [
                        {"name": "node", "template": {"spec": {"template": {"spec": {"nodeSelector": {"zone": "x"}}}}}}
                    ]
                },
            }
        },
    }
]


class Tenants:
    """TrainJobs `one` and `two` on one runtime, the first of which has its snapshot and its JobSet."""

    def __init__(self) -> None:
        self.runtime = runtime_object(replicated_job(), policy=POLICY)
        self.runtime["spec"]["podGroupPolicy"] = {"coscheduling": {"scheduleTimeoutSeconds": 5}, "futureField": {}}
        self.raws = {
            name: trainjob_object(
                name, uid=f"uid-of-{name}", trainer=copy_tree(TRAINER), runtimePatches=copy_tree(PATCHES)
            )
            for name in ("one", "two")
        }
        self.deleted = {
            "apiVersion": JOBSETS.api_version,
            "kind": "JobSet",
            "metadata": {"name": "two", "namespace": "team", "ownerReferences": [self._owner("two")]},
            "status": {"conditions": [{"type": "Failed", "status": "False"}]},
        }
        kinds = [TRAINING_RUNTIMES, CONFIGMAPS, JOBSETS, *map(watched_resource, Framework(load_plugins()).watches())]
        self.stores: Mapping[GroupVersionKind, tuple[Resource, Store]] = {
            (kind.api_version, kind.kind): (kind, Store()) for kind in kinds
        }
        self.workloads = [(JOBSETS.api_version, JOBSETS.kind)]
        self.stores[self.workloads[0]][1].add_indexer(OWNER_INDEX, owner_values)
        self._put(self.runtime)
        snapshot = build_snapshot(parse_trainjob(self.raws["one"]), encode_runtime(self.runtime))
        self._put(snapshot)
        for apply in self.plan("one", Framework(load_plugins())).applies:
            self._put(apply.object)
        self.reads = [
            (obj["apiVersion"], obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"])
            for obj in (self.runtime, snapshot, self.jobset())
        ]

    def _owner(self, name: str) -> JsonObject:
        return owner_reference(parse_trainjob(self.raws[name]))

    def _put(self, obj: JsonObject) -> None:
        _, store = self.stores[obj["apiVersion"], obj["kind"]]
        metadata = {"uid": f"uid-of-{obj['kind']}", "resourceVersion": "3", **obj["metadata"]}
        store.put({**obj, "metadata": metadata})

    def jobset(self) -> JsonObject:
        found = self.stores[JOBSETS.api_version, "JobSet"][1].get("team/one")
        assert found is not None
        return found

    def observe(self, name: str) -> Observed:
        raw = self.raws[name]
        deleted = [DeletedWorkload(self.deleted, seen=True)] if name == "two" else []
        listers = StoreListers(self.stores, workloads=self.workloads)
        return observe(parse_trainjob(raw), raw, listers, deleted_workloads=deleted)

    def plan(self, name: str, framework: Framework) -> Plan:
        return plan(self.observe(name), framework, fails=False, now=NOW)

    def everything(self) -> bytes:
        """All that anybody could know of both, and decide about them."""
        framework = Framework(load_plugins())
        caches = {
            str(kind): sorted(store.each(), key=lambda obj: str(obj["metadata"]))
            for kind, (_, store) in self.stores.items()
        }
        plans = {name: str(self.plan(name, framework)) for name in self.raws}
        verdicts = [
            str(validate_trainjob(raw, old, framework=framework, listers=StoreListers(self.stores)))
            for raw in self.raws.values()
            for old in (None, self.older(raw))
        ]
        return orjson.dumps([caches, plans, verdicts, self.raws, self.deleted, self.runtime])

    def older(self, raw: JsonObject) -> JsonObject:
        old: JsonObject = copy_tree(raw)
        old["spec"]["trainer"]["image"] = "old:1"
        return old


def known_of(observed: Observed, old: JsonObject) -> bytes:
    runtime = None if observed.runtime is None else orjson.loads(observed.runtime)
    return orjson.dumps([observed.raw, observed.job.to_json(), observed.read_snapshot(), runtime, old])


@pytest.mark.parametrize(("phase", "argument"), EXTENSION_POINTS)
def test_nothing_that_a_plugin_does_to_an_argument_is_seen_by_anybody_else(phase: str, argument: str) -> None:
    """All that can be reached from it is broken: the runtime that both share, what is memoized, caches, inputs."""
    tenants = Tenants()
    before = tenants.everything()
    plugin = vandal(phase, argument, tenants.reads)
    others = [each for each in load_plugins() if not (phase == "status" and hasattr(each, "status"))]
    framework = Framework([*others, plugin])
    for name, raw in tenants.raws.items():
        observed, old = tenants.observe(name), tenants.older(raw)
        known = known_of(observed, old)
        with contextlib.suppress(PluginFailed):
            framework.status(observed.job, observed.listers.with_objects([tenants.deleted]))
        plan(observed, framework, fails=False, now=NOW)
        validate_trainjob(raw, old, framework=framework, listers=observed.listers)
        assert plugin.ran
        assert known_of(observed, old) == known
        assert tenants.everything() == before


def test_a_plugin_that_edits_what_it_reads_in_place_gets_its_update_written() -> None:
    class Greeting:
        name = "greeting"

        def watch_extension(self) -> list[Watch]:
            return [Watch("v1", "ConfigMap", "configmaps", writes=True)]

        def build(self, info: Any, job: Any, listers: Any) -> Any:
            config_map = listers.get("v1", "ConfigMap", "team", "greeting")
            config_map["data"]["text"] = "new"
            yield Desired(
                {key: config_map[key] for key in ("apiVersion", "kind", "data")} | {"metadata": {"name": "greeting"}}
            )

    tenants = Tenants()
    greeting: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "old"}}
    tenants._put(
        {**greeting, "metadata": {"name": "greeting", "namespace": "team", "ownerReferences": [tenants._owner("one")]}}
    )
    planned = tenants.plan("one", Framework([*load_plugins(), Greeting()]))
    assert planned.problem is None
    assert [(apply.object["metadata"]["name"], apply.object.get("data")) for apply in planned.applies] == [
        ("greeting", {"text": "new"})
    ]


def test_what_a_plugin_does_to_an_object_after_it_has_built_it_is_not_written() -> None:
    """Writes come later, when the plugin may be building for somebody else already."""
    shared: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": {}}

    class Recycler:
        name = "recycler"

        def build(self, info: Any, job: Any, listers: Any) -> list[Desired]:
            shared["data"]["owner"] = job.metadata.name
            return [Desired(shared)]

    tenants, framework = Tenants(), Framework([*load_plugins(), Recycler()])
    plans = [tenants.plan(name, framework) for name in tenants.raws]
    written = [
        apply.object["data"] for each in plans for apply in each.applies if "owner" in apply.object.get("data", ())
    ]
    assert written == [{"owner": "one"}, {"owner": "two"}]


def test_the_listers_of_files_give_copies_as_well() -> None:
    """One command resolves many TrainJobs, from files and from the runtimes that come with Trainmaster."""
    offline = OfflineValidation(scan_manifests([str(EXAMPLE)]), Framework(load_plugins()), namespace="team")
    for kind, name in (("ClusterTrainingRuntime", "torch-digits"), ("ClusterTrainingRuntime", "torch-distributed")):
        found = offline.get(TRAINING_RUNTIMES.api_version, kind, None, name)
        assert found is not None
        known = orjson.dumps(found)
        found["spec"].clear()
        for obj in offline.list(TRAINING_RUNTIMES.api_version, kind):
            obj["spec"].clear()
        assert orjson.dumps(offline.get(TRAINING_RUNTIMES.api_version, kind, None, name)) == known
