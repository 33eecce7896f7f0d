"""The rules of the Trainer API that the API server itself keeps: each with what it lets through and what it refuses.

Limits that are no rules are those of the original: `tests/runtime/api/test_crds.py`; what a server makes of them:
`test_schemas.py`.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from support.commands import eventually
from support.conformance import Client, Collection, Target, condition_of, connected, definitions
from support.original_crds import TRAINING
from support.original_crds import definitions as all_definitions

from trainmaster.runtime.jsontree import JsonObject

API_VERSION = "trainer.kubeflow.org/v1alpha1"
FILES = sorted((Path(__file__).resolve().parents[2] / "deploy/crds").glob("trainer.*.yaml"))
POD_PATCH = "template.spec.replicatedJobs.0.template.spec.template.spec"


def _node(pod: JsonObject) -> JsonObject:
    """The spec of a runtime with one replicated job, at `POD_PATCH` of which is the spec of its pods."""
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    return {"template": {"spec": {"replicatedJobs": [job]}}}


def _object(kind: str, name: str, spec: JsonObject) -> JsonObject:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


TRAINJOB = _object("TrainJob", "job", {"runtimeRef": {"name": "rt"}})
RUNTIME = _object("TrainingRuntime", "rt", _node({"containers": [{"name": "node", "image": "a"}]}))
OPTIMIZATION = _object(
    "OptimizationJob",
    "search",
    {
        "objectives": [{"metric": "loss"}],
        "parameters": [{"name": "lr", "searchSpace": {"uniform": {"min": "0.1", "max": "1"}}}],
        "trainJobTemplate": {"spec": {"runtimeRef": {"name": "rt"}}},
    },
)
BASES = {obj["kind"]: obj for obj in (TRAINJOB, RUNTIME, OPTIMIZATION)}
PATCH = {
    "manager": "acme.io/a",
    "trainingRuntimeSpec": _node(
        {
            "serviceAccountName": "a",
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsUser": 1},
            "imagePullSecrets": [{"name": "a"}],
            "volumes": [{"name": "a", "emptyDir": {}}],
            "containers": [{"name": "a", "env": [{"name": "A", "value": "1"}]}],
            "initContainers": [{"name": "a", "env": [{"name": "A", "value": "1"}]}],
            "nodeSelector": {"a": "1"},
            "tolerations": [{"key": "a"}],
        }
    ),
}
FIXED = "field is immutable"


def changed(obj: JsonObject, changes: dict[str, Any]) -> JsonObject:
    """Return a copy with values set at dotted paths; ... removes."""
    copy = deepcopy(obj)
    for path, value in changes.items():
        node: Any = copy
        *parents, last = path.split(".")
        for step in parents:
            node = node[int(step)] if step.isdigit() else node.setdefault(step, {})
        key: Any = int(last) if last.isdigit() else last
        if value is ...:
            del node[key]
        else:
            node[key] = deepcopy(value)
    return copy


class Case(NamedTuple):
    """One rule: what it lets through, what it refuses, and what it says then."""

    kind: str
    accepted: dict[str, Any]
    refused: dict[str, Any]
    message: str
    base: dict[str, Any] = {}  # noqa: RUF012 - never changed


def _claims(*claims: dict[str, Any], patched: bool = False) -> dict[str, Any]:
    if not patched:
        return {"spec.trainer.resourceClaimsPerNode": list(claims)}
    patch = changed(PATCH, {f"trainingRuntimeSpec.{POD_PATCH}": {"resourceClaims": list(claims)}})
    return {"spec.runtimePatches": [patch]}


def _group_claims(*claims: dict[str, Any]) -> dict[str, Any]:
    rules = {"resourceClaims": list(claims)}
    entries = [{"targetReplicatedJobs": ["node"], **rules}, {"targetReplicatedJobs": ["more"], "job": rules}]
    return {"spec.scheduling": {"replicatedJobs": entries}}


def _claim_cases(kind: str, claims: Callable[..., dict[str, Any]]) -> list[Case]:
    """The rules on claims, which hold for those of the trainer, of patches and of groups."""
    claim, template = {"name": "a", "resourceClaimName": "c"}, {"name": "a", "resourceClaimTemplateName": "t"}
    one = "one of resourceClaimName and resourceClaimTemplateName must be set"
    both = "only one of resourceClaimName and resourceClaimTemplateName can be set"
    pairs = [
        ([claim], [{"name": "a"}], one),
        ([claim | {"resourceClaimTemplateName": ""}], [claim | {"resourceClaimName": ""}], one),
        ([template | {"resourceClaimName": ""}], [claim | template], both),
    ]
    return [Case(kind, claims(*good), claims(*bad), message) for good, bad, message in pairs]


# The rules of one field: where it is, a value that is let through, one that is refused, and what is said then.
FIELDS: dict[str, list[tuple[str, Any, Any, str]]] = {
    "TrainJob": [
        ("metadata.name", "a-1", "1-a", "metadata.name must match RFC 1035"),
        ("metadata.name", "a" * 63, "a" * 64, "must be no more than 63 characters"),
        (
            "spec.initializer.dataset.storageUri",
            "hf://org/data",
            "org/data",
            "storageUri may be empty, or it must be a valid URI",
        ),
        ("spec.initializer.model.storageUri", "", "hf:/one", "storageUri may be empty, or it must be a valid URI"),
        (
            "spec.managedBy",
            "kueue.x-k8s.io/multikueue",
            "acme.io/other",
            "ManagedBy must be trainer.kubeflow.org/trainjob-controller or kueue.x-k8s.io/multikueue if set",
        ),
        ("spec.trainer.numProcPerNode", 1, 0, "numProcPerNode must be greater than or equal to 1"),
        (
            "spec.trainer.elasticPolicy",
            {"minNodes": 1, "maxNodes": 2},
            {"minNodes": 2, "maxNodes": 1},
            "minNodes must not be greater than maxNodes",
        ),
    ],
    "TrainingRuntime": [
        ("spec.mlPolicy", {"torch": {}}, {"torch": {}, "jax": {}}, "Only one of the policy can be configured"),
        (
            "spec.mlPolicy.torch.elasticPolicy",
            {"minNodes": 1, "maxNodes": 2},
            {"minNodes": 2, "maxNodes": 1},
            "minNodes must not be greater than maxNodes",
        ),
        ("spec.mlPolicy.flux.numProcPerNode", 1, 0, "NumProcPerNode in fluxPolicy must be >= 1"),
        ("spec.mlPolicy.mpi.numProcPerNode", 1, 0, "NumProcPerNode in mpiPolicy must be >= 1"),
        (
            "spec.mlPolicy.torch.envInjection.targets",
            [{"jobName": "a", "containerNames": ["b"]}],
            [{"jobName": "a", "containerNames": ["node"]}],
            "containerNames must not include the main node container",
        ),
        (
            "spec.template.spec.volumeClaimPolicies",
            [{"templates": [{"metadata": {"name": "a"}}]}],
            [{"templates": [{"metadata": {"name": "a", "namespace": "b"}}]}],
            "namespace cannot be set for VolumeClaimPolicies templates",
        ),
    ],
    "OptimizationJob": [
        (
            "spec.objectives",
            [{"metric": "loss"}],
            [{"metric": "loss"}, {"metric": "time"}],
            "Too many: 2: must have at most 1 item",
        ),
        ("spec.objectives.0.direction", "Maximize", "Sideways", 'supported values: "Maximize", "Minimize"'),
        ("spec.numTrials", 100, 101, "less than or equal to 100"),
        (
            "spec.searchAlgorithm",
            {"random": {"seed": 1}},
            {"random": {}, "grid": {}},
            "exactly one of the fields in [random grid] must be set",
        ),
        ("spec.parameters.0.name", "_lr2", "2lr", "should match"),
        (
            "spec.trainJobTemplate.metadata",
            {"labels": {"a": "b"}},
            {"name": "a"},
            "name and namespace cannot be set in a template.",
        ),
        (
            "spec.trainJobTemplate.spec.trainer.numProcPerNode",
            1,
            0,
            "numProcPerNode must be greater than or equal to 1",
        ),
    ],
}
SPACES = [
    (
        {"logUniform": {"min": "1e-5", "max": "1e-1"}},
        {"uniform": {"min": "0", "max": "1"}, "categorical": {"choices": ["a"]}},
        "exactly one of the fields in [uniform logUniform categorical] must be set",
    ),
    # They are numbers, not texts.
    *(
        (
            {"uniform": {"min": "-1", "max": "1"}},
            {"uniform": {"min": low, "max": high}},
            "min must be strictly less than max",
        )
        for low, high in (("1", "1"), ("10", "9"))
    ),
    (
        {"logUniform": {"min": "0.1", "max": "1"}},
        {"logUniform": {"min": "0", "max": "1"}},
        "min must be strictly greater than 0",
    ),
    ({"uniform": {"min": "1E+2", "max": "1e3"}}, {"uniform": {"min": "01", "max": "2"}}, "should match"),
]
CREATION = [
    *_claim_cases("TrainJob", _claims),
    *_claim_cases("TrainJob", partial(_claims, patched=True)),
    *_claim_cases("TrainingRuntime", _group_claims),
    *(
        Case(
            "TrainJob",
            {"spec.initializer.model.storageUri": "s3+x.y-z://é"},
            {"spec.initializer.model.storageUri": uri},
            "storageUri may be empty, or it must be a valid URI",
        )
        for uri in ("://a", "hf://", "1x://a", " hf://a", "hf://\n")
    ),
    *(
        Case(
            "TrainingRuntime",
            {f"spec.{policy}": {"custom": {"name": "acme"}}},
            {f"spec.{policy}": {"custom": {"name": "acme"}, other: {}}},
            "Only one of the policy can be configured",
        )
        for policy, other in (("mlPolicy", "jax"), ("podGroupPolicy", "volcano"), ("podGroupPolicy", "coscheduling"))
    ),
    *(
        Case(
            "TrainingRuntime",
            {"spec.mlPolicy.torch.numProcPerNode": good},
            {"spec.mlPolicy.torch.numProcPerNode": bad},
            "NumProcPerNode in torchPolicy must be auto, cpu, gpu or an integer >= 1",
        )
        for good, bad in ((1, 0), ("auto", "many"), ("gpu", "2"), ("cpu", -1))
    ),
    Case(
        "TrainingRuntime",
        {"spec.template.spec.startupPolicy": {"startupPolicyOrder": "AnyOrder"}},
        {"spec.template.spec.startupPolicy": {"startupPolicyOrder": "InOrder"}},
        "StartupPolicy and DependsOn APIs are mutually exclusive",
        base={"spec.template.spec.replicatedJobs.0.dependsOn": [{"name": "a", "status": "Ready"}]},
    ),
    Case("OptimizationJob", {}, {"spec": ...}, "spec: Required value"),
    Case("OptimizationJob", {}, {"spec.objectives": []}, "should have at least 1 items"),
    Case(
        "OptimizationJob",
        {"spec.numTrials": 4, "spec.parallelTrials": 4},
        {"spec.numTrials": 4, "spec.parallelTrials": 5},
        "parallelTrials cannot exceed numTrials",
    ),
    Case(
        "OptimizationJob",
        {"spec.searchAlgorithm": {"grid": {}}, "spec.parameters.0.searchSpace": {"categorical": {"choices": ["a"]}}},
        {"spec.searchAlgorithm": {"grid": {}}},
        "Grid search requires all parameters to be Categorical",
    ),
    *(
        Case(
            "OptimizationJob", {"spec.parameters.0.searchSpace": good}, {"spec.parameters.0.searchSpace": bad}, message
        )
        for good, bad, message in SPACES
    ),
    *(
        Case(kind, {path: good}, {path: bad}, message)
        for kind, fields in FIELDS.items()
        for path, good, bad, message in fields
    ),
]


def _change(path: str, value: Any, *, accepted: Any, refused: Any, message: str = FIXED) -> Case:
    return Case("TrainJob", {path: accepted}, {path: refused}, message, base={path: value})


_PATCHES = "spec.runtimePatches.0.trainingRuntimeSpec." + POD_PATCH
UPDATES = [
    Case("TrainJob", {"spec.suspend": True}, {"spec.runtimeRef.name": "other"}, FIXED),
    _change("spec.trainer.image", "a", accepted="a", refused="b"),
    Case("TrainJob", {"spec.trainer": ...}, {"spec.trainer.image": "b"}, FIXED, base={"spec.trainer.image": "a"}),
    Case(
        "TrainJob",
        {"spec.initializer": ...},
        {"spec.initializer.model.storageUri": "hf://b"},
        FIXED,
        base={"spec.initializer.model.storageUri": "hf://a"},
    ),
    _change("spec.trainer.numNodes", 2, accepted=3, refused=0, message="must be greater than or equal to 1"),
    _change("spec.activeDeadlineSeconds", 5, accepted=..., refused=6),
    _change("spec.ttlSecondsAfterFinished", 5, accepted=6, refused=-1, message="greater than or equal to 0"),
    Case("TrainJob", {"spec.suspend": False}, {"spec.managedBy": "kueue.x-k8s.io/multikueue"}, FIXED),
    *(
        Case("TrainJob", accepted, {f"{_PATCHES}.{field}": value}, FIXED, base={"spec.runtimePatches": [PATCH]})
        for accepted in ({f"{_PATCHES}.nodeSelector": {"a": "2"}, f"{_PATCHES}.tolerations": []},)
        for field, value in {
            "serviceAccountName": "b",
            "terminationGracePeriodSeconds": 2,
            "securityContext": {"runAsUser": 2},
            "imagePullSecrets": [{"name": "b"}],
            "volumes": [{"name": "b", "emptyDir": {}}],
            "containers.0.env.0.value": "2",
            "initContainers.0.env.0.value": "2",
        }.items()
    ),
    # Like what else concerns scheduling, claims of a patch can be changed; those of the trainer cannot.
    Case(
        "TrainJob",
        _claims({"name": "a", "resourceClaimName": "other"}, patched=True),
        _claims({"name": "a"}, patched=True),
        "one of resourceClaimName and resourceClaimTemplateName must be set",
        base=_claims({"name": "a", "resourceClaimName": "c"}, patched=True),
    ),
    Case(
        "TrainJob",
        {"spec.suspend": True},
        _claims({"name": "a", "resourceClaimName": "other"}),
        FIXED,
        base=_claims({"name": "a", "resourceClaimName": "c"}),
    ),
    *(
        Case("TrainingRuntime", {path: ...}, {path: other}, "Value is immutable", base={path: value})
        for path, value, other in (
            ("spec.template.spec.failurePolicy", {"maxRestarts": 1}, {"maxRestarts": 2}),
            ("spec.template.spec.network", {"subdomain": "a"}, {"subdomain": "b"}),
            (
                "spec.template.spec.volumeClaimPolicies",
                [{"templates": [{"metadata": {"name": "a"}}]}],
                [{"templates": [{"metadata": {"name": "b"}}]}],
            ),
            ("spec.template.spec.successPolicy", {"operator": "All"}, {"operator": "Any"}),
            ("spec.template.spec.startupPolicy", {"startupPolicyOrder": "AnyOrder"}, {"startupPolicyOrder": "InOrder"}),
            (
                "spec.template.spec.replicatedJobs.0.dependsOn",
                [{"name": "a", "status": "Ready"}],
                [{"name": "a", "status": "Complete"}],
            ),
        )
    ),
    Case(
        "OptimizationJob",
        {"metadata.labels": {"a": "b"}},
        {"spec.numTrials": 2},
        "OptimizationJobSpec is immutable and cannot be updated after creation",
    ),
]


def rules_below(schema: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """The rules of a schema in CEL: where, what, and what they say."""
    for entry in schema.get("x-kubernetes-validations", ()):
        yield path, entry["rule"], entry["message"]
    for name, child in schema.get("properties", {}).items():
        yield from rules_below(child, f"{path}.{name}".strip("."))
    if "items" in schema:
        yield from rules_below(schema["items"], f"{path}.0")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from rules_below(schema["additionalProperties"], f"{path}.*")


def rules_of(definition: JsonObject, below: str = "") -> set[tuple[str, str, str]]:
    """The rules of a definition, or those below a path in it."""
    found = rules_below(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    return {(path.removeprefix(below), rule, says) for path, rule, says in found if path.startswith(below)}


def test_every_rule_has_a_case() -> None:
    """The rules that definitions share are tried in one of them."""
    made = {crd["spec"]["names"]["kind"]: crd for crd in all_definitions(TRAINING)}
    assert made.keys() == {*BASES, "ClusterTrainingRuntime", "JobSet"}
    assert rules_of(made["ClusterTrainingRuntime"]) == rules_of(made["TrainingRuntime"])
    assert rules_of(made["JobSet"], "spec") == rules_of(made["TrainingRuntime"], "spec.template.spec")
    inner = rules_of(made["OptimizationJob"], "spec.trainJobTemplate.spec")
    assert inner == rules_of(made["TrainJob"], "spec")
    tried = [(case.kind, field, case.message) for case in (*CREATION, *UPDATES) for field in case.refused]
    for kind in BASES:
        for path, rule, message in rules_of(made[kind]):
            if path.startswith(("spec.trainJobTemplate.spec", "status")) or path.endswith("runtimePatches.0.manager"):
                continue  # tried in TrainJobs; below, by itself; the key of a list, which never changes
            assert any(
                each == kind and said in message and (field.startswith(path) or path.startswith(field))
                for each, field, said in tried
            ), (kind, path, rule)


@pytest.fixture(scope="module")
def served(target: Target) -> Target:
    """The target, with the definitions of the Trainer API; a cluster that has them already keeps them."""

    async def install() -> None:
        async with connected(target.access) as client:
            crds = definitions(client)
            for path in FILES:
                crd = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
                name = crd["metadata"]["name"]
                if (await crds.get(name)).status == 404:
                    (await crds.apply(crd)).ok(201)

                async def established(name: str = name) -> bool:
                    return condition_of(await crds.read(name), "Established") == "True"

                await eventually(established)
                plural = crd["spec"]["names"]["plural"]

                async def answering(plural: str = plural) -> bool:
                    return (await client.collection(API_VERSION, plural).list()).status == 200

                await eventually(answering)

    target.run(install())
    return target


@pytest.fixture
async def client(served: Target) -> AsyncIterator[Client]:
    async with connected(served.access) as opened:
        yield opened


def collection(client: Client, namespace: str, kind: str) -> Collection:
    return client.collection(API_VERSION, f"{kind.lower()}s", namespace)


@pytest.mark.parametrize("case", CREATION, ids=lambda case: f"{case.kind}-{'-'.join(case.refused)}")
async def test_creation(client: Client, namespace: str, case: Case) -> None:
    things = collection(client, namespace, case.kind)
    base = changed(BASES[case.kind], case.base)
    (await things.create(changed(base, case.accepted), dryRun="All")).ok(201)
    refusal = (await things.create(changed(base, case.refused), dryRun="All")).refused(422, "Invalid")
    assert case.message in refusal["message"]


@pytest.mark.parametrize("case", UPDATES, ids=lambda case: f"{case.kind}-{'-'.join(case.refused)}")
async def test_update(client: Client, namespace: str, case: Case) -> None:
    """A rule about changes concerns values that are there before and after: adding and removing is no change."""
    things = collection(client, namespace, case.kind)
    stored = await things.made(changed(BASES[case.kind], case.base))
    refusal = (await things.put(changed(stored, case.refused), dryRun="All")).refused(422, "Invalid")
    assert case.message in refusal["message"]
    (await things.put(changed(stored, case.accepted))).ok(200)


async def test_defaults_of_an_optimization_job(client: Client, namespace: str) -> None:
    spec = (await collection(client, namespace, "OptimizationJob").made(OPTIMIZATION))["spec"]
    assert spec["searchAlgorithm"] == {"random": {}}
    assert (spec["numTrials"], spec["parallelTrials"]) == (1, 1)
    assert spec["objectives"][0]["direction"] == "Minimize"
    assert spec["parameters"][0]["searchSpace"]["uniform"]["type"] == "Float"


async def test_progress_that_a_training_reports_carries_its_time(client: Client, namespace: str) -> None:
    jobs = collection(client, namespace, "TrainJob")
    await jobs.made(TRAINJOB)
    report: JsonObject = {"progressPercentage": 5}
    refusal = await jobs.patch("job", {"status": {"trainerStatus": report}}, subresource="status")
    assert "lastUpdatedTime is required when trainerStatus is present" in refusal.refused(422, "Invalid")["message"]
    report["lastUpdatedTime"] = "2026-01-01T00:00:00Z"
    (await jobs.patch("job", {"status": {"trainerStatus": report}}, subresource="status")).ok(200)
