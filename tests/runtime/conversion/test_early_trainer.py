"""TrainJobs and runtimes of early versions of Trainer in today's words."""

from pathlib import Path
from typing import Any

import pytest
from support.conversions import problems

from trainmaster.runtime.conversion.early_trainer import convert_early, is_early
from trainmaster.runtime.conversion.notes import ConversionError
from trainmaster.runtime.jsontree import JsonObject, copy_tree

ALPHA = "kubeflow.org/v2alpha1"
TODAY = "trainer.kubeflow.org/v1alpha1"


def trainjob(version: str = ALPHA, **spec: Any) -> JsonObject:
    return {
        "apiVersion": version,
        "kind": "TrainJob",
        "metadata": {"name": "demo"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec},
    }


def runtime(version: str = ALPHA, kind: str = "ClusterTrainingRuntime", **spec: Any) -> JsonObject:
    jobs = [
        {
            "name": "trainer-node",
            "template": {"spec": {"template": {"spec": {"containers": [{"name": "trainer", "image": "torch"}]}}}},
        }
    ]
    template = {"spec": {"replicatedJobs": jobs}}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "torch-distributed", "labels": {"training.kubeflow.org/phase": "pre-training"}},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {"numProcPerNode": "auto"}}, "template": template, **spec},
    }


def spec_of(obj: JsonObject) -> JsonObject:
    spec: JsonObject = convert_early(obj).objects[0]["spec"]
    return spec


def lost(obj: JsonObject) -> list[str]:
    return [note.path for note in convert_early(obj).notes if note.lost]


def patch(manager: str, template: JsonObject, *jobs: str) -> JsonObject:
    patched = [{"name": job, "template": {"spec": {"template": template}}} for job in jobs]
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": patched}}}}


@pytest.mark.parametrize(
    ("obj", "early"),
    [
        (trainjob(), True),
        (runtime(kind="TrainingRuntime"), True),
        (trainjob(TODAY), False),
        (runtime(TODAY), False),
        (trainjob(TODAY, podTemplateOverrides=[]), True),
        (trainjob(TODAY, labels={}), True),
        (trainjob(TODAY, trainer={"numProcPerNode": "auto"}), True),
        (trainjob(TODAY, trainer={"numProcPerNode": 2}), False),
        (trainjob(TODAY, runtimeRef={"name": "a", "apiGroup": "kubeflow.org"}), True),
        (runtime(TODAY, mlPolicy={"torch": {"elasticPolicy": {"minNodes": 2, "maxNodes": 4}}}), False),
        (runtime(TODAY, mlPolicy={"torch": {"elasticPolicy": {"metrics": []}}}), True),
        (runtime(TODAY, mlPolicy={"mpi": {"mpiImplementation": "Intel"}}), True),
        ({"apiVersion": ALPHA, "kind": "Service"}, False),
        ({"apiVersion": TODAY, "kind": "TrainJob", "spec": "odd"}, False),
    ],
)
def test_what_is_early(obj: JsonObject, early: bool) -> None:
    assert is_early(obj) == early


