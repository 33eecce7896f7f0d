"""Resource claims: how they are merged, what is refused, and how the GPUs are counted that they give."""

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.objects import replicated_job, runtime, trainjob, trainjob_object
from support.resolutions import FRAMEWORK, Runtime, container, entropy, env, error_details, job_spec, jobset

from trainmaster.plugins.claims import GPU_DEVICE_CLASSES
from trainmaster.runtime.api.decoding import parse_runtime, parse_trainjob
from trainmaster.runtime.api.trainjob import TrainJob
from trainmaster.runtime.framework import Framework, PluginFailed, PluginInvalid, load_plugins
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS, Listers, NoListers
from trainmaster.runtime.resolver import new_info, resolve
from trainmaster.runtime.yamltext import load_yaml_documents

GPU = "gpu.nvidia.com"
FIELD = "spec.trainer.resourceClaimsPerNode"


class Cluster(NoListers):
    """Listers: ResourceClaims and ResourceClaimTemplates of the namespace `team`."""

    def __init__(self, **specs: JsonObject) -> None:
        self._specs = specs

    def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> JsonObject | None:
        assert namespace == "team"
        if api_version != "resource.k8s.io/v1" or name not in self._specs:
            return None
        found = self._specs[name]
        return {"kind": kind, "spec": found if kind == "ResourceClaim" else {"spec": found}}


def asking(*requests: JsonObject) -> JsonObject:
    """The spec of a claim."""
    return {"devices": {"requests": list(requests)}}


def request(count: int | None = None, name: str = "r", device_class: str = GPU, **exactly: Any) -> JsonObject:
    counted = {} if count is None else {"count": count}
    return {"name": name, "exactly": {"deviceClassName": device_class, **counted, **exactly}}


def template(name: str = "gpus", *, template: str = "four") -> JsonObject:
    return {"name": name, "resourceClaimTemplateName": template}


def claiming(*claims: JsonObject, **trainer: Any) -> TrainJob:
    """A TrainJob whose nodes make claims."""
    return trainjob(trainer={"resourceClaimsPerNode": list(claims), **trainer})


def with_claims(
    *claims: JsonObject, used: Iterable[JsonObject] = (), policy: JsonObject | None = None, **resources: Any
) -> Runtime:
    """A runtime whose pods declare claims, and whose containers `node` and `side` are there to use them."""
    main: JsonObject = {"name": "node", "image": "i", "resources": {**resources}}
    if used:
        main["resources"]["claims"] = list(used)
    job = replicated_job(containers=[main, {"name": "side", "image": "i"}])
    if claims:
        job["template"]["spec"]["template"]["spec"]["resourceClaims"] = list(claims)
    return runtime(job, policy={"torch": {}} if policy is None else policy)


