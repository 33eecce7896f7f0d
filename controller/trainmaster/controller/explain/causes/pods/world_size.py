"""WorldSizeMismatch: ranks that are told different numbers of ranks, or another number than there are pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from trainmaster.controller.container_failures import REPLICATED_JOB_LABEL
from trainmaster.controller.explain.cause import Cause
from trainmaster.controller.explain.causes.pods.evidence import is_deleted, labels_of, spec_of, who
from trainmaster.controller.explain.findings import Certainty, Evidence, Finding, reference_to
from trainmaster.controller.explain.pods import wanted_pods
from trainmaster.controller.explain.state import State, state_of
from trainmaster.controller.explain.view import JobView
from trainmaster.runtime.api.constants import JOBSET_LABEL, NODE
from trainmaster.runtime.jsontree import JsonObject

_NODES: Final = ("PET_NNODES", "JAX_NUM_PROCESSES", "NUM_PROCESSES", "DMLC_NUM_WORKER")
"""Variables by which every rank is told how many pods there are."""

_ALIKE: Final = (*_NODES, "WORLD_SIZE", "PET_NPROC_PER_NODE")
"""Variables that have the same value in all ranks of a job."""


def world_size_mismatch(view: JobView) -> Iterator[Finding]:
    """Find ranks that are told different sizes, or another one than there are pods."""
    if state_of(view).state is State.COMPLETE:
        return
    pods = [pod for pod in view.pods or () if _trains(pod) and not is_deleted(pod)]
    told = [*_disagreements(pods), *_miscounts(view, pods)]
    if told:
        names = ", ".join(sorted({name for name, _ in told}))
        advice = [f"let nothing but the runtime set {names}: neither the job, nor an image, nor the program"]
        evidence = [evidence for _, evidence in told]
        # How it is, not what happened: it keeps a job that runs from its end as well.
        yield Finding(Cause.WORLD_SIZE_MISMATCH, Certainty.LIKELY, evidence, None, advice)


def _trains(pod: JsonObject) -> bool:
    labels = labels_of(pod)
    return labels.get(REPLICATED_JOB_LABEL) == NODE or JOBSET_LABEL not in labels


def _disagreements(pods: list[JsonObject]) -> Iterator[tuple[str, Evidence]]:
    for name in _ALIKE:
        values: dict[str, list[JsonObject]] = {}
        for pod in pods:
            if (value := _variables(pod).get(name)) is not None:
                values.setdefault(value, []).append(pod)
        if len(values) > 1:
            shown = sorted(values.items(), key=lambda each: -len(each[1]))[:3]
            text = "; ".join(f"{name}={value} in {who(of_value)}" for value, of_value in shown)
            yield name, Evidence(reference_to({"kind": "Pod", **shown[-1][1][0]}), text)


def _miscounts(view: JobView, pods: list[JsonObject]) -> Iterator[tuple[str, Evidence]]:
    wanted = _wanted(view)
    for name in _NODES:
        told = [pod for pod in pods if _variables(pod).get(name, "").isdecimal()]
        wrong = [pod for pod in told if wanted is not None and int(_variables(pod)[name]) != wanted]
        if wrong:
            value = _variables(wrong[0])[name]
            text = f"{name}={value} in {who(wrong)}, while the job has {wanted} pods that train"
            yield name, Evidence(reference_to({"kind": "Pod", **wrong[0]}), text)


def _wanted(view: JobView) -> int | None:
    """Return how many pods of a job train; None if nobody knows."""
    if not view.is_trainjob:
        return sum((wanted_pods(view) or {}).values()) or None
    found = [
        replicated
        for jobset in view.jobsets or ()
        for replicated in (jobset.get("spec") or {}).get("replicatedJobs") or ()
        if replicated.get("name") == NODE
    ]
    if len(found) != 1:
        return None
    spec = (found[0].get("template") or {}).get("spec") or {}
    return int(found[0].get("replicas", 1)) * int(spec.get("parallelism") or 1)


def _variables(pod: JsonObject) -> Mapping[str, str]:
    """Return the variables of all containers of a pod that have a value of their own."""
    return {
        variable["name"]: str(variable["value"])
        for container in spec_of(pod).get("containers") or ()
        for variable in container.get("env") or ()
        if variable.get("value") is not None
    }
