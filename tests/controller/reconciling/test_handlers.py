"""Which events concern which TrainJobs, and what the caches keep."""

from __future__ import annotations

from support.objects import runtime_object, trainjob_object

from trainmaster.controller.reconciling.trainjobs.handlers import (
    runtime_index_value,
    runtime_index_values,
    trim_config_map,
)


def test_of_a_strangers_config_map_only_its_identity_is_kept() -> None:
    """There may be many, and kubectl keeps all of their data in an annotation as well."""
    metadata = {
        "name": "big",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "1",
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 1000},
        "managedFields": [{"manager": "kubectl"}],
    }
    trimmed = trim_config_map({"kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}})
    identity = {"name": "big", "namespace": "team", "uid": "u", "resourceVersion": "1"}
    assert trimmed == {"kind": "ConfigMap", "metadata": identity}


def test_a_runtime_finds_the_jobs_that_name_it() -> None:
    job, runtime = trainjob_object(), runtime_object()
    assert list(runtime_index_values(job)) == [runtime_index_value(runtime)]


def test_a_job_that_names_no_kind_means_a_cluster_training_runtime() -> None:
    """As when its spec is read; otherwise such a job would wait for its runtime for ever."""
    job = trainjob_object()
    del job["spec"]["runtimeRef"]["kind"]
    cluster = {"kind": "ClusterTrainingRuntime", "metadata": {"name": "rt"}}
    assert list(runtime_index_values(job)) == [runtime_index_value(cluster)]
