"""The resolver: what a TrainJob becomes. A pure, synchronous function; nothing else in Trainmaster decides this.

Given a TrainJob, its runtime (live or from the snapshot), the plugins and the listers, `resolve` returns the objects
that should exist. The reconciler, the webhooks, the command line and the tests all call it.

Guarantee: inputs are never changed, also not by plugins, which get copies of everything (see `runtime.framework`). So
whoever calls may share a runtime between TrainJobs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

import orjson

from trainmaster.runtime.api.constants import NODE, SCHEDULING_GATE, TRAINER_ANCESTOR
from trainmaster.runtime.api.meta import ApiModel
from trainmaster.runtime.api.trainingruntime import ClusterTrainingRuntime, JobSetTemplate, MLPolicy, TrainingRuntime
from trainmaster.runtime.api.trainjob import RuntimePatch, TrainJob
from trainmaster.runtime.canonical import (
    TemplateInvalid,
    canonicalize_jobset_spec,
    canonicalize_resources,
    without_blanks,
)
from trainmaster.runtime.framework import Framework, PluginFailed
from trainmaster.runtime.framework.descriptor import SCHEDULING
from trainmaster.runtime.framework.interface import Desired
from trainmaster.runtime.framework.resolution import Tracer
from trainmaster.runtime.info import Info, PodSet, ancestor_of
from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.listers import NO_LISTERS, Listers
from trainmaster.runtime.multislice import effective_replicas
from trainmaster.runtime.resilience import PolicyInvalid, policy_of_trainjob
from trainmaster.runtime.resource_claims import add_claims, add_group_claims, with_whole_claims
from trainmaster.runtime.resource_requirements import merge_resources
from trainmaster.runtime.strategicpatch import jobset_spec, strategic_merge_patches

_LONGEST_KEPT: Final = 64 * 1024
"""Bytes of a template whose canonical form is remembered; runtimes have a few thousand."""


class JobInvalid(ValueError):
    """The TrainJob asks for something that nobody can read or do; the message names the field."""


class PolicyUnserved(Exception):
    """The runtime asks for a framework or a gang scheduler that no plugin serves."""


class Resolution(NamedTuple):
    """The result of a resolution."""

    objects: list[Desired]
    """Complete objects in the order in which they should be written."""

    info: Info
    """The working state at the end, for display and tests."""

    skipped: list[PluginFailed]
    """Failures of plugins without which it was resolved."""

    builders: Mapping[tuple[str, str, str], str]
    """The plugin that built each object, by the object's identity."""


def resolve(
    job: TrainJob,
    runtime: TrainingRuntime | ClusterTrainingRuntime,
    framework: Framework,
    *,
    listers: Listers = NO_LISTERS,
    tracer: Tracer | None = None,
) -> Resolution:
    """Decide what a TrainJob becomes; `tracer` is shown each step.

    Raises:
        PolicyUnserved: The runtime asks for a framework or a gang scheduler that no plugin serves.
        PluginFailed: A plugin cannot build this job.
        MergeError: A runtime patch cannot be merged.
        TemplateInvalid: The runtime, with its patches, holds what no JobSet can hold.
        JobInvalid: The TrainJob's own settings cannot be read, or are such that nothing could come of them.
    """
    nodes = job.spec.trainer.num_nodes if job.spec.trainer else None
    if nodes is not None and nodes < 0:
        # Our schema and our webhooks see to that; the schema of the original does not.
        raise JobInvalid(f"spec.trainer.numNodes: is {nodes}, but must be greater than or equal to 1")
    info = new_info(job, runtime, listers=listers, tracer=tracer)
    unserved = framework.unserved_policy(info)
    if unserved:
        raise PolicyUnserved(_unserved(unserved, framework.not_loaded))
    built = framework.resolve(info, job, listers, tracer=tracer)
    return Resolution(built.objects, info, built.skipped, built.builders)


def _unserved(policy: str, not_loaded: Sequence[str]) -> str:
    if not not_loaded:
        remedy = f"open the feature gate {SCHEDULING_GATE}" if policy == SCHEDULING else "install one"
        return f"no installed plugin serves {policy}; {remedy}, or use another runtime"
    names = ", ".join(not_loaded)
    return (
        f"no plugin serves {policy}, and {names} did not load, which may be why: the log of the manager says what to "
        "do; or use another runtime"
    )


def new_info(
    job: TrainJob,
    runtime: TrainingRuntime | ClusterTrainingRuntime,
    *,
    listers: Listers = NO_LISTERS,
    tracer: Tracer | None = None,
) -> Info:
    """Merge a runtime with the patches, resources and claims of a TrainJob into a fresh Info, before any plugin ran.

    `tracer` is shown each step.

    Raises:
        MergeError: A runtime patch cannot be merged.
        TemplateInvalid: The runtime, with its patches, holds what no JobSet can hold.
        JobInvalid: The TrainJob's own settings cannot be read.
    """
    # Copies, all of it: the runtime is shared by all TrainJobs that are made from it, and plugins change what they get.
    patches = _templates(job.spec.runtime_patches)
    info = _merged(runtime, patches, listers)
    try:
        info.resilience_policy = policy_of_trainjob(job, runtime)
    except PolicyInvalid as error:
        raise JobInvalid(str(error)) from error
    if tracer is not None:
        _trace_patches(job, runtime, patches, tracer)
    for setting, merge in (("resourcesPerNode", _merge_trainer_resources), ("resourceClaimsPerNode", add_claims)):
        merge(info, job)
        if tracer is not None:
            tracer.merged(f"TrainJob spec.trainer.{setting}", info)
    return info