def test_a_whole_trainjob_of_v2alpha1(tmp_path: Path) -> None:
    old = trainjob(
        runtimeRef={"name": "torch-distributed", "apiGroup": "kubeflow.org", "kind": "ClusterTrainingRuntime"},
        trainer={"image": "mine", "numNodes": 2, "numProcPerNode": "4", "env": [{"name": "A", "value": "1"}]},
        labels={"team": "a"},
        annotations={"note": "b"},
        podSpecOverrides=[
            {
                "targetJobs": [{"name": "trainer-node"}],
                "containers": [
                    {
                        "name": "trainer",
                        "env": [{"name": "A", "value": "2"}, {"name": "B", "value": "3"}],
                        "args": ["--x"],
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    }
                ],
                "volumes": [{"name": "v", "emptyDir": {}}],
                "serviceAccountName": "sa",
                "nodeSelector": {"a": "b"},
                "tolerations": [{"operator": "Exists"}],
            }
        ],
        suspend=True,
        managedBy="kubeflow.org/trainjob-controller",
    )
    before = copy_tree(old)
    conversion = convert_early(old)
    assert old == before
    template = {
        "spec": {
            "serviceAccountName": "sa",
            "nodeSelector": {"a": "b"},
            "tolerations": [{"operator": "Exists"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        }
    }
    assert conversion.objects == [
        {
            "apiVersion": TODAY,
            "kind": "TrainJob",
            "metadata": {"name": "demo"},
            "spec": {
                "runtimeRef": {
                    "name": "torch-distributed",
                    "apiGroup": "trainer.kubeflow.org",
                    "kind": "ClusterTrainingRuntime",
                },
                "trainer": {
                    "image": "mine",
                    "numNodes": 2,
                    "numProcPerNode": 4,
                    # What the trainer says always had precedence.
                    "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}],
                    "args": ["--x"],
                },
                "runtimePatches": [
                    {
                        "manager": "trainer.kubeflow.org/overrides-metadata",
                        "trainingRuntimeSpec": {
                            "template": {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}}
                        },
                    },
                    patch("trainer.kubeflow.org/overrides", template, "node"),
                ],
                "suspend": True,
                "managedBy": "trainer.kubeflow.org/trainjob-controller",
            },
        }
    ]
    assert not [note for note in conversion.notes if note.lost]
    assert not problems(conversion.objects, tmp_path)


@pytest.mark.parametrize(
    ("given", "becomes", "is_lost"), [("auto", None, False), ("gpu", None, True), (3, 3, False), ("2", 2, False)]
)
def test_words_for_numbers_of_processes_are_for_runtimes(given: Any, becomes: int | None, is_lost: bool) -> None:
    old = trainjob(trainer={"numNodes": 1, "numProcPerNode": given})
    assert spec_of(old)["trainer"].get("numProcPerNode") == becomes
    assert lost(old) == (["spec.trainer.numProcPerNode"] if is_lost else [])


def test_initializers() -> None:
    old = trainjob(
        datasetConfig={"storageUri": "hf://a/b", "env": [{"name": "A", "value": "1"}], "secretRef": {"name": "s"}},
        modelConfig={"input": {"storageUri": "hf://c/d"}, "output": {"storageUri": "s3://e/f"}},
        podSpecOverrides=[
            {
                "targetJobs": [{"name": "initializer"}],
                "containers": [{"name": "model-initializer", "env": [{"name": "M", "value": "2"}]}],
                "serviceAccountName": "sa",
            }
        ],
    )
    spec = spec_of(old)
    assert spec["initializer"] == {
        "dataset": {"storageUri": "hf://a/b", "env": [{"name": "A", "value": "1"}], "secretRef": {"name": "s"}},
        "model": {"storageUri": "hf://c/d", "env": [{"name": "M", "value": "2"}]},
    }
    template = {"spec": {"serviceAccountName": "sa"}}
    assert spec["runtimePatches"] == [
        patch("trainer.kubeflow.org/overrides", template, "dataset-initializer", "model-initializer")
    ]
    assert lost(old) == ["spec.modelConfig.output"]


def test_overrides_keep_their_order_and_managers() -> None:
    """Later ones win, and each manager has one patch."""
    overrides = [
        {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"a": "1"}}},
        {"targetJobs": [{"name": "node"}, {"name": "launcher"}], "metadata": {"labels": {"b": "2"}}},
        {"targetJobs": [{"name": "node"}], "manager": "kueue.x-k8s.io/manager", "spec": {"nodeSelector": {"c": "3"}}},
        {"targetJobs": [{"name": "node"}], "manager": "trainer.kubeflow.org/unknown", "spec": {"affinity": {"x": {}}}},
    ]
    assert spec_of(trainjob(TODAY, podTemplateOverrides=overrides))["runtimePatches"] == [
        patch("trainer.kubeflow.org/overrides-1", {"spec": {"nodeSelector": {"a": "1"}}}, "node"),
        patch("trainer.kubeflow.org/overrides-2", {"metadata": {"labels": {"b": "2"}}}, "node", "launcher"),
        patch("kueue.x-k8s.io/manager", {"spec": {"nodeSelector": {"c": "3"}}}, "node"),
        patch("trainer.kubeflow.org/overrides-4", {"spec": {"affinity": {"x": {}}}}, "node"),
    ]


def test_names_of_today_stay_in_versions_that_have_them() -> None:
    overrides = [
        {"targetJobs": [{"name": "trainer-node"}], "containers": [{"name": "trainer", "env": [{"name": "A"}]}]}
    ]
    spec = spec_of(trainjob(TODAY, podSpecOverrides=overrides))
    container = {"name": "trainer", "env": [{"name": "A"}]}
    assert spec["runtimePatches"] == [
        patch("trainer.kubeflow.org/overrides", {"spec": {"containers": [container]}}, "trainer-node")
    ]


def test_what_patches_cannot_change_is_lost() -> None:
    side = {"name": "side", "command": ["a"], "args": ["b"], "envFrom": [{"configMapRef": {"name": "c"}}], "oops": 1}
    old = trainjob(podSpecOverrides=[{"targetJobs": [{"name": "trainer-node"}], "containers": [side]}])
    path = "spec.podSpecOverrides[0].containers[0]"
    assert lost(old) == [f"{path}.command", f"{path}.args", f"{path}.envFrom"]
    nowhere = trainjob(podSpecOverrides=[{"targetJobs": [], "nodeSelector": {"a": "b"}}])
    assert lost(nowhere) == ["spec.podSpecOverrides[0]"]


