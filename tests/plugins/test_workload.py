"""Workload: groups of pods that Kubernetes itself schedules, from `spec.scheduling` of the runtime to the objects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from support.manifests import ROOT
from support.objects import replicated_job, runtime_object, trainjob, trainjob_object
from support.resolutions import FakeListers, Runtime
from support.world import World

from trainmaster.devcluster.apiserver.schema.cel.compiler import compile_program
from trainmaster.devcluster.apiserver.schema.cel.program import Program
from trainmaster.plugins.workload import SLICE_POLICY, Workload
from trainmaster.runtime.api.decoding import parse_runtime
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.framework import Framework, PluginFailed, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS, Listers
from trainmaster.runtime.resolver import PolicyUnserved, new_info, resolve
from trainmaster.runtime.scheduling import awaited
from trainmaster.runtime.validation import validate_runtime, validate_trainjob

FRAMEWORK = Framework([*load_plugins(), Workload()])
VERSION = "scheduling.k8s.io/v1alpha2"
WHOLE: JsonObject = {}
POLICY: JsonObject = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingAdmissionPolicy",
    "metadata": {"name": SLICE_POLICY},
}
DATA = replicated_job("data", ancestor="dataset-initializer", containers=[{"name": "d", "image": "i"}])
SIDE = replicated_job("side", ancestor=None, replicas=2)
AFTER_DATA = replicated_job(dependsOn=[{"name": "data", "status": "Complete"}])
LIST = replicated_job("list", ancestor=None)
LIST["template"]["spec"] |= {"parallelism": 2, "completions": 5}
SHARED: JsonObject = {"name": "shared", "resourceClaimTemplateName": "nvlink"}
BESIDE = (replicated_job(), SIDE)


def runtime_with(scheduling: JsonObject, *jobs: JsonObject, **spec: Any) -> JsonObject:
    obj = runtime_object(*jobs, **spec)
    obj["spec"]["scheduling"] = scheduling
    return obj


def on(scheduling: JsonObject, *jobs: JsonObject, **spec: Any) -> Runtime:
    return parse_runtime(runtime_with(scheduling, *jobs, policy={"jax": {}}, **spec))


def built(job: TrainJob, runtime: Runtime, listers: Listers = NO_LISTERS) -> list[JsonObject]:
    return [desired.object for desired in resolve(job, runtime, FRAMEWORK, listers=listers).objects]


def of_kind(objects: list[JsonObject], kind: str) -> list[JsonObject]:
    return [each for each in objects if each["kind"] == kind]


def pod_templates(objects: list[JsonObject]) -> dict[str, JsonObject]:
    (jobset,) = of_kind(objects, "JobSet")
    return {each["name"]: each["template"]["spec"]["template"] for each in jobset["spec"]["replicatedJobs"]}


def entry(*targets: str, **fields: Any) -> JsonObject:
    return {"targetReplicatedJobs": list(targets), **fields}


BASIC: JsonObject = {"schedulingPolicy": {"basic": {}}}
GROUPS: dict[str, tuple[Runtime, dict[str, JsonObject], dict[str, str]]] = {
    "a job whose pods start together is one gang": (
        on(WHOLE, replicated_job(), SIDE),
        {"trainjob": {"gang": {"minCount": 6}}},
        {"node": "trainjob", "side": "trainjob"},
    ),
    "one that is not to be a gang is one group": (
        on(BASIC, DATA, AFTER_DATA),
        {"trainjob": {"basic": {}}},
        {"data": "trainjob", "node": "trainjob"},
    ),
    "what waits for others is a gang of its own": (
        on(WHOLE, DATA, AFTER_DATA),
        {"data": {"gang": {"minCount": 1}}, "node": {"gang": {"minCount": 4}}},
        {"data": "data", "node": "node"},
    ),
    "so is an initializer for which nothing waits, since it ends first": (
        on(WHOLE, DATA, replicated_job()),
        {"data": {"gang": {"minCount": 1}}, "node": {"gang": {"minCount": 4}}},
        {"data": "data", "node": "node"},
    ),
    "so is what starts in order": (
        on(WHOLE, replicated_job(), SIDE, startupPolicy={"startupPolicyOrder": "InOrder"}),
        {"node": {"gang": {"minCount": 4}}, "side": {"gang": {"minCount": 2}}},
        {"node": "node", "side": "side"},
    ),
    "the last pods of a list are no gang": (
        on(WHOLE, LIST, replicated_job()),
        {"list": {"basic": {}}, "node": {"gang": {"minCount": 4}}},
        {"list": "list", "node": "node"},
    ),
    "several ReplicatedJobs share a group": (
        on({"replicatedJobs": [entry("node", "side"), entry("data", **BASIC)]}, DATA, replicated_job(), SIDE),
        {"node": {"gang": {"minCount": 6}}, "data": {"basic": {}}},
        {"data": "data", "node": "node", "side": "node"},
    ),
    "a single slice is a group like any other": (
        on({"replicatedJobs": [entry("node", job={})]}),
        {"node": {"gang": {"minCount": 4}}},
        {"node": "node"},
    ),
    "what has no pods is in no group": (
        on(
            {"replicatedJobs": [entry("node"), entry("none")]},
            replicated_job(),
            replicated_job("none", ancestor=None, replicas=0),
        ),
        {"node": {"gang": {"minCount": 4}}},
        {"node": "node"},
    ),
}


@pytest.mark.parametrize(("runtime", "policies", "members"), GROUPS.values(), ids=GROUPS)
def test_pods_that_exist_at_the_same_time_are_a_gang(
    runtime: Runtime, policies: dict[str, JsonObject], members: dict[str, str]
) -> None:
    objects = built(trainjob(trainer={"numNodes": 4}), runtime)
    assert [each["kind"] for each in objects[: len(policies) + 1]] == ["Workload", *["PodGroup"] * len(policies)]
    (workload,) = of_kind(objects, "Workload")
    assert workload["spec"]["controllerRef"] == {"apiGroup": "trainer.kubeflow.org", "kind": "TrainJob", "name": "demo"}
    templates = {each["name"]: each["schedulingPolicy"] for each in workload["spec"]["podGroupTemplates"]}
    assert templates == policies
    names = {}
    for group in of_kind(objects, "PodGroup"):
        reference = group["spec"]["podGroupTemplateRef"]["workload"]
        assert reference["workloadName"] == workload["metadata"]["name"]
        assert group["spec"]["schedulingPolicy"] == policies[reference["podGroupTemplateName"]]
        names[group["metadata"]["name"]] = reference["podGroupTemplateName"]
    pods = {name: each["spec"].get("schedulingGroup") for name, each in pod_templates(objects).items()}
    assert {name: names[group["podGroupName"]] for name, group in pods.items() if group} == members


@pytest.mark.parametrize("scheduling", [WHOLE, {"replicatedJobs": [entry("node", job={})]}])
def test_the_gang_of_an_elastic_job_needs_its_fewest_nodes(scheduling: JsonObject) -> None:
    torch = {"elasticPolicy": {"minNodes": 2, "maxNodes": 4}}
    runtime = parse_runtime(runtime_with(scheduling, policy={"torch": torch}))
    (group,) = of_kind(built(trainjob(trainer={"numNodes": 4}), runtime), "PodGroup")
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}


def test_constraints_disruption_mode_and_priority_are_those_of_the_group() -> None:
    job = replicated_job()
    job["template"]["spec"]["template"]["spec"]["priorityClassName"] = "high"
    rules = {"schedulingConstraints": {"topology": [{"key": "rack"}]}, "disruptionMode": "PodGroup"}
    objects = built(trainjob(), on(rules, job))
    (group,), (workload,) = of_kind(objects, "PodGroup"), of_kind(objects, "Workload")
    wanted = {**rules, "priorityClassName": "high"}
    assert {name: group["spec"][name] for name in wanted} == wanted
    assert wanted.items() <= workload["spec"]["podGroupTemplates"][0].items()


@pytest.mark.parametrize("per_job", [False, True])
def test_the_pods_of_a_group_refer_to_its_claims(per_job: bool) -> None:
    rules: JsonObject = {"resourceClaims": [{**SHARED, "resourceClaimName": ""}]}
    runtime = on({"replicatedJobs": [entry("node", **({"job": rules} if per_job else rules)), entry("side")]}, *BESIDE)
    objects = built(trainjob(), runtime)
    (workload,) = of_kind(objects, "Workload")
    templates = workload["spec"]["podGroupTemplates"]
    groups = [each["spec"] for each in of_kind(objects, "PodGroup")]
    pods = [each["spec"] for each in pod_templates(objects).values()]
    for node, side in (templates, groups, pods):
        assert (node["resourceClaims"], side.get("resourceClaims")) == ([SHARED], None)


def test_a_claim_of_the_trainjob_takes_the_place_of_that_of_the_group() -> None:
    runtime = on({"replicatedJobs": [entry("node", resourceClaims=[SHARED])]})
    own = {"name": "shared", "resourceClaimName": "mine"}
    job = trainjob(trainer={"resourceClaimsPerNode": [own]})
    assert pod_templates(built(job, runtime))["node"]["spec"]["resourceClaims"] == [own]
    _, warnings = FRAMEWORK.validate(new_info(job, runtime), job, None, NO_LISTERS)
    assert any("each pod has its own" in each.detail for each in warnings)


def slice_policy() -> Program:
    """Compile what the MutatingAdmissionPolicy writes into a pod; the types of Kubernetes are maps here."""
    policy, binding = yaml.safe_load_all((ROOT / "deploy/slice-pod-groups/mutating_admission_policy.yaml").read_text())
    assert policy["metadata"]["name"] == binding["spec"]["policyName"] == SLICE_POLICY
    (mutation,) = policy["spec"]["mutations"]
    expression = re.sub(r"Object[\w.]*{", "{", mutation["applyConfiguration"]["expression"])
    expression = re.sub(r"(\w+):", r'"\1":', expression)
    return compile_program(f"{expression}.spec.schedulingGroup.podGroupName", {"object": "dyn"}, "string")


def test_each_slice_is_a_gang_and_an_admission_policy_tells_its_pods_which() -> None:
    runtime = on({"replicatedJobs": [entry("node", job={})]}, replicated_job(replicas=2))
    job = trainjob(trainer={"numNodes": 6})
    objects = built(job, runtime, FakeListers(POLICY, watches=FRAMEWORK.watches()))
    (pods,) = pod_templates(objects).values()
    labels = pods["metadata"]["labels"]
    base = labels["trainmaster.dev/slice-pod-group"]
    assert "schedulingGroup" not in pods["spec"]
    groups = {each["metadata"]["name"]: each["spec"]["schedulingPolicy"] for each in of_kind(objects, "PodGroup")}
    assert groups == {f"{base}-{index}": {"gang": {"minCount": 3}} for index in range(2)}
    slices = [{"metadata": {"labels": {**labels, "jobset.sigs.k8s.io/job-index": str(index)}}} for index in range(2)]
    assert [slice_policy().evaluate({"object": each}) for each in slices] == list(groups)
    with pytest.raises(PluginFailed, match="apply deploy/slice-pod-groups"):
        built(job, runtime)


def test_names_are_never_too_long_nor_those_of_another_job() -> None:
    name = "n" * 40
    runtime = on(
        {"replicatedJobs": [entry("node"), entry("side")]}, replicated_job(), replicated_job("side", ancestor=None)
    )
    names = [
        each["metadata"]["name"]
        for job in (trainjob(name), trainjob(f"{name}-node"))
        for each in built(job, runtime)
        if each["kind"] != "JobSet"
    ]
    assert len(names) == len(set(names)) == 6
    assert max(map(len, names)) <= 63


@pytest.mark.parametrize(
    ("given", "strategy"),
    [({}, "BlockingRecreate"), ({"restartStrategy": "InPlaceRestart"}, "InPlaceRestart"), (None, None)],
)
def test_a_restart_waits_until_the_last_pods_of_a_gang_are_gone(given: JsonObject | None, strategy: str | None) -> None:
    policy = {} if given is None else {"failurePolicy": {"maxRestarts": 3, **given}}
    (jobset,) = of_kind(built(trainjob(), on(WHOLE, **policy)), "JobSet")
    assert (jobset["spec"].get("failurePolicy") or {}).get("restartStrategy") == strategy


def test_a_gang_that_may_not_stay_whole_is_warned_of() -> None:
    urgent = replicated_job("urgent", ancestor=None)
    urgent["template"]["spec"]["template"]["spec"]["priorityClassName"] = "high"
    runtime = on(WHOLE, replicated_job(), urgent, failurePolicy={"maxRestarts": 1, "restartStrategy": "Recreate"})
    job = trainjob()
    errors, warnings = FRAMEWORK.validate(new_info(job, runtime), job, None, NO_LISTERS)
    assert not errors
    assert [text for each in warnings for text in ("BlockingRecreate", "priority classes") if text in each.detail] == [
        "BlockingRecreate",
        "priority classes",
    ]


P = "spec.scheduling"
PODS = "spec.template.spec.replicatedJobs[{}].template.spec.template.spec"
own_group, volcano, in_rack = (replicated_job(name, ancestor=None) for name in ("own", "volcano", "in-rack"))
own_group["template"]["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "mine"}
volcano["template"]["spec"]["template"]["spec"]["schedulerName"] = "volcano"
in_rack["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"rack": "1"}
other_rack = replicated_job("other-rack", ancestor=None)
other_rack["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"rack": "2"}
GANG_OF_TWO: JsonObject = {"schedulingPolicy": {"gang": {"minCount": 2}}}
BOTH: JsonObject = {"schedulingPolicy": {"gang": {}, "basic": {}}}
RACK: JsonObject = {"schedulingConstraints": {"topology": [{"key": "rack"}]}, "disruptionMode": "PodGroup"}
NINE = [replicated_job(f"side-{index}", ancestor=None) for index in range(8)] + [replicated_job()]


def grouped(*entries: JsonObject, of: Sequence[JsonObject] = ()) -> JsonObject:
    return runtime_with({"replicatedJobs": list(entries)}, *of)


def claiming(*claims: JsonObject) -> JsonObject:
    return grouped(entry("node", resourceClaims=list(claims)))


ALLOWED: dict[str, JsonObject] = {
    "nothing said": runtime_with(WHOLE),
    "all fields of the job": runtime_with({**RACK, "schedulingPolicy": {"gang": {}}}),
    "all fields of ReplicatedJobs": grouped(entry("node", **BASIC, **RACK, resourceClaims=[SHARED])),
    "all fields of Jobs": grouped(entry("node", job={**BASIC, **RACK, "resourceClaims": [SHARED]})),
    "ReplicatedJobs that share a group": grouped(entry("node", "side"), of=BESIDE),
    "eight groups": grouped(entry("node", job={}), of=[replicated_job(replicas=8)]),
    "one group of nine ReplicatedJobs": runtime_with(WHOLE, *NINE),
    "four claims": claiming(*({**SHARED, "name": f"c{index}"} for index in range(4))),
    "a claim with an empty source": claiming({**SHARED, "resourceClaimName": ""}),
}
R = f"{P}.replicatedJobs[0]"
C = f"{R}.resourceClaims"
REFUSED: dict[str, tuple[JsonObject, str]] = {
    "another gang": (runtime_with(WHOLE), P),
    "a claim without a source": (claiming(SHARED, {"name": "x", "resourceClaimName": ""}), f"{C}[1]"),
    "a claim with two sources": (claiming({**SHARED, "resourceClaimName": "x"}), f"{C}[0]"),
    "a claim whose name is no label": (claiming({**SHARED, "name": "A.b"}), f"{C}[0].name"),
    "two claims of one name": (claiming(SHARED, {**SHARED, "resourceClaimTemplateName": "x"}), f"{C}[1].name"),
    "five claims": (claiming(*({**SHARED, "name": f"c{index}"} for index in range(5))), C),
    "a claim of each Job": (
        grouped(entry("node", job={"resourceClaims": [{"name": "x"}]})),
        f"{R}.job.resourceClaims[0]",
    ),
    "slices beside a claim": (grouped(entry("node", job={}, resourceClaims=[SHARED])), f"{R}.job"),
    "a count of ReplicatedJobs": (grouped(entry("node", **GANG_OF_TWO)), f"{R}.schedulingPolicy.gang.minCount"),
    "more groups than there may be": (grouped(*(entry(each["name"]) for each in NINE), of=NINE), f"{P}.replicatedJobs"),
    "two levels": (runtime_with({**BASIC, "replicatedJobs": [entry("node")]}), P),
    "two policies": (runtime_with(BOTH), f"{P}.schedulingPolicy"),
    "a count": (runtime_with(GANG_OF_TWO), f"{P}.schedulingPolicy.gang.minCount"),
    "a count of a slice": (grouped(entry("node", job=GANG_OF_TWO)), f"{R}.job.schedulingPolicy.gang.minCount"),
    "no target": (grouped(entry("node"), entry()), f"{P}.replicatedJobs[1].targetReplicatedJobs"),
    "an unknown target": (grouped(entry("node", "nod")), f"{R}.targetReplicatedJobs[1]"),
    "a target in two groups": (grouped(entry("node"), entry("node")), f"{P}.replicatedJobs[1].targetReplicatedJobs[0]"),
    "a ReplicatedJob in no group": (grouped(entry("node"), of=BESIDE), f"{P}.replicatedJobs"),
    "slices beside a group": (grouped(entry("node", job={}, **BASIC)), f"{R}.job"),
    "slices of two": (grouped(entry("node", "side", job={}), of=BESIDE), f"{R}.targetReplicatedJobs"),
    "more groups than a Workload has": (grouped(entry("node", job={}), of=[replicated_job(replicas=9)]), P),
    "a group of somebody else": (runtime_with(WHOLE, replicated_job(), own_group), f"{PODS.format(1)}.schedulingGroup"),
    "a gang of what starts one after the other": (grouped(entry("data", "node"), of=(DATA, AFTER_DATA)), P),
    "a gang of what works through a list": (grouped(entry("node"), entry("list"), of=(replicated_job(), LIST)), P),
    "a gang of two schedulers": (runtime_with(WHOLE, replicated_job(), volcano), P),
    "two places at once": (
        runtime_with({"schedulingConstraints": {"topology": [{"key": "rack"}]}}, replicated_job(), in_rack, other_rack),
        P,
    ),
}
LIMITED = {C, f"{P}.replicatedJobs"}
"""Lists whose length the definitions limit: no stored runtime has longer ones."""
REFUSED["another gang"][0]["spec"]["podGroupPolicy"] = {"volcano": {}}


RULES = {name: (runtime, None) for name, runtime in ALLOWED.items()} | REFUSED


@pytest.mark.parametrize(("runtime", "path"), RULES.values(), ids=RULES)
def test_the_rules_of_the_proposal_and_the_field_that_a_refusal_names(runtime: JsonObject, path: str | None) -> None:
    for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:  # as a webhook sees it, with its container
        job["template"]["spec"]["template"]["spec"]["containers"] += [{"name": "dataset-initializer", "image": "i"}]
    result = validate_runtime(runtime, None, framework=FRAMEWORK)
    assert [error.path for error in result.errors] == ([path] if path else [])
    job, listers = trainjob(trainer={"numNodes": 72}), FakeListers(POLICY, watches=FRAMEWORK.watches())
    if path is None:
        assert of_kind(built(job, parse_runtime(runtime), listers), "PodGroup")
    elif path not in LIMITED:
        with pytest.raises(PluginFailed) as failed:
            built(job, parse_runtime(runtime), listers)
        assert failed.value.rejected
        assert path in str(failed.value) or failed.value.plugin == "claims"


def test_without_the_feature_gate_a_runtime_is_refused_and_its_jobs_are_not_built() -> None:
    runtime, framework = runtime_with(WHOLE), Framework(load_plugins())
    result = validate_runtime(runtime, None, framework=framework)
    assert [(error.path, error.type) for error in result.errors] == [(P, "Forbidden")]
    with pytest.raises(PolicyUnserved, match="TrainJobWorkloadAwareScheduling"):
        resolve(trainjob(), parse_runtime(runtime), framework)


def test_the_number_of_nodes_of_a_gang_stays() -> None:
    old, new = (trainjob_object(trainer={"numNodes": nodes}) for nodes in (2, 3))
    listers = FakeListers(runtime_with(WHOLE), watches=FRAMEWORK.watches())
    result = validate_trainjob(new, old, framework=FRAMEWORK, listers=listers)
    assert [error.path for error in result.errors] == ["spec.trainer.numNodes"]


def test_a_cluster_without_the_api_is_told_at_admission() -> None:
    obj = runtime_with(WHOLE)
    listers = FakeListers(obj, watches=FRAMEWORK.watches(), absent=("PodGroup", "Workload"))
    result = validate_trainjob(trainjob_object(), None, framework=FRAMEWORK, listers=listers)
    assert result.allowed
    assert any("GenericWorkload" in warning for warning in result.warnings)


async def running(scheduling: JsonObject = WHOLE, **spec: Any) -> World:
    """A world in which a TrainJob has its groups and its JobSet."""
    world = World(Workload())
    world.put(trainjob_object(**spec), runtime_with(scheduling))
    await world.reconcile()
    await world.reconcile()
    return world


async def test_groups_come_before_the_jobset_and_cost_nothing_more() -> None:
    world = await running()
    assert [obj["kind"] for obj in world.applied] == ["ConfigMap", "Workload", "PodGroup", "JobSet"]
    world.requests.clear()
    await world.reconcile()
    assert not world.requests
    assert "Blocked" not in world.conditions


async def test_a_suspended_job_has_no_groups_and_starts_again_when_its_pods_have_ended() -> None:
    """Kubernetes deletes the claims of a group with it."""
    world = await running({"replicatedJobs": [entry("node", resourceClaims=[SHARED])]})
    (name,) = (obj["metadata"]["name"] for obj in world.applied if obj["kind"] == "PodGroup")
    group = world.find("PodGroup", name)
    assert group["spec"]["resourceClaims"] == [SHARED]
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": True})
    await world.reconcile()
    assert world.find("JobSet")["spec"]["suspend"]
    assert [deleted for deleted, _ in world.deleted] == [world.applied[1]["metadata"]["name"], name]
    # Kubernetes keeps the group while a pod of it terminates.
    group["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.put(group)
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": False})
    await world.reconcile()
    assert world.find("JobSet")["spec"]["suspend"]
    world.remove("PodGroup", name)
    await world.reconcile_after(30)
    await world.reconcile()
    assert not world.find("JobSet")["spec"]["suspend"]
    assert world.find("PodGroup", name)["metadata"]["uid"] != group["metadata"]["uid"]


@pytest.mark.parametrize("kind", ["Workload", "PodGroup"])
async def test_a_group_of_somebody_else_is_not_touched(kind: str) -> None:
    names = {obj["kind"]: obj["metadata"]["name"] for obj in built(trainjob(), parse_runtime(runtime_with(WHOLE)))}
    world = World(Workload())
    world.put(
        {
            "apiVersion": VERSION,
            "kind": kind,
            "metadata": {"name": names[kind], "namespace": "team", "uid": "x"},
            "spec": {},
        }
    )
    world.put(trainjob_object(), runtime_with(WHOLE))
    await world.reconcile()
    assert world.conditions["Blocked"]["reason"] == "NameTaken"
    assert "JobSet" not in {obj["kind"] for obj in world.applied}


DROPPED: dict[str, tuple[JsonObject, str]] = {
    "schedulingConstraints": (
        {"schedulingConstraints": {"topology": [{"key": "rack"}]}},
        "TopologyAwareWorkloadScheduling",
    ),
    "disruptionMode": ({"disruptionMode": "PodGroup"}, "WorkloadAwarePreemption"),
    "resourceClaims": ({"replicatedJobs": [entry("node", resourceClaims=[SHARED])]}, "DRAWorkloadResourceClaims"),
    "schedulingGroup": (WHOLE, "JobSet 0.12"),
}


@pytest.mark.parametrize("field", DROPPED)
async def test_what_the_api_server_has_dropped_is_told(field: str) -> None:
    scheduling, remedy = DROPPED[field]
    world = await running(scheduling)
    if field == "schedulingGroup":
        spec = world.find("JobSet")["spec"]
        for each in spec["replicatedJobs"]:
            del each["template"]["spec"]["template"]["spec"]["schedulingGroup"]
        world.change("JobSet", spec=spec)
    else:
        name = next(obj["metadata"]["name"] for obj in world.applied if obj["kind"] == "PodGroup")
        spec = world.find("PodGroup", name)["spec"]
        world.change("PodGroup", name=name, spec={key: value for key, value in spec.items() if key != field})
    await world.reconcile()
    assert field in world.conditions["Blocked"]["message"]
    assert remedy in world.conditions["Blocked"]["message"]
    world.change("TrainJob", spec={**world.find("TrainJob")["spec"], "suspend": True})
    await world.reconcile()
    assert world.find("JobSet")["spec"]["suspend"]
    assert "Blocked" not in world.conditions


@pytest.mark.parametrize("status", ["True", "False"])
async def test_pods_that_run_beside_their_group_are_told(status: str) -> None:
    """An API server or a JobSet controller has dropped schedulingGroup from Jobs or pods, which nobody reads.

    A scheduler that finds room for the first pods and none for the next in a row leaves the condition False.
    """
    world = await running()
    name = next(obj["metadata"]["name"] for obj in world.applied if obj["kind"] == "PodGroup")
    old = {"replicatedJobsStatus": [{"name": "node", "ready": 1}]}
    world.change("JobSet", status=old, spec={**world.find("JobSet")["spec"], "suspend": True})
    await world.reconcile()
    assert not world.find("JobSet")["spec"]["suspend"]
    await world.reconcile()
    assert "GenericWorkload" in world.conditions["Blocked"]["message"]
    scheduled = {"type": "PodGroupScheduled", "status": status}
    world.change("PodGroup", name=name, status={"conditions": [scheduled]})
    await world.reconcile()
    assert "Blocked" not in world.conditions


@pytest.mark.parametrize("odd", ["x", 1, ["x"], [{"name": 1}], [{}], {}])
def test_what_has_another_shape_awaits_nothing(odd: Any) -> None:
    jobs = [{"name": "a"}, {"name": "b", "dependsOn": odd}]
    assert awaited({"startupPolicy": odd, "replicatedJobs": jobs}) == {"a": set(), "b": set()}
