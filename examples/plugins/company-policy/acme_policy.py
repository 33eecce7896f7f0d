"""The rules of a company for TrainJobs: whose images run, who pays, and that trainings are left alone.

- Images come from the company's registries: told at admission by field, and again before anything is built, since
  webhooks may be switched off.
- Whoever submits a TrainJob says who pays, by a label that goes to all of its pods.
- A NetworkPolicy lets only the pods of a TrainJob reach each other, and a PodDisruptionBudget keeps a drain from
  killing a whole training for one node. Both belong to the TrainJob, and go with it.

A policy that is skipped when it fails is none: `failure_policy` is "fail". What holds up all trainings of a company has
to be simple, so nothing here depends on anything that may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, Field

from trainmaster.runtime.sdk import (
    NODE,
    TRAINER_ANCESTOR,
    Desired,
    FieldError,
    Info,
    JsonObject,
    Rejected,
    TrainJob,
    Watch,
    label_value,
)

COST_CENTRE = "acme.example/cost-centre"
TRAINJOB = "acme.example/trainjob"
"""The label by which the policies find the pods, whatever workload they belong to."""

_CONTAINERS = ("initContainers", "containers")


class PolicyOptions(BaseModel):
    """What the configuration file of the controller may say, at plugins.options.acme-policy."""

    registries: list[str] = Field([], description="Where images may come from, as in `ghcr.io/acme`; none: anywhere.")
    cost_centre: str | None = Field(None, description="Who pays if a TrainJob does not say; without, it has to.")
    exempt_namespaces: list[str] = Field([], description="Namespaces without these rules.")
    reached_from: list[str] = Field([], description="Namespaces that reach the pods, of a monitoring for instance.")


class AcmePolicy:
    """Puts the company's rules into force."""

    name = "acme-policy"
    api_version = "1.0"
    failure_policy = "fail"
    options_model = PolicyOptions
    reloads_options = True

    def __init__(self, options: PolicyOptions) -> None:
        self.options = options

    def applies_to(self, job: TrainJob) -> bool:
        """All TrainJobs, but for those of namespaces that are exempt."""
        return job.metadata.namespace not in self.options.exempt_namespaces

    def watch_extension(self) -> Iterator[Watch]:
        """What is built; from this follow the rights of the controller."""
        yield Watch("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", writes=True)
        yield Watch("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", writes=True)

    def validate(self, info: Info, job: TrainJob, old: TrainJob | None) -> Iterator[FieldError]:
        """Say by field what is against the rules; a TrainJob that is there may still be suspended, say."""
        before: list[str] = [error.path for error in self._problems(info, old)] if old else []
        yield from (error for error in self._problems(info, job) if error.path not in before)

    def enforce_pod_spec(self, info: Info, job: TrainJob) -> None:
        """Refuse what is against the rules, and label the rest."""
        problems = list(self._problems(info, job))
        if problems:
            raise Rejected("; ".join(map(str, problems)))
        labels = {COST_CENTRE: self._cost_centre(job), TRAINJOB: job.metadata.name}
        for pods in info.pod_sets:
            pods.pod_template.setdefault("metadata", {}).setdefault("labels", {}).update(labels)

    def build(self, info: Info, job: TrainJob) -> Iterator[Desired]:
        """Return the NetworkPolicy and the PodDisruptionBudget."""
        pods = {"matchLabels": {TRAINJOB: job.metadata.name}}
        peers = [{"podSelector": pods}, *map(_namespace, self.options.reached_from)]
        spec = {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": [{"from": peers}]}
        yield Desired(_object("networking.k8s.io/v1", "NetworkPolicy", job, spec))
        # Of pods of Jobs nobody knows how many there should be: only `minAvailable`, and as a number, works for them.
        everyone = sum(pods.size for pods in info.pod_sets)
        yield Desired(_object("policy/v1", "PodDisruptionBudget", job, {"selector": pods, "minAvailable": everyone}))

    def _cost_centre(self, job: TrainJob) -> str:
        return job.metadata.labels.get(COST_CENTRE, self.options.cost_centre or "")

    def _problems(self, info: Info, job: TrainJob) -> Iterator[FieldError]:
        path = f"metadata.labels[{COST_CENTRE}]"
        centre = self._cost_centre(job)
        if not centre:
            yield FieldError(path, "must say which cost centre pays", "Required")
        for problem in label_value(centre):
            yield FieldError(path, problem, value=centre)
        allowed = ", ".join(self.options.registries)
        for path, image in _images(info, job):
            if self.options.registries and not any(_is_from(image, registry) for registry in self.options.registries):
                yield FieldError(path, f"must be an image of {allowed}; push it there first", "Forbidden", value=image)


def _images(info: Info, job: TrainJob) -> Iterator[tuple[str, str]]:
    """Return each image, and the field of the TrainJob that it comes from."""
    own = job.spec.trainer.image if job.spec.trainer else None
    if own is not None:
        yield "spec.trainer.image", own
    for pods in info.pod_sets:
        replaced = own is not None and pods.ancestor == TRAINER_ANCESTOR
        for field in _CONTAINERS:
            containers: list[JsonObject] = pods.pod_spec.get(field) or []
            for container in containers:
                if not (replaced and container["name"] == NODE) and container.get("image"):
                    yield f"spec.runtimeRef ({pods.name}, container {container['name']})", container["image"]


def _is_from(image: str, registry: str) -> bool:
    first, slash, _ = image.partition("/")
    has_registry = bool(slash) and (first == "localhost" or "." in first or ":" in first)
    return (image if has_registry else f"docker.io/{image}").startswith(registry.rstrip("/") + "/")


def _namespace(name: str) -> JsonObject:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


def _object(api_version: str, kind: str, job: TrainJob, spec: JsonObject) -> JsonObject:
    """Build an object of the TrainJob; its owner and its namespace are filled in."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": job.metadata.name}, "spec": spec}