def patch(*claims: JsonObject) -> JsonObject:
    job = {"name": "node", "template": {"spec": {"template": {"spec": {"resourceClaims": list(claims)}}}}}
    return {"manager": "acme.io/x", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


def pod(obj: JsonObject) -> JsonObject:
    found: JsonObject = job_spec(obj)["template"]["spec"]
    return found


def used_by(obj: JsonObject, index: int = 0) -> list[JsonObject]:
    found: list[JsonObject] = container(obj, index=index).get("resources", {}).get("claims", [])
    return found


def warnings(job: TrainJob, on: Runtime, listers: Listers = NO_LISTERS) -> list[tuple[str, str]]:
    errors, found = FRAMEWORK.validate(new_info(job, on), job, None, listers)
    assert not errors
    return [(each.path, each.detail) for each in found]


def workers(job: TrainJob, on: Runtime, listers: Listers, framework: Framework = FRAMEWORK) -> str:
    """How many processes a node of XGBoost is told to have."""
    built = resolve(job, on, framework, listers=listers).objects[0].object
    return str(env(container(built))["DMLC_NUM_WORKER"])


# Merging


@pytest.mark.parametrize("user", ["node", "side"])
def test_a_claim_of_the_trainjob_is_declared_and_used(user: str) -> None:
    """By the containers that it names and no others, and by that of the trainer where it names none."""
    named = {} if user == "node" else {"containerNames": [user]}
    result = jobset(claiming({**template(), **named}), with_claims())
    assert pod(result)["resourceClaims"] == [template()]
    used = [used_by(result), used_by(result, 1)]
    assert used == ([[{"name": "gpus"}], []] if user == "node" else [[], [{"name": "gpus"}]])


def test_the_trainjob_wins_over_patches_and_they_over_the_runtime() -> None:
    """Each replaces the claim as a whole: merged by fields it would have two sources."""
    on = with_claims({"name": "gpus", "resourceClaimName": "runtimes"}, template("other"), used=[{"name": "gpus"}])
    patched = trainjob(runtimePatches=[patch(template(template="patched"))])
    assert pod(jobset(patched, on))["resourceClaims"] == [template(template="patched"), template("other")]
    both = trainjob(
        runtimePatches=[patch(template(template="patched"))],
        trainer={
            "resourceClaimsPerNode": [{"name": "gpus", "resourceClaimName": "mine", "resourceClaimTemplateName": ""}]
        },
    )
    assert {"name": "gpus", "resourceClaimName": "mine"} in pod(jobset(both, on))["resourceClaims"]
    assert len(pod(jobset(both, on))["resourceClaims"]) == 2


def test_a_container_keeps_the_request_that_it_uses() -> None:
    on = with_claims(template(), used=[{"name": "gpus", "request": "big"}])
    assert used_by(jobset(claiming(template(template="mine")), on)) == [{"name": "gpus", "request": "big"}]


@pytest.mark.defect("B15")
def test_claims_stay_when_resources_are_merged() -> None:
    """B15: only limits and requests were written back."""
    on = with_claims(template("a"), template("b"), used=[{"name": "a"}], limits={"cpu": 1})
    job = trainjob(trainer={"resourcesPerNode": {"limits": {"cpu": 2}, "claims": [{"name": "b"}]}})
    assert container(jobset(job, on))["resources"] == {"limits": {"cpu": "2"}, "claims": [{"name": "a"}, {"name": "b"}]}


def test_only_pods_that_train_get_the_claims() -> None:
    """With MPI these are the nodes; a launcher that is no node has nothing to do with devices."""
    launcher = replicated_job("launcher")
    on = runtime(replicated_job("node", ancestor=None), launcher, policy={"mpi": {}})
    built = resolve(claiming(template(), numNodes=2), on, FRAMEWORK).objects
    result = next(each.object for each in built if each.object["kind"] == "JobSet")
    assert used_by(result) == [{"name": "gpus"}]
    assert "resourceClaims" not in job_spec(result, 1)["template"]["spec"]


# Refusals


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"name": "gpus"}, "must have exactly one of resourceClaimName and resourceClaimTemplateName, and has none"),
        ({"name": "gpus", "resourceClaimName": ""}, "and has none"),
        ({**template(), "resourceClaimName": "c"}, "and has both"),
    ],
)
@pytest.mark.parametrize("place", ["trainer", "patch", "runtime"])
def test_a_claim_has_exactly_one_source(claim: JsonObject, message: str, place: str) -> None:
    """The empty text counts as none. The field where the claim comes from is named, and building refuses as well."""
    job, on = trainjob(), with_claims(used=[{"name": "gpus"}])
    path = "spec.runtimeRef"
    if place == "trainer":
        job, path = claiming(claim), f"{FIELD}[0]"
    elif place == "patch":
        job, path = trainjob(runtimePatches=[patch(claim)]), "spec.runtimePatches[0]"
    else:
        on = with_claims(claim, used=[{"name": "gpus"}])
    ((where, said),) = error_details(job, on)
    assert where == path
    assert said.startswith('the claim "gpus" of the ReplicatedJob "node" ')
    assert said.endswith(message)
    with pytest.raises(PluginFailed, match=f"the claim .* {message}$") as failed:
        resolve(job, on, FRAMEWORK)
    assert failed.value.rejected