def test_unknown_fields_are_told() -> None:
    notes = convert_early(trainjob(oops=[{"a": 1}], podSpecOverrides=[{"targetJobs": [], "odd": 1}])).notes
    assert {note.path for note in notes} == {"spec.oops[0].a", "spec.podSpecOverrides[0].odd"}


def test_a_runtime_of_v2alpha1(tmp_path: Path) -> None:
    (new,) = convert_early(runtime()).objects
    expected = runtime(TODAY)
    expected["metadata"]["labels"]["trainer.kubeflow.org/framework"] = "torch"
    (job,) = expected["spec"]["template"]["spec"]["replicatedJobs"]
    job["name"] = "node"
    job["template"]["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    job["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "node"
    assert new == expected
    assert not problems([new], tmp_path)


@pytest.mark.parametrize(
    ("limits", "nodes"), [({"minNodes": 2, "maxNodes": 5, "maxRestarts": 3}, 2), ({"maxNodes": 5}, 5)]
)
def test_an_elastic_policy_loses_its_metrics(limits: JsonObject, nodes: int, tmp_path: Path) -> None:
    elastic = {**limits, "metrics": [{"type": "Resource"}]}
    old = runtime(mlPolicy={"torch": {"numProcPerNode": "2", "elasticPolicy": elastic}})
    assert spec_of(old)["mlPolicy"] == {"numNodes": nodes, "torch": {"numProcPerNode": 2, "elasticPolicy": limits}}
    assert lost(old) == ["spec.mlPolicy.torch.elasticPolicy.metrics"]
    assert not problems(convert_early(old).objects, tmp_path)


def test_intel_mpi_has_another_name() -> None:
    old = runtime(TODAY, mlPolicy={"mpi": {"mpiImplementation": "Intel", "numProcPerNode": 2}})
    assert spec_of(old)["mlPolicy"] == {"mpi": {"mpiImplementation": "IntelMPI", "numProcPerNode": 2}}
    assert not lost(old)


def test_the_job_of_both_initializers_becomes_two(tmp_path: Path) -> None:
    mounts = [{"name": "initializer", "mountPath": "/workspace"}]
    containers = [
        {"name": f"{kind}-initializer", "image": kind, "volumeMounts": mounts} for kind in ("dataset", "model")
    ]
    volumes = [{"name": "initializer", "persistentVolumeClaim": {"claimName": "c"}}]
    jobs = [
        {
            "name": "initializer",
            "template": {"spec": {"template": {"spec": {"containers": containers, "volumes": volumes}}}},
        },
        {
            "name": "trainer-node",
            "dependsOn": [{"name": "initializer", "status": "Complete"}],
            "template": {"spec": {"template": {"spec": {"containers": [{"name": "trainer", "image": "t"}]}}}},
        },
    ]
    success = {"operator": "All", "targetReplicatedJobs": ["trainer-node"]}
    old = runtime(template={"spec": {"replicatedJobs": jobs, "successPolicy": success}})
    spec = spec_of(old)["template"]["spec"]
    assert [job["name"] for job in spec["replicatedJobs"]] == ["dataset-initializer", "model-initializer", "node"]
    assert spec["successPolicy"]["targetReplicatedJobs"] == ["node"]
    assert [each["name"] for each in spec["replicatedJobs"][2]["dependsOn"]] == [
        "dataset-initializer",
        "model-initializer",
    ]
    for job, container in zip(spec["replicatedJobs"], containers, strict=False):
        assert job["template"]["metadata"]["labels"] == {
            "trainer.kubeflow.org/trainjob-ancestor-step": container["name"]
        }
        pod_spec = job["template"]["spec"]["template"]["spec"]
        assert pod_spec == {"containers": [container], "volumes": volumes}
    assert not problems(convert_early(old).objects, tmp_path)


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        (trainjob(runtimeRef={}), "spec.runtimeRef.name"),
        (trainjob(trainer={"numProcPerNode": "many"}), "spec.trainer.numProcPerNode"),
        (trainjob(podSpecOverrides=["a"]), "spec.podSpecOverrides[0]"),
        (trainjob(podSpecOverrides=[{"targetJobs": [{}]}]), "spec.podSpecOverrides[0].targetJobs[0].name"),
        (trainjob(podSpecOverrides=[{"containers": [{}]}]), "spec.podSpecOverrides[0].containers[0].name"),
        (trainjob(podSpecOverrides=[{"targetJobs": [{"name": "a"}], "nodeSelector": {"a": "b"}}] * 17), "spec"),
        (runtime(mlPolicy={"numNodes": "2"}), "spec.mlPolicy.numNodes"),
        (runtime(template={"spec": {"replicatedJobs": [{}]}}), "spec.template.spec.replicatedJobs[0].name"),
    ],
)
def test_odd_objects_are_refused_with_the_field(obj: JsonObject, path: str) -> None:
    with pytest.raises(ConversionError) as caught:
        convert_early(obj)
    assert caught.value.problems[0][0] == path
