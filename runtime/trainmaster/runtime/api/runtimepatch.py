"""What a TrainJob may change of its runtime: the definition of `spec.runtimePatches[].trainingRuntimeSpec`.

Nothing is read with these models: a patch is a JSON tree (`shapes`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from trainmaster.runtime.api.meta import IMMUTABLE, NAME, SUBDOMAIN, ApiModel, ObjectMeta, Schema
from trainmaster.runtime.api.scheduling import PodResourceClaim
from trainmaster.runtime.api.shapes import NamedObjects


def _pod_field(name: str, *rules: tuple[str, str], **limits: Any) -> Schema:
    return Schema(*rules, ref=f"core.v1.PodSpec.{name}", **limits)


class _ContainerPatch(ApiModel):
    name: Annotated[str, NAME]
    """The container to patch."""
    env: NamedObjects | None = None
    """Variables to set or add."""
    # Published keyed by name: unlike in a pod, a volume can be mounted only once here.
    volume_mounts: Annotated[
        list[Annotated[Any, Schema(ref="core.v1.VolumeMount")]] | None, Schema(keys=["name"], maxItems=128)
    ] = None
    """Mounts to set or add."""
    security_context: Annotated[Any, Schema(ref="core.v1.Container.securityContext")] = None


_CONTAINERS: Final = Schema(IMMUTABLE, keys=["name"], maxItems=64)


class PodSpecPatch(ApiModel):
    """Changes to the pods: the only fields of a pod that can be patched."""

    service_account_name: Annotated[Any, _pod_field("serviceAccountName", IMMUTABLE, maxLength=SUBDOMAIN)] = None
    node_selector: dict[str, str] | None = None
    affinity: Annotated[Any, _pod_field("affinity")] = None
    tolerations: Annotated[Any, _pod_field("tolerations", maxItems=128)] = None
    volumes: Annotated[Any, _pod_field("volumes", IMMUTABLE, maxItems=128)] = None
    init_containers: Annotated[list[_ContainerPatch] | None, _CONTAINERS] = None
    """Init containers to patch."""
    containers: Annotated[list[_ContainerPatch] | None, _CONTAINERS] = None
    """Containers to patch."""
    image_pull_secrets: Annotated[Any, _pod_field("imagePullSecrets", IMMUTABLE, maxItems=64)] = None
    security_context: Annotated[Any, _pod_field("securityContext", IMMUTABLE)] = None
    resource_claims: Annotated[list[PodResourceClaim] | None, Schema(keys=["name"], maxItems=32)] = None
    """Claims to set or add; one replaces that of the same name. What containers use is up to the runtime."""
    scheduling_gates: Annotated[Any, _pod_field("schedulingGates", maxItems=16)] = None
    termination_grace_period_seconds: Annotated[
        Any, _pod_field("terminationGracePeriodSeconds", IMMUTABLE, minimum=0)
    ] = None


class PodTemplatePatch(ApiModel):
    """Changes to the pod template."""

    metadata: ObjectMeta | None = None
    spec: PodSpecPatch | None = None


class JobSpecPatch(ApiModel):
    """Changes to the spec of the Jobs."""

    template: PodTemplatePatch | None = None


class JobTemplatePatch(ApiModel):
    """Changes to the Job template."""

    metadata: ObjectMeta | None = None
    spec: JobSpecPatch | None = None


class _ReplicatedJobPatch(ApiModel):
    name: Annotated[str, NAME]
    """The ReplicatedJob to patch."""
    template: JobTemplatePatch | None = None


class JobSetSpecPatch(ApiModel):
    """Changes to the spec of the JobSet."""

    replicated_jobs: Annotated[list[_ReplicatedJobPatch] | None, Schema(keys=["name"], maxItems=100)] = None
    """ReplicatedJobs to patch."""


class JobSetTemplatePatch(ApiModel):
    """Changes to the JobSet template."""

    metadata: ObjectMeta | None = None
    spec: JobSetSpecPatch | None = None


class RuntimePatchSpec(ApiModel):
    """Changes to the runtime, as it applies to this TrainJob."""

    template: JobSetTemplatePatch | None = None