def test_names_are_unique_and_such_that_pods_can_have_them() -> None:
    twice = claiming(template(), template(template="other"))
    assert error_details(twice, with_claims()) == [(f"{FIELD}[1].name", "must be unique: another claim has this name")]
    on = with_claims(template(), template(template="other"), used=[{"name": "gpus"}])
    ((path, message),) = error_details(trainjob(), on)
    assert path == "spec.runtimeRef"
    assert message == 'the ReplicatedJob "node" declares the claim "gpus" 2 times; names must be unique'
    assert not error_details(claiming(template("a"), template("b")), with_claims())
    ((path, message),) = error_details(claiming(template("My_Claim")), with_claims())
    assert path == f"{FIELD}[0].name"
    assert "lower" in message


def test_what_containers_use_is_declared() -> None:
    on = with_claims(template(), used=[{"name": "gpu"}])
    expected = (
        'the container "node" of the ReplicatedJob "node" uses the claim "gpu", which its pod does not declare '
        '(did you mean "gpus"?)'
    )
    assert error_details(trainjob(), on) == [("spec.runtimeRef", expected)]
    with pytest.raises(PluginFailed, match="which its pod does not declare"):
        resolve(trainjob(), on, FRAMEWORK)
    # After the merge it is declared.
    assert not error_details(claiming(template("gpu")), on)
    assert not error_details(trainjob(runtimePatches=[patch(template("gpu"))]), on)


def test_what_the_trainjob_asks_for_is_declared() -> None:
    job = trainjob(trainer={"resourcesPerNode": {"claims": [{"name": "gpus"}]}})
    ((path, message),) = error_details(job, with_claims())
    assert path == "spec.trainer.resourcesPerNode.claims"
    assert message.endswith(f"(there are none); declare it in {FIELD}")
    assert not error_details(job, with_claims(template()))


def test_containers_that_shall_use_a_claim_exist() -> None:
    ((path, message),) = error_details(claiming({**template(), "containerNames": ["node", "sid"]}), with_claims())
    assert path == f"{FIELD}[0].containerNames[1]"
    assert message == 'the ReplicatedJob "node" has no such container (did you mean "side"?)'
    assert not error_details(claiming({**template(), "containerNames": ["node", "side"]}), with_claims())


# Counting


COUNTS: list[tuple[str, JsonObject, int]] = [
    ("a number", asking(request(4)), 4),
    ("one by default", asking(request()), 1),
    ("all requests", asking(request(4), request(2, "s")), 6),
    ("only GPUs", asking(request(4), request(2, "s", "nic.example.com")), 4),
    ("amd", asking(request(3, device_class="gpu.amd.com")), 3),
    ("slices of GPUs", asking(request(3, device_class="mig.nvidia.com")), 3),
    ("not those of administrators", asking(request(4), request(8, "watch", adminAccess=True)), 4),
    (
        "alternatives that agree",
        asking({"name": "r", "firstAvailable": [{"name": n, "deviceClassName": GPU, "count": 2} for n in "ab"]}),
        2,
    ),
]


@pytest.mark.parametrize(("spec", "count"), [each[1:] for each in COUNTS], ids=[each[0] for each in COUNTS])
@pytest.mark.parametrize("source", ["resourceClaimName", "resourceClaimTemplateName"])
def test_gpus_of_claims_are_counted(source: str, spec: JsonObject, count: int) -> None:
    job = claiming({"name": "gpus", source: "four"})
    for policy, variable, value in (
        ("xgboost", "DMLC_NUM_WORKER", str(count)),
        ("torch", "PET_NPROC_PER_NODE", "auto"),  # torchrun sees the devices that there are
    ):
        built = resolve(job, with_claims(policy={policy: {}}), FRAMEWORK, listers=Cluster(four=spec)).objects
        assert env(container(built[0].object))[variable] == value
    assert not warnings(job, with_claims(), Cluster(four=spec))


def test_only_the_request_that_the_container_uses_counts() -> None:
    alternatives = {
        "name": "or",
        "firstAvailable": [
            {"name": "big", "deviceClassName": GPU},
            {"name": "small", "deviceClassName": GPU, "count": 7},
        ],
    }
    listers = Cluster(four=asking(request(4, "a"), request(2, "b"), alternatives))

    def counted(request: str) -> str:
        used = [{"name": "gpus", "request": request}]
        return workers(trainjob(), with_claims(template(), used=used, policy={"xgboost": {}}), listers)

    assert [counted(name) for name in ("a", "b", "or/small")] == ["4", "2", "7"]


