"""The definitions in the cluster, and what the manager would write for the TrainJobs that are there."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.explained import findings, only_finding
from support.objects import COMPLETE, runtime_object, trainjob_object
from support.original_crds import definitions_of, install_older_definitions, install_original_definitions
from support.stack import Stack, api_server, manager
from support.training import until

from trainmaster.controller.cli.doctor.definitions import uses, written
from trainmaster.controller.cli.doctor.facts import VOLCANO
from trainmaster.controller.cli.probes import DEFINITIONS
from trainmaster.controller.kube.rest.resources import NAMESPACES
from trainmaster.controller.resources import JOBSETS, TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject, copy_tree


async def test_ours_and_none(tmp_path: Path) -> None:
    async with api_server(tmp_path / "a", definitions=False) as stack:
        found = await findings(stack)
        assert found["definitions"] == [
            "ok: definitions of Trainer: none yet; `trainmaster crds` has them, and so have the manifests"
        ]
        assert found["trainjobs"] == ["ok: 0 TrainJobs, 0 finished: the manager would write nothing for them"]
    async with api_server(tmp_path / "b") as stack:
        assert (await findings(stack))["definitions"] == [
            f"ok: {plural}.trainer.kubeflow.org is one of Trainmaster, with the same fields"
            for plural in ("clustertrainingruntimes", "optimizationjobs", "trainingruntimes", "trainjobs")
        ]
        await stack.client.delete(DEFINITIONS, None, "optimizationjobs.trainer.kubeflow.org")
        assert (await findings(stack))["definitions"][0] == (
            "ok: definitions of Trainer: not optimizationjobs.trainer.kubeflow.org yet; `trainmaster crds` has them, "
            "and so have the manifests"
        )


async def test_those_of_the_go_manager(tmp_path: Path) -> None:
    async with api_server(tmp_path) as stack:
        await install_original_definitions(stack)
        annotation = {"metadata": {"annotations": {"controller-gen.kubebuilder.io/version": "v0.17.2"}}}
        for definition in await definitions_of(stack):
            await stack.client.patch(DEFINITIONS, None, definition["metadata"]["name"], annotation)
        told = (await findings(stack))["definitions"]
        mine = "that of the Go manager (controller-gen v0.17.2)"
        for plural in ("trainjobs", "trainingruntimes", "clustertrainingruntimes"):
            (line,) = (line for line in told if f" {plural}." in line)
            assert line.startswith(f"ok: {plural}.trainer.kubeflow.org is {mine}; ours adds "), line
            assert line.endswith(": trainmaster crds | kubectl apply --server-side --force-conflicts -f -")


async def test_what_objects_would_lose(tmp_path: Path) -> None:
    async with api_server(tmp_path) as stack:
        await install_older_definitions(stack)
        await stack.client.create(NAMESPACES, {"metadata": {"name": "team"}})
        await stack.client.create(TRAINING_RUNTIMES, runtime_object())
        found = await findings(stack)
        (line,) = (line for line in found["definitions"] if " trainjobs." in line)
        assert line == (
            "warn: trainjobs.trainer.kubeflow.org is one of Trainmaster and has fields that ours lacks: "
            "spec.annotations, spec.labels, spec.podTemplateOverrides; see below whether objects use them; a newer "
            "Trainmaster may have them"
        )
        assert "stored-objects" not in found
        for name in ("a", "b"):
            job = trainjob_object(name, podTemplateOverrides=[{"targetJobs": [{"name": "node"}]}])
            for field in ("uid", "resourceVersion", "creationTimestamp"):
                del job["metadata"][field]
            await stack.client.create(TRAINJOBS, job)
        assert await only_finding(stack, "stored-objects") == (
            "fail: with our definition TrainJobs would lose spec.podTemplateOverrides: team/a, team/b; use a newer "
            "Trainmaster, or take the field out of them"
        )


async def test_versions_that_ours_does_not_serve(tmp_path: Path) -> None:
    async with api_server(tmp_path) as stack:
        (name,) = (each for each in await definitions_of(stack) if each["metadata"]["name"].startswith("trainjobs"))
        changed = copy_tree(name)
        changed["spec"]["versions"][0] |= {"name": "v1beta1"}
        await stack.client.delete(DEFINITIONS, None, changed["metadata"]["name"])
        del changed["metadata"]["resourceVersion"], changed["metadata"]["uid"], changed["status"]
        await stack.client.create(DEFINITIONS, changed)
        told = (await findings(stack))["definitions"]
        assert (
            "fail: trainjobs.trainer.kubeflow.org may have objects that are stored as v1beta1, which ours does not "
            "serve; migrate them, and take the version out of status.storedVersions"
        ) in told


def test_fields_are_found_in_objects_and_written_as_people_do() -> None:
    obj = {"spec": {"a": 1, "list": [{}, {"c": None}], "map": {"x": {"e": 1}}}}
    used = (("spec", "a"), ("spec", "list", "*", "c"), ("spec", "map", "*", "e"))
    unused = (("spec", "b"), ("spec", "list", "*", "d"), ("spec", "a", "f"))
    assert [uses(obj, path) for path in (*used, *unused)] == [True] * 3 + [False] * 3
    assert written(("spec", "env", "*", "name")) == "spec.env[*].name"


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path) as stack:
        await stack.client.create(NAMESPACES, {"metadata": {"name": "team"}})
        await stack.client.create(TRAINING_RUNTIMES, runtime_object())
        yield stack


def new(name: str, **spec: Any) -> JsonObject:
    return {**trainjob_object(name, **spec), "metadata": {"name": name, "namespace": "team"}}


async def has_jobset(stack: Stack) -> bool:
    return bool((await stack.client.list(JOBSETS, "team"))["items"])


async def test_a_settled_trainjob_is_left_alone_and_a_new_one_is_not(stack: Stack) -> None:
    await stack.client.create(TRAINJOBS, new("old"))
    assert await only_finding(stack, "trainjobs") == (
        "warn: 1 TrainJob, 0 finished: the manager would write for 1 of them: team/old: ConfigMap "
        "old-runtime-snapshot, JobSet old; see whether that is wanted; for one that is new, or was "
        "changed just now, any manager writes"
    )
    async with manager(stack.access):
        await until(lambda: has_jobset(stack))
    assert await only_finding(stack, "trainjobs") == (
        "ok: 1 TrainJob, 0 finished: the manager would write nothing for them"
    )
    before = await stack.client.list(TRAINJOBS)
    await findings(stack)
    assert (await stack.client.list(TRAINJOBS))["items"] == before["items"], "it only looks"


async def test_those_of_others_those_that_ended_and_those_that_cannot_be_built(stack: Stack) -> None:
    await stack.client.create(TRAINJOBS, new("theirs", managedBy="kueue.x-k8s.io/multikueue"))
    lost = new("lost", runtimeRef={"kind": "TrainingRuntime", "name": "nowhere"})
    await stack.client.create(TRAINJOBS, lost)
    ended = await stack.client.create(TRAINJOBS, new("ended"))
    await stack.client.update(TRAINJOBS, {**ended, "status": {"conditions": [COMPLETE]}}, subresource="status")
    assert (await findings(stack))["trainjobs"] == [
        (
            "warn: 3 TrainJobs, 1 finished, 1 of other controllers: the manager would write for 1 of them: team/lost: "
            "its status; see whether that is wanted; for one that is new, or was changed just now, any manager writes"
        ),
        (
            "warn: 1 of them could not be built: team/lost: RuntimeNotFound: TrainingRuntime specified in TrainJob is "
            'not found: TrainingRuntime.trainer.kubeflow.org "nowhere" not found; correct them, or the plugins of the '
            "configuration"
        ),
    ]
    assert await only_finding(stack, "trainjobs", watchNamespaces=["other"]) == (
        "ok: 0 TrainJobs, 0 finished: the manager would write nothing for them"
    )


async def test_runtimes_whose_plugin_or_gang_scheduler_is_not_there(stack: Stack) -> None:
    # Runtimes whose plugin is not there.
    served = runtime_object()
    served["metadata"]["name"] = "served"
    served["spec"]["mlPolicy"] = {"custom": {"name": "acme", "config": {"deep": {"any": ["thing"]}}}}
    await stack.client.create(TRAINING_RUNTIMES, served)
    assert await only_finding(stack, "runtimes") == (
        "warn: TrainingRuntime team/served: spec.mlPolicy.custom.name: no plugin of the name 'acme' is loaded; "
        "until one serves it, TrainJobs of this runtime are not built; correct the runtime, or install the plugin "
        "that it is meant for in the image of the manager"
    )
    # Runtimes whose gang scheduler is not there.
    gang = runtime_object()
    gang["metadata"]["name"] = "gang"
    gang["spec"]["podGroupPolicy"] = {"volcano": {}}
    await stack.client.create(TRAINING_RUNTIMES, gang)
    assert "gang-scheduling" not in await findings(stack)
    await stack.client.delete(DEFINITIONS, None, VOLCANO)
    assert await only_finding(stack, "gang-scheduling") == (
        "warn: these runtimes have podGroupPolicy.volcano, and podgroups.scheduling.volcano.sh is not there: gang; "
        "install that scheduler, or their TrainJobs are not built"
    )
