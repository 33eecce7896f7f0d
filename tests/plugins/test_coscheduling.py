"""CoScheduling, and what gangs of all schedulers have in common: who starts together, and what that takes."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.generated import RESOURCES, check_that_resolving_is_pure, trainjobs
from support.objects import replicated_job, runtime_object, trainjob, trainjob_object
from support.resolutions import FRAMEWORK, FakeListers, Runtime, companion, error_details, jobset, warning_details

from trainmaster.plugins.workload import Workload
from trainmaster.runtime.api.decoding import parse_runtime, parse_trainjob
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.framework import Framework, PluginFailed, load_plugins
from trainmaster.runtime.framework.interface import ApplyWhen, Rejected
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS, Listers
from trainmaster.runtime.ownership import owner_reference
from trainmaster.runtime.resolver import PolicyUnserved, resolve

SCHEDULERS = ("coscheduling", "volcano")
MARKS = ("scheduling.x-k8s.io/pod-group", "scheduling.k8s.io/group-name", "podGroupName")
WITH_WORKLOAD = Framework([*load_plugins(), Workload()])
POLICY: JsonObject = {"coscheduling": {}}

DATA = replicated_job("dataset-initializer", ancestor="dataset-initializer", containers=[{"name": "d", "image": "i"}])
MODEL = replicated_job("model-initializer", ancestor="model-initializer", containers=[{"name": "m", "image": "i"}])


def on(*jobs: JsonObject, policy: JsonObject | None = None, gang: JsonObject = POLICY, **spec: Any) -> Runtime:
    obj = runtime_object(*jobs, policy=policy, **spec)
    obj["spec"]["podGroupPolicy"] = gang
    return parse_runtime(obj)


def initialized(gang: JsonObject) -> JsonObject:
    """A runtime whose trainer waits for two initializers."""
    trainer = replicated_job(dependsOn=[after("dataset-initializer"), after("model-initializer")])
    obj = runtime_object(DATA, MODEL, trainer)
    obj["spec"] |= gang
    return obj


def after(name: str, status: str = "Complete") -> JsonObject:
    return {"name": name, "status": status}


def group(job: TrainJob, runtime: Runtime, *, listers: Listers = NO_LISTERS) -> JsonObject:
    spec: JsonObject = companion("PodGroup", job, runtime, listers=listers).object["spec"]
    return spec


def resources(job: TrainJob, runtime: Runtime, *, listers: Listers = NO_LISTERS) -> JsonObject:
    found: JsonObject = group(job, runtime, listers=listers)["minResources"]
    return found


def members(obj: JsonObject) -> list[str]:
    """The ReplicatedJobs of a JobSet whose pods name a group."""
    return [each["name"] for each in obj["spec"]["replicatedJobs"] if group_of(each)]


def group_of(replicated: JsonObject) -> str | None:
    """The PodGroup that the pods of a ReplicatedJob name, whichever scheduler it is for."""
    metadata, spec = pod_metadata(replicated), replicated["template"]["spec"]["template"]["spec"]
    marks = {**metadata.get("labels", {}), **metadata.get("annotations", {}), **spec.get("schedulingGroup", {})}
    return next((marks[key] for key in MARKS if key in marks), None)


def pod_metadata(replicated: JsonObject) -> JsonObject:
    found: JsonObject = replicated["template"]["spec"]["template"]["metadata"]
    return found


def asking(requests: JsonObject | None = None, limits: JsonObject | None = None, **pod: Any) -> JsonObject:
    """A trainer whose container asks for resources."""
    job = replicated_job(
        containers=[{"name": "node", "image": "i", "resources": {"requests": requests or {}, "limits": limits or {}}}]
    )
    job["template"]["spec"]["template"]["spec"] |= pod
    return job


def test_the_timeout_is_that_of_the_runtime() -> None:
    assert group(trainjob(), on(gang={"coscheduling": {"scheduleTimeoutSeconds": 5}}))["scheduleTimeoutSeconds"] == 5


def working_through_a_list() -> JsonObject:
    """Towards the end of its list it has fewer pods than its quorum."""
    worker = replicated_job("worker", ancestor=None)
    worker["template"]["spec"] |= {"parallelism": 4, "completions": 10}
    return worker


FIRST, LAST, SERVER = (replicated_job(name, ancestor=None) for name in ("first", "last", "server"))
GANGS: dict[str, tuple[Runtime, int, int, list[str]]] = {
    # B10: they counted for the quorum, but the trainer's pods appear only after they have ended.
    "initializers are not waited for": (
        on(DATA, MODEL, replicated_job(dependsOn=[after("dataset-initializer"), after("model-initializer")])),
        *(3, 3, ["node"]),
    ),
    "initializers that nobody waits for start with the trainer": (
        on(DATA, MODEL, replicated_job(), gang={"volcano": {}}),
        *(32, 34, ["dataset-initializer", "model-initializer", "node"]),
    ),
    "a start-up in order is a chain of dependencies": (
        on(FIRST, replicated_job(), LAST, startupPolicy={"startupPolicyOrder": "InOrder"}),
        *(2, 2, ["node"]),
    ),
    "who waits for somebody who waits for the trainer is no member": (
        on(
            replicated_job(),
            replicated_job("test", ancestor=None, dependsOn=[after("node")]),
            replicated_job("report", ancestor=None, dependsOn=[after("test")]),
            SERVER,
        ),
        *(1, 2, ["node", "server"]),
    ),
    "the trainer is a gang however large its preparation is": (
        on(replicated_job("wide", ancestor=None, replicas=100), replicated_job(dependsOn=[after("wide")])),
        *(2, 2, ["node"]),
    ),
    "who works through a list is not waited for": (on(working_through_a_list(), replicated_job()), 1, 1, ["node"]),
    "all slices of a trainer and all servers count": (
        on(replicated_job(replicas=4), replicated_job("two", ancestor=None, replicas=2), policy={"jax": {}}),
        *(32, 34, ["node", "two"]),
    ),
}


@pytest.mark.defect("B10")
@pytest.mark.parametrize(("runtime", "nodes", "quorum", "gang"), GANGS.values(), ids=GANGS)
def test_those_that_start_together_are_a_gang(runtime: Runtime, nodes: int, quorum: int, gang: list[str]) -> None:
    job = trainjob(trainer={"numNodes": nodes})
    assert group(job, runtime)["minMember"] == quorum
    assert members(jobset(job, runtime)) == gang


def test_a_gang_of_nobody_has_no_group() -> None:
    """The schema of coscheduling refuses a quorum of 0, and nobody has to wait."""
    for scheduler in SCHEDULERS:
        objects = resolve(trainjob(trainer={"numNodes": 0}), on(gang={scheduler: {}}), FRAMEWORK).objects
        assert [desired.identity[1] for desired in objects] == ["JobSet"]
        assert members(objects[0].object) == []


@pytest.mark.defect("B10")
def test_a_launcher_that_waits_for_its_nodes_follows_a_gang_of_nodes() -> None:
    node, launcher = replicated_job(ancestor=None), replicated_job("launcher", dependsOn=[after("node", "Ready")])
    job = trainjob(trainer={"numNodes": 5})
    runtime = on(node, launcher, policy={"mpi": {"runLauncherAsNode": True}})
    assert group(job, runtime)["minMember"] == 4
    assert members(jobset(job, runtime)) == ["node"]
    ((path, message),) = warning_details(job, runtime)
    assert path == "spec.runtimeRef"
    assert message.startswith(
        "replicated job launcher waits for node, so that the gang scheduler cannot start both at once"
    )


@pytest.mark.defect("B10")
def test_a_launcher_that_does_not_wait_is_a_member() -> None:
    runtime = on(replicated_job(ancestor=None), replicated_job("launcher"), policy={"mpi": {"runLauncherAsNode": True}})
    assert group(trainjob(trainer={"numNodes": 5}), runtime)["minMember"] == 5
    assert warning_details(trainjob(), runtime) == []


def test_mpi_nodes_fewer_than_the_runtimes_completions_are_a_gang() -> None:
    """Nodes never work through a list: a rank that comes up only when another has ended is no rank."""
    node = replicated_job("node", ancestor=None)
    node["template"]["spec"] |= {"parallelism": 4, "completions": 4}
    runtime = on(node, replicated_job("launcher"), policy={"mpi": {}})
    job = trainjob(trainer={"numNodes": 2})
    built = jobset(job, runtime)
    assert members(built) == ["node", "launcher"]
    assert group(job, runtime)["minMember"] == 3
    spec = built["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (spec["parallelism"], spec["completions"]) == (2, 2)


@pytest.mark.defect("B22")
def test_a_limit_without_a_request_counts() -> None:
    """B22: GPUs are given as limits, and did not count."""
    runtime = on(asking({"cpu": "1"}, {"cpu": "4", "nvidia.com/gpu": 8}))
    assert resources(trainjob(trainer={"numNodes": 2}), runtime) == {"cpu": "2", "nvidia.com/gpu": "16"}


@pytest.mark.defect("B22")
def test_a_limit_of_a_whole_pod_counts_for_what_no_container_names() -> None:
    runtime = on(asking({"cpu": "1"}, resources={"limits": {"cpu": "4", "memory": "8Gi"}}))
    assert resources(trainjob(), runtime) == {"cpu": "1", "memory": "8Gi"}


def limit_range(name: str, namespace: str = "team", *, kind: str = "Container", **limit: Any) -> JsonObject:
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": metadata,
        "spec": {"limits": [{"type": kind, **limit}]},
    }


@pytest.mark.defect("B21")
def test_limit_ranges_and_runtime_classes_count() -> None:
    """B21: both were watched and never read."""
    listers = FakeListers(
        limit_range("b", defaultRequest={"cpu": "7", "memory": "1Gi"}),
        limit_range("a", defaultRequest={"cpu": "2"}, default={"cpu": "4", "ephemeral-storage": "1Gi"}),
        limit_range("a", namespace="other", defaultRequest={"x": "1"}),
        limit_range("c", kind="Pod", default={"y": "1"}),
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "kata"},
            "overhead": {"podFixed": {"cpu": "250m"}},
        },
    )
    runtime = on(asking({"memory": "3Gi"}, runtimeClassName="kata"))
    assert resources(trainjob(trainer={"numNodes": 2}), runtime, listers=listers) == {
        "cpu": "4500m",
        "memory": "6Gi",
        "ephemeral-storage": "2Gi",
    }


def test_overhead_that_a_runtime_states_itself_stays() -> None:
    runtime = on(asking(runtimeClassName="kata", overhead={"cpu": "1"}))
    assert resources(trainjob(), runtime) == {"cpu": "1"}


def test_a_group_follows_its_trainjob_until_the_workload_runs() -> None:
    """Whoever changes the number of nodes and resumes in one go gets a group of the new size."""
    job = trainjob()

    def when(job: TrainJob, **jobset_spec: Any) -> ApplyWhen:
        running = {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "demo", "namespace": "team", "ownerReferences": [owner_reference(job)]},
            "spec": jobset_spec,
        }
        return companion("PodGroup", job, on(), listers=FakeListers(running)).when

    assert companion("PodGroup", job, on()).when is ApplyWhen.ALWAYS
    assert when(job, suspend=True) is ApplyWhen.ALWAYS
    assert when(trainjob(suspend=True)) is ApplyWhen.ALWAYS
    assert when(job, suspend=False) is ApplyWhen.MISSING


@pytest.mark.defect("U18")
def test_two_schedulers_are_refused_once() -> None:
    """U18: a group was made for each, although a pod has one scheduler."""
    both = on(gang={"coscheduling": {}, "volcano": {}})
    with pytest.raises(
        PluginFailed, match=r"sets both podGroupPolicy\.coscheduling and podGroupPolicy\.volcano"
    ) as failed:
        resolve(trainjob(), both, FRAMEWORK)
    assert isinstance(failed.value.__cause__, Rejected)
    assert error_details(trainjob(), both) == [("spec.runtimeRef", str(failed.value))]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_policy_whose_plugin_is_disabled_is_refused(scheduler: str) -> None:
    """Run without its gang, the job might block others for ever."""
    framework = Framework(load_plugins(disabled=frozenset({scheduler})))
    with pytest.raises(PolicyUnserved, match=rf"no installed plugin serves podGroupPolicy\.{scheduler}"):
        resolve(trainjob(), on(gang={scheduler: {}}), framework)


@pytest.mark.defect("U17")
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_scheduler_may_be_installed_later(scheduler: str) -> None:
    kinds = [watch for watch in FRAMEWORK.watches() if watch.kind == "PodGroup" and scheduler[:7] in watch.api_version]
    assert all(watch.optional for watch in kinds)


@st.composite
def _gangs(draw: st.DrawFn) -> JsonObject:
    """A runtime of several ReplicatedJobs that depend on earlier ones in any way."""
    jobs: list[JsonObject] = []
    ancestors = draw(st.permutations(["trainer", None, "dataset-initializer", "model-initializer", None]))
    for index, ancestor in enumerate(ancestors[: draw(st.integers(1, 5))]):
        containers = [{"name": "node", "image": "i", "resources": draw(RESOURCES)}]
        name = "node" if ancestor == "trainer" else f"job-{index}"
        status = st.sampled_from(["Ready", "Complete"])
        names = draw(st.lists(st.sampled_from([each["name"] for each in jobs]), unique=True)) if jobs else []
        job = replicated_job(name, ancestor=ancestor, containers=containers)
        if names:
            job["dependsOn"] = [after(each, draw(status)) for each in names]
        if ancestor is None:
            job["replicas"] = draw(st.integers(0, 3))
            job["template"]["spec"] |= {"parallelism": draw(st.integers(1, 3)), "completions": draw(st.integers(1, 5))}
        jobs.append(job)
    order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}} if draw(st.booleans()) else {}
    obj = runtime_object(*jobs, **order)
    scheduler = draw(st.sampled_from([*SCHEDULERS, "Kubernetes"]))
    obj["spec"] |= {"scheduling": {}} if scheduler == "Kubernetes" else {"podGroupPolicy": {scheduler: {}}}
    return obj


def quorum_of(spec: JsonObject) -> int:
    """How many pods a PodGroup waits for."""
    policy = spec.get("schedulingPolicy") or {"gang": {"minCount": spec.get("minMember")}}
    return int(policy["gang"]["minCount"]) if "gang" in policy else 0


@pytest.mark.defect("B10")
@given(trainjobs(), _gangs())
@example(trainjob_object(trainer={"numNodes": 3}), initialized({"scheduling": {}}))
@example(trainjob_object(trainer={"numNodes": 3}), initialized({"podGroupPolicy": {"coscheduling": {}}}))
@example(trainjob_object(trainer={"numNodes": 3}), initialized({"podGroupPolicy": {"volcano": {}}}))
def test_a_quorum_can_always_come_together(raw_job: JsonObject, raw_runtime: JsonObject) -> None:
    """Simulates JobSet: everybody starts whose dependencies have come far enough, gangs when they are complete."""
    raw_job["spec"].pop("suspend", None)  # what is suspended has no groups of Kubernetes
    check_that_resolving_is_pure(raw_job, raw_runtime, WITH_WORKLOAD)
    resolution = resolve(parse_trainjob(raw_job), parse_runtime(raw_runtime), WITH_WORKLOAD)
    objects = [desired.object for desired in resolution.objects]
    obj = next(each for each in objects if each["kind"] == "JobSet")
    jobs = {each["name"]: each for each in obj["spec"]["replicatedJobs"]}
    quorums = {each["metadata"]["name"]: quorum_of(each["spec"]) for each in objects if each["kind"] == "PodGroup"}
    of = {name: group_of(each) for name, each in jobs.items()}
    assert {each for each in of.values() if each} == quorums.keys()
    in_order = obj["spec"].get("startupPolicy", {}).get("startupPolicyOrder") == "InOrder"
    sizes = {name: each.get("replicas", 1) * each["template"]["spec"]["parallelism"] for name, each in jobs.items()}
    members = {group: [name for name in jobs if of[name] == group] for group in quorums}
    started: set[str] = set()
    present: set[str] = set()
    while started != jobs.keys():
        for index, (name, each) in enumerate(jobs.items()):
            awaited = {d["name"] for d in each.get("dependsOn", [])} | (set(list(jobs)[:index]) if in_order else set())
            if awaited <= started:
                present.add(name)
        complete = {
            group
            for group, names in members.items()
            if sum(sizes[name] for name in present.intersection(names)) >= quorums[group]
        }
        runnable = {name for name in present - started if of[name] is None or of[name] in complete}
        assert runnable, f"{of} never comes together"
        started |= runnable
    for group, quorum in quorums.items():
        assert quorum in {0, sum(sizes[name] for name in members[group])}