@pytest.mark.parametrize(
    ("policy", "read"),
    [
        ({"mpi": {}}, lambda objects: objects["ConfigMap"]["data"]["hostfile"].split()[1] == "slots=4"),
        ({"flux": {}}, lambda objects: "--gpus=0-3" in objects["ConfigMap"]["data"]["entrypoint.sh"]),
    ],
    ids=["mpi", "flux"],
)
def test_other_frameworks_count_them_as_well(policy: JsonObject, read: Any) -> None:
    listers = Cluster(four=asking(request(4)))
    objects = resolve(claiming(template()), with_claims(policy=policy), FRAMEWORK, listers=listers).objects
    assert read({each.object["kind"]: each.object for each in objects})


def test_which_classes_are_gpus_is_configured() -> None:
    """Administrators name their classes as they like; a part of the name proves nothing."""
    listers = Cluster(four=asking(request(4, device_class="h100.team.example")))
    job, on = claiming(template()), with_claims(policy={"xgboost": {}})

    def counted(**options: Any) -> str:
        framework = Framework(load_plugins(options={"claims": options, "mpi": {"entropy": entropy}}))
        return workers(job, on, listers, framework)

    assert counted() == "1"
    assert counted(gpu_device_classes=["h100.team.example"]) == "4"
    assert counted(gpu_device_classes=["h*.team.example"]) == "4"
    assert counted(gpu_device_classes=["team"]) == "1"
    with pytest.raises(PluginInvalid, match="gpu_device_classes must be a list of names"):
        load_plugins(options={"claims": {"gpu_device_classes": GPU}})


def test_torchtune_is_validated_with_the_gpus_of_claims() -> None:
    """QLoRA runs on one device, and validators see how many there are."""
    arguments = ["model.lora_attn_modules=[q]", "model.quantize_base=True"]
    trainer = {"command": ["tune", "run"], "args": arguments, "resourceClaimsPerNode": [template()]}
    raw = trainjob_object(trainer=trainer)
    raw["spec"]["runtimeRef"]["name"] = "torchtune-llama3.2-1b"
    job = parse_trainjob(raw)

    def refused(count: int) -> bool:
        listers = Cluster(four=asking(request(count)))
        errors, _ = FRAMEWORK.validate(new_info(job, with_claims()), job, None, listers)
        return bool(errors)

    assert [refused(count) for count in (1, 2)] == [False, True]


# Warnings


UNKNOWN = [
    ({}, 'ResourceClaimTemplate "four" was not found in namespace "team"'),
    ({"four": asking(request(allocationMode="All"))}, "asks for all devices of a node"),
    (
        {"four": asking(request(2, device_class="tpu.google.com"))},
        "no device of its claims is of a class that is known",
    ),
    (
        {
            "four": asking(
                {"name": "r", "firstAvailable": [{"name": str(n), "deviceClassName": GPU, "count": n} for n in (1, 2)]}
            )
        },
        'leaves it open how many devices request "r" gets',
    ),
]


@pytest.mark.parametrize(("specs", "reason"), UNKNOWN)
@pytest.mark.parametrize("policy", ["torch", "mpi", "flux", "xgboost"])
def test_processes_that_cannot_be_derived_are_warned_about(specs: JsonObject, reason: str, policy: str) -> None:
    ((path, message),) = warnings(claiming(template()), with_claims(policy={policy: {}}), Cluster(**specs))
    assert path == f"{FIELD}[0]"
    assert reason in message
    assert ("set spec.trainer.numProcPerNode" in message) is (policy != "xgboost")


@pytest.mark.parametrize(
    ("job", "policy"),
    [
        (claiming(template(), numProcPerNode=4), {"torch": {}}),
        (claiming(template(), numProcPerNode=4), {"mpi": {}}),
        (claiming(template()), {"torch": {"numProcPerNode": 4}}),
        (claiming(template()), {"torch": {"numProcPerNode": "gpu"}}),
        (claiming(template()), {"mpi": {"numProcPerNode": 4}}),
        (claiming(template()), {"jax": {}}),
        (claiming(template()), {"numNodes": 1}),
        (claiming(template(), resourcesPerNode={"limits": {"google.com/tpu": 4}}), {"torch": {}}),
    ],
)
def test_who_does_not_depend_on_the_number_is_not_warned(job: TrainJob, policy: JsonObject) -> None:
    assert not warnings(job, with_claims(policy=policy))


