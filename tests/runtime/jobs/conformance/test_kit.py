"""The conformance kit: what it finds in kinds that do not keep to the interface, one fault at a time."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.job_kinds import job_object, replica

from trainmaster.runtime.api.decoding import parse_part
from trainmaster.runtime.api.meta import ApiModel
from trainmaster.runtime.jobs.conformance import check_job_kind, nonconformities
from trainmaster.runtime.jobs.constants import FAILED, RUNNING, SUCCEEDED
from trainmaster.runtime.jobs.interface import ConditionUpdate, Job, JobKind
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import Watch
from trainmaster.runtime.podspec import append_env_of_all, env_value


class AcmeSpec(ApiModel):
    speed: int | None = None


class Acme(JobKind):
    """A kind that conforms."""

    kind = "AcmeJob"
    plural = "acmejobs"
    group = "acme.example"
    framework = "acme"
    replica_specs_field = "acmeReplicaSpecs"
    replica_types = ("Boss", "Worker")
    leading_types = ("Boss", "Worker")
    container_name = "acme"
    port_name = "acme-port"
    port = 4321

    def default(self, job: Job) -> None:
        if self.speed(job) is None:
            job.spec["speed"] = 1

    def speed(self, job: Job) -> int | None:
        return parse_part(AcmeSpec, job.spec, "spec").speed

    def set_cluster_spec(self, job: Job, pod: JsonObject, replica_type: str, index: int) -> None:
        append_env_of_all(pod["spec"], [env_value("SPEED", self.speed(job)), env_value("ALL", job.total_replicas)])


def samples(kind: JobKind) -> list[JsonObject]:
    containers = {"ports": [{"name": "web", "containerPort": 80}]}
    return [
        job_object(kind, {"Boss": 1, "Worker": replica(kind, 2, "OnFailure", **containers)}, speed=3),
        job_object(kind, {"Worker": 1}, name="small"),
    ]


def found(faulty: Callable[[], JobKind]) -> list[str]:
    kind = faulty()
    return nonconformities(kind, samples(kind))


def acme(**attributes: Any) -> Callable[[], JobKind]:
    """The kind, with other attributes or methods."""
    return type("Faulty", (Acme,), attributes)


def test_a_kind_that_keeps_to_the_interface_is_fine() -> None:
    assert found(Acme) == []


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"plural": "Acme Jobs"}, "plural 'Acme Jobs': "),
        ({"container_name": "a_b"}, "container_name 'a_b': "),
        (
            {"port_name": "a-name-that-is-too-long"},
            "port_name 'a-name-that-is-too-long': must be a label of at most 15",
        ),
        ({"port": 0}, "port 0: must be between 1 and 65535"),
        ({"replica_types": ("Boss", "Worker", "worker")}, "must differ in more than case"),
        ({"default_restart_policy": "Sometimes"}, "default_restart_policy 'Sometimes': must be one of Never, "),
        ({"pod_name": lambda *_: "one"}, "pod_name gives the pod 0 of Worker the name of the pod 0 of Boss, 'one'"),
        ({"pod_name": lambda *_: "One_"}, "pod_name of the pod 0 of Boss, 'One_': "),
        ({"is_master_role": lambda *_: False}, "is_master_role is true of no pod"),
    ],
)
def test_attributes_names_and_roles_that_nobody_would_take_are_found(attributes: JsonObject, expected: str) -> None:
    assert any(expected in problem for problem in found(acme(**attributes)))


counter = itertools.count()
CHANGES: dict[str, Callable[[Job, JsonObject], Any]] = {
    "changes the name of the pod 0 of Boss": lambda _, pod: pod["metadata"].update(name="x"),
    "changes labels of the pod 0 of Boss by which it is found": lambda _, pod: pod["metadata"].update(labels={}),
    "changes namespace or owner of the pod 0 of Boss": lambda _, pod: pod["metadata"].update(ownerReferences=[]),
    "changes the restart policy of the pod 0 of Boss": lambda _, pod: pod["spec"].update(restartPolicy="Always"),
    "changes name or image of the container 'acme' of the pod 0 of Boss": (
        lambda _, pod: pod["spec"]["containers"][0].update(image="acme:1")
    ),
    "takes containers from the pod 0 of Boss": lambda _, pod: pod["spec"].update(containers=[]),
    "changes the job, which others use at the same time": (
        lambda job, _: job.replica_specs["Worker"].template["spec"].update(hostNetwork=True)
    ),
    "makes something else of the same each time": (
        lambda _, pod: append_env_of_all(pod["spec"], [env_value("ID", next(counter))])
    ),
}


@pytest.mark.parametrize("expected", CHANGES)
def test_pods_that_are_changed_too_much_are_found(expected: str) -> None:
    def set_cluster_spec(self: JobKind, job: Job, pod: JsonObject, replica_type: str, index: int) -> None:
        CHANGES[expected](job, pod)

    problems = found(acme(set_cluster_spec=set_cluster_spec))
    assert any(f"set_cluster_spec {expected}" in problem for problem in problems)


CONFIG_MAP = Watch("v1", "ConfigMap", "configmaps", writes=True)


def config_map(name: str, **data: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.mark.parametrize(
    ("built", "watches", "expected"),
    [
        (lambda: config_map("a"), [], "build returns a v1 ConfigMap: watches must have it, with writes=True"),
        (lambda: config_map("A"), [CONFIG_MAP], "build names a v1 ConfigMap: "),
        (lambda: config_map("a", data={1, 2}), [CONFIG_MAP], "build returns a v1 ConfigMap that is no JSON"),
        (lambda: config_map(f"a{next(counter)}"), [CONFIG_MAP], "build makes something else of the same each time"),
    ],
)
def test_other_objects_are_of_declared_kinds(built: Callable[[], JsonObject], watches: Any, expected: str) -> None:
    kind = acme(build=lambda *_: [built()], watches=lambda _: watches)
    assert any(expected in problem for problem in found(kind))


def test_what_is_created_once_may_be_random() -> None:
    watch = Watch("v1", "ConfigMap", "configmaps", writes=True, creates_only=True)
    kind = acme(build=lambda *_: [config_map("a", key=str(next(counter)))], watches=lambda _: [watch])
    assert found(kind) == []


def conditions(*types: str, message: str = "so it is.") -> Callable[..., Iterator[ConditionUpdate]]:
    return lambda *_: iter([ConditionUpdate(each, message) for each in types])


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (conditions("Done"), "sets 'Done', which is none of Running, Restarting, Succeeded, Failed"),
        (conditions(RUNNING, message=""), "sets Running without a message"),
        (conditions(SUCCEEDED, FAILED), "sets Succeeded and Failed"),
        (conditions(RUNNING), "sets Running before anything runs"),
        (conditions(), "does not set Succeeded, though all replicas have"),
        (lambda *_: iter([ConditionUpdate(RUNNING, str(next(counter)))]), "makes something else of the same each time"),
    ],
)
def test_conditions_that_make_no_sense_are_found(method: Callable[..., Any], expected: str) -> None:
    assert any(expected in problem for problem in found(acme(update_job_status=method)))


def _defaulting_twice(self: JobKind, job: Job) -> None:
    job.spec["speed"] = (job.spec.get("speed") or 0) + 1


def _defaulting_what_is_stored(self: JobKind, job: Job) -> None:
    job.raw["spec"]["speed"] = 1


def _believing(self: JobKind, job: Job) -> None:
    job.spec["speed"] = int(job.spec.get("speed") or 1)


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        (_defaulting_twice, "default changes what it has made itself, from {'speed': 4} to {'speed': 5}"),
        (_defaulting_what_is_stored, "default changes the object that was given; it may change job.spec only"),
        (_believing, "with spec.speed 'odd': raises ValueError: "),
    ],
)
def test_defaults_are_looked_at(default: Callable[..., None], expected: str) -> None:
    assert any(expected in problem for problem in found(acme(default=default, speed=lambda *_: 1)))


def _dividing(self: JobKind, job: Job, pod: JsonObject, replica_type: str, index: int) -> None:
    append_env_of_all(pod["spec"], [env_value("SHARE", 100 // job.spec["speed"])])


def _expecting_a_boss(self: JobKind, job: Job, pod: JsonObject, replica_type: str, index: int) -> None:
    append_env_of_all(pod["spec"], [env_value("BOSSES", job.replica_specs["Boss"].replicas)])


def test_what_is_admitted_has_to_be_possible() -> None:
    assert any(
        "with spec.speed 0: raises ZeroDivisionError" in each for each in found(acme(set_cluster_spec=_dividing))
    )
    kind = acme(set_cluster_spec=_expecting_a_boss)()
    problems = nonconformities(kind, samples(kind)[:1])
    assert problems == [
        "sample 0 (demo), without Boss: raises KeyError: 'Boss'; refuse it in validate, or make something of it"
    ]


def test_samples_have_to_be_of_the_kind_and_admitted() -> None:
    kind = Acme()
    refused = job_object(kind, {"Sheep": 1})
    assert nonconformities(kind, []) == ["there are no samples"]
    (other, problem) = nonconformities(kind, [{"kind": "Sheep"}, refused])
    assert other == "sample 0 (without a name): must be of kind AcmeJob of acme.example/v1"
    assert problem.startswith("sample 1 (demo): is not admitted: spec.acmeReplicaSpecs[Sheep]: Unsupported value: ")


def test_all_problems_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "trainmaster.runtime.jobs.conformance.load_job_kinds", lambda **_: [acme(port=0, group="Acme")()]
    )
    with pytest.raises(AssertionError) as error:
        check_job_kind("acmejob", [])
    kind, *problems = str(error.value).splitlines()
    assert kind == "AcmeJob does not conform:"
    assert [each.partition(" ")[0] for each in problems] == ["group", "port", "there"]


def definition(**changes: Any) -> JsonObject:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {"type": "object", "properties": {"acmeReplicaSpecs": anything}}
    scale = {
        "specReplicasPath": ".spec.acmeReplicaSpecs.Worker.replicas",
        "statusReplicasPath": ".status.replicaStatuses.Worker.active",
        "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}, "scale": scale},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": anything}}},
        **changes,
    }
    names = {"kind": "AcmeJob", "plural": "acmejobs"}
    return {
        "metadata": {"name": "acmejobs.acme.example"},
        "spec": {"group": "acme.example", "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.mark.parametrize(
    ("attributes", "changes", "expected"),
    [
        ({}, {}, []),
        (
            {"plural": "acmes"},
            {},
            [
                "metadata.name of the definition is 'acmejobs.acme.example', but the class says 'acmes.acme.example'",
                "spec.names.plural of the definition is 'acmejobs', but the class says 'acmes'",
            ],
        ),
        ({}, {"storage": False}, ["the definition has no version v1 that is served and stored"]),
        (
            {"scale_type": ""},
            {"subresources": {"scale": {}}},
            [
                "spec.versions[0].subresources of the definition lacks status: {}, so nothing can be told of a job",
                "spec.versions[0].subresources of the definition has scale, but the class has no scale_type",
            ],
        ),
        (
            {"scale_type": "Boss"},
            {},
            [
                f"spec.versions[0].subresources.scale.{name} of the definition is {path.format('Worker')!r}, "
                f"but the class says {path.format('Boss')!r}"
                for name, path in (
                    ("specReplicasPath", ".spec.acmeReplicaSpecs.{}.replicas"),
                    ("statusReplicasPath", ".status.replicaStatuses.{}.active"),
                    ("labelSelectorPath", ".status.replicaStatuses.{}.selector"),
                )
            ],
        ),
        (
            {"replica_specs_field": "sheep"},
            {"subresources": {"status": {}}, "schema": {}},
            [
                (
                    "spec.versions[0].subresources.scale.specReplicasPath of the definition is None, "
                    "but the class says '.spec.sheep.Worker.replicas'"
                ),
                (
                    "spec.versions[0].subresources.scale.statusReplicasPath of the definition is None, "
                    "but the class says '.status.replicaStatuses.Worker.active'"
                ),
                (
                    "spec.versions[0].subresources.scale.labelSelectorPath of the definition is None, "
                    "but the class says '.status.replicaStatuses.Worker.selector'"
                ),
                *(
                    f"spec.versions[0].schema of the definition lacks {each}, which would be dropped"
                    for each in ("spec.sheep", "status.conditions", "status.replicaStatuses")
                ),
            ],
        ),
    ],
)
def test_a_definition_agrees_with_its_class(attributes: Any, changes: JsonObject, expected: list[str]) -> None:
    kind = acme(**{"scale_type": "Worker", **attributes})()
    assert nonconformities(kind, samples(kind), definition(**changes)) == expected