def _merged(
    runtime: TrainingRuntime | ClusterTrainingRuntime, patches: list[JsonObject], listers: Listers = NO_LISTERS
) -> Info:
    """Merge a runtime and patches."""
    spec = runtime.spec
    runtime_text, template = _template_of(runtime, patches)
    labels = dict(spec.template.metadata.labels) if spec.template else {}
    annotations = dict(spec.template.metadata.annotations) if spec.template else {}
    for patch in patches:
        labels.update((patch.get("metadata") or {}).get("labels") or {})
        annotations.update((patch.get("metadata") or {}).get("annotations") or {})
    info = Info(
        labels=labels,
        annotations=annotations,
        ml_policy=_copied(spec.ml_policy),
        pod_group_policy=_copied(spec.pod_group_policy),
        scheduling=_copied(spec.scheduling),
        resilience_policy=None,
        template=template,
        _runtime_text=runtime_text,
        pod_sets=[_pod_set(replicated_job, spec.ml_policy) for replicated_job in template.get("replicatedJobs") or []],
        listers=listers,
    )
    add_group_claims(info)
    return info


def _trace_patches(
    job: TrainJob,
    runtime: TrainingRuntime | ClusterTrainingRuntime,
    patches: list[JsonObject],
    tracer: Tracer,
) -> None:
    """Merge the patches of a TrainJob again, one more each time."""
    steps = ["runtime", *(f"patch ({patch.manager})" for patch in job.spec.runtime_patches)]
    for number, step in enumerate(steps):
        with suppress(TemplateInvalid):  # a later patch puts it right; what this one did counts as done by that
            tracer.merged(step, _merged(runtime, patches[:number]))


_Policy = TypeVar("_Policy", bound=ApiModel)


def _copied(policy: _Policy | None) -> _Policy | None:
    return None if policy is None else policy.model_copy(deep=True)


def _template_of(
    runtime: TrainingRuntime | ClusterTrainingRuntime, patches: list[JsonObject]
) -> tuple[bytes, JsonObject]:
    """Return a runtime's JobSetSpec: its JSON as it is, and a tree of its own with the patches, in canonical form."""
    source = runtime.spec.template or JobSetTemplate()
    try:
        text = source.spec_text
    except TypeError as error:
        raise TemplateInvalid(f"spec.template.spec is no JSON: {error}") from error
    if not patches and len(text) <= _LONGEST_KEPT:
        return text, orjson.loads(_canonical_text(text))
    template: JsonObject = orjson.loads(text)
    if patches:
        template = _merge_patches(template, patches)
    canonicalize_jobset_spec(template)
    return text, template


# Versions of runtimes are few, TrainJobs are many.
@functools.lru_cache(maxsize=64)
def _canonical_text(text: bytes) -> bytes:
    template = orjson.loads(text)
    canonicalize_jobset_spec(template)
    return orjson.dumps(template)


def _templates(patches: Iterable[RuntimePatch] | None) -> list[JsonObject]:
    # What is blank in a patch is not there, for the original too: a patch takes nothing away.
    return [without_blanks((patch.training_runtime_spec or {}).get("template") or {}) for patch in patches or ()]


def _merge_patches(runtime_template: JsonObject, patches: list[JsonObject]) -> JsonObject:
    specs = [with_whole_claims(patch["spec"]) for patch in patches if patch.get("spec")]
    template = strategic_merge_patches(runtime_template, specs, jobset_spec())
    # Merging a keyed list follows the order of the patch; the runtime's order of jobs is what ranks and dependencies
    # rest on. What the runtime lacks (webhooks refuse that) counts as being in the first place, as in the original.
    order = {entry["name"]: position for position, entry in enumerate(runtime_template.get("replicatedJobs") or [])}
    if template.get("replicatedJobs"):
        template["replicatedJobs"].sort(key=lambda entry: order.get(entry["name"], 0))
    return template


def _pod_set(replicated_job: JsonObject, ml_policy: MLPolicy | None) -> PodSet:
    ancestor = ancestor_of(replicated_job)
    count = replicated_job["template"]["spec"].get("parallelism", 1)
    if not isinstance(count, int):
        raise TemplateInvalid(f"parallelism of {replicated_job['name']!r} must be a whole number, not {count!r}")
    name = replicated_job["name"]
    mpi = ml_policy is not None and ml_policy.mpi is not None
    replicas = effective_replicas(name, ancestor, replicated_job.get("replicas", 1), mpi=mpi)
    if ancestor == TRAINER_ANCESTOR and ml_policy is not None:
        # Whether the nodes come out even is checked where it is known how many there are to be: a TrainJob may say.
        count = 1 if ml_policy.num_nodes is None else ml_policy.num_nodes // max(replicas, 1)
    return PodSet(
        name=name, ancestor=ancestor, count=max(count, 1), replicas=replicas, job_template=replicated_job["template"]
    )


def _merge_trainer_resources(info: Info, job: TrainJob) -> None:
    """Lay `trainer.resourcesPerNode` over what the runtime gives each node."""
    override = job.spec.trainer.resources_per_node if job.spec.trainer else None
    if not override:
        return
    for pods in info.pod_sets:
        container = pods.container(NODE)
        if container is not None and info.is_node(pods):
            try:
                container["resources"] = merge_resources(container["resources"], override)
                canonicalize_resources(container["resources"])
            except (TemplateInvalid, AttributeError, KeyError, TypeError) as error:
                raise JobInvalid(f"spec.trainer.resourcesPerNode: {error}") from error