def test_a_claim_that_nobody_uses_is_warned_about() -> None:
    ((path, message),) = warnings(trainjob(runtimePatches=[patch(template("spare"))]), with_claims())
    assert path == "spec.runtimePatches[0]"
    assert 'declares the claim "spare", and no container uses it' in message
    assert not warnings(claiming({**template(), "containerNames": ["side"]}), with_claims())


def test_devices_that_are_requested_twice_are_warned_about() -> None:
    listers = Cluster(four=asking(request(4)))
    on = with_claims(limits={"nvidia.com/gpu": 2})
    ((path, message),) = warnings(claiming(template()), on, listers)
    assert path == f"{FIELD}[0]"
    assert "asks for 2 GPUs by its resources and for 4 by claims, and gets both" in message
    assert not warnings(claiming(template()), with_claims(), listers)


def test_claims_without_a_trainer_are_warned_about() -> None:
    on = runtime(replicated_job("aux", ancestor=None))
    assert warnings(claiming(template()), on) == [(FIELD, "has no effect: the runtime has no trainer")]


def test_the_guide_is_true() -> None:
    """Its example is admitted without a warning, and each node has four GPUs."""
    text = (Path(__file__).parents[2] / "docs/dynamic-resources.md").read_text()
    example = text.partition("```yaml\n")[2].partition("```")[0]
    template, raw = [document for _, document in load_yaml_documents(example)]
    raw["metadata"] |= {"namespace": "team", "uid": "u"}
    job, on = parse_trainjob(raw), with_claims(policy={"xgboost": {}})
    listers = Cluster(**{template["metadata"]["name"]: template["spec"]["spec"]})
    assert not warnings(job, on, listers)
    assert workers(job, on, listers) == "8"
    assert all(f"`{name}`" in text for name in GPU_DEVICE_CLASSES)


# Purity


NAMES = st.sampled_from(["a", "b", "c"])
CLAIMS = st.lists(
    st.one_of(NAMES.map(template), NAMES.map(lambda name: {"name": name, "resourceClaimName": "shared"})),
    max_size=3,
    unique_by=lambda claim: claim["name"],
)


@settings(max_examples=100)
@given(runtimes=CLAIMS, used=st.lists(NAMES, max_size=2, unique=True), patched=CLAIMS, trainers=CLAIMS)
def test_merging_claims_is_pure_and_loses_none(
    runtimes: list[JsonObject], used: list[str], patched: list[JsonObject], trainers: list[JsonObject]
) -> None:
    raw_runtime = with_claims(*runtimes, used=[{"name": name} for name in used]).to_json()
    raw_job = trainjob_object(trainer={"resourceClaimsPerNode": trainers}, runtimePatches=[patch(*patched)])
    before = copy.deepcopy((raw_runtime, raw_job))
    listers = Cluster(four=asking(request(4)))
    outcomes = []
    for _ in range(2):
        try:
            objects = resolve(parse_trainjob(raw_job), parse_runtime(raw_runtime), FRAMEWORK, listers=listers).objects
        except PluginFailed as failed:
            outcomes.append(str(failed).encode())
        else:
            outcomes.append(orjson.dumps(objects[0].object))
    assert outcomes[0] == outcomes[1]
    assert (raw_runtime, raw_job) == before
    wanted = {claim["name"]: claim for claim in [*runtimes, *patched, *trainers]}
    dangling = set(used) - wanted.keys()
    assert outcomes[0].startswith(b"{") is not bool(dangling)
    if not dangling:
        declared = pod(orjson.loads(outcomes[0])).get("resourceClaims", [])
        assert {claim["name"]: claim for claim in declared} == wanted
        assert len(declared) == len(wanted)
        users = [each["name"] for each in used_by(orjson.loads(outcomes[0]))]
        assert sorted(users) == sorted({*used, *(claim["name"] for claim in trainers)})
