"""Submits the manifests of some files: makes objects of them in a cluster.

- Nothing is written before every manifest is known to be of a kind that the cluster serves.
- The order is that of dependence (namespaces, definitions, runtimes, other objects, TrainJobs), then that of the files.
- A TrainJob that is refused for want of its runtime gets advice; one whose runtime was applied a moment before is tried
  again, since a webhook may learn of that late.
- TrainJobs are created, because each is one run: the same name cannot run twice. Everything else is applied, so that
  files can be run again. Fields that the schema does not know are errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from trainmaster.controller.cli.follow.job_status import FollowedJob
from trainmaster.controller.cli.follow.runtime_reference import (
    RuntimeReference,
    explain_missing,
    is_missing,
    reference_of,
)
from trainmaster.controller.cli.manifests import CRD_KIND, Manifest, apply_order, is_job, is_trainjob
from trainmaster.controller.cli.responses import APPLY, JSON, Rejected, error_lines, send, unknown_kind, warnings_in
from trainmaster.controller.cli.restmapper import RestMapper
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import AlreadyExists, ApiError
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.api.constants import GROUP, TRAINING_RUNTIME_KIND, TRAINJOB_KIND
from trainmaster.runtime.jsontree import JsonObject

FIELD_MANAGER = "trainmaster-cli"


_LATE_AT_MOST = 10.0
"""Seconds that the caches of a webhook may be behind; they follow watches, which take less than one."""

_LOOK_EVERY = 0.1


def require_trainjobs(manifests: Sequence[Manifest]) -> None:
    """Raise `Rejected` if no file has a TrainJob."""
    if any(map(is_trainjob, manifests)):
        return
    jobs = [manifest for manifest in manifests if is_job(manifest)]
    raise Rejected(
        [
            f"{job.place}: {job.title}: only TrainJobs are followed; `kubectl apply -f {job.source.file}` submits it, "
            f"and `kubectl get {job.kind.lower()} -w` shows how it fares"
            for job in jobs
        ]
        or [f"no {TRAINJOB_KIND} in the files; there is nothing to run"]
    )


async def submit(
    client: KubeClient, manifests: Sequence[Manifest], *, namespace: str | None, report: Callable[[str], None]
) -> list[FollowedJob]:
    """Bring all objects into the cluster and return the TrainJobs.

    Raises:
        Rejected: The files cannot be submitted, or the server refuses.
        TransportError: The server cannot be reached.
    """
    require_trainjobs(manifests)
    submitter = _Submitter(client, namespace, manifests)
    ordered = sorted(manifests, key=apply_order)
    await submitter.check(ordered)
    jobs: list[FollowedJob] = []
    for manifest in ordered:
        obj, warnings = await submitter.submit(manifest)
        metadata = obj["metadata"]
        for warning in warnings:
            report(f"warning: {manifest.place}: {warning}")
        if is_trainjob(manifest):
            job = FollowedJob(
                metadata["namespace"],
                metadata["name"],
                metadata["uid"],
                metadata["creationTimestamp"],
                submitter.reference(obj),
            )
            jobs.append(job)
            report(f"TrainJob {job.key} created")
        else:
            unfollowed = "; only TrainJobs are followed" if is_job(manifest) else ""
            report(f"{manifest.kind} {_key(metadata)} applied{unfollowed}")
    return jobs


class _Submitter:
    def __init__(self, client: KubeClient, namespace: str | None, manifests: Sequence[Manifest]) -> None:
        self._client = client
        self._namespace = namespace
        self._rest_mapper = RestMapper(client)
        self._manifests = manifests

    def reference(self, trainjob: JsonObject) -> RuntimeReference | None:
        """Return the runtime that a TrainJob names."""
        namespace = trainjob["metadata"]["namespace"]
        named = {
            (
                each.kind,
                self._namespace_of(each) if each.kind == TRAINING_RUNTIME_KIND else None,
                each.object["metadata"].get("name"),
            )
            for each in self._manifests
            if each.api_version.partition("/")[0] == GROUP
        }
        return reference_of(trainjob, namespace=namespace, supplied=named)

    def _namespace_of(self, manifest: Manifest) -> str:
        given = manifest.object["metadata"].get("namespace")
        return str(given or self._namespace or self._client.config.namespace or "default")

    async def check(self, manifests: Sequence[Manifest]) -> None:
        """Refuse kinds that the cluster does not serve, unless the files define them, and foreign namespaces."""
        defined = {_defined_kind(manifest) for manifest in manifests if manifest.kind == CRD_KIND}
        problems = []
        for manifest in manifests:
            group = manifest.api_version.rpartition("/")[0]
            if (group, manifest.kind) not in defined and await self._rest_mapper.resource(
                manifest.api_version, manifest.kind
            ) is None:
                problems.append(unknown_kind(manifest))
            given = manifest.object["metadata"].get("namespace")
            if given and self._namespace and given != self._namespace:
                problems.append(
                    f"{manifest.place}: {manifest.title} is in namespace {given!r}, but --namespace says "
                    f"{self._namespace!r}; leave one of them out"
                )
        if problems:
            raise Rejected(problems)

    async def submit(self, manifest: Manifest) -> tuple[JsonObject, list[str]]:
        """Write one object; returns it as the server has it, and what the server warns of."""
        resource = await self._rest_mapper.resource(manifest.api_version, manifest.kind, fresh=True)
        if resource is None:
            raise Rejected([unknown_kind(manifest)])
        metadata = dict(manifest.object["metadata"])
        if resource.namespaced:
            metadata["namespace"] = self._namespace_of(manifest)
        obj = {**manifest.object, "metadata": metadata}
        reference = self.reference(obj) if is_trainjob(manifest) else None
        try:
            return await self._write_patiently(resource, obj, reference)
        except AlreadyExists as error:
            text = (
                f"{manifest.place}: {manifest.title} already exists in namespace {metadata.get('namespace')!r}; "
                "delete it or take another name (metadata.generateName makes a new one for each run)"
            )
            raise Rejected([text]) from error
        except ApiError as error:
            lines, advice = error_lines(error), list[str]()
            missed = [] if reference is None else list(filter(reference.is_missed_in, lines))
            if reference is not None and missed and await is_missing(self._client, reference):
                # In place of what the webhook says about it; what else is wrong is reported as well.
                missing, *advice = await explain_missing(self._client, reference)
                lines = [line for line in lines if line not in missed] + [missing]
            raise Rejected([*(f"{manifest.place}: {manifest.title}: {line}" for line in lines), *advice]) from error

    async def _write_patiently(
        self, resource: Resource, obj: JsonObject, reference: RuntimeReference | None
    ) -> tuple[JsonObject, list[str]]:
        """Write an object; a refusal for want of a runtime that has just been applied is not the last word."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _LATE_AT_MOST
        while True:
            try:
                return await self._write(resource, obj)
            except ApiError as error:
                late = reference is not None and reference.supplied and reference.is_missed_in(error.message)
                if not late or loop.time() > deadline:
                    raise
            await asyncio.sleep(_LOOK_EVERY)

    async def _write(self, resource: Resource, obj: JsonObject) -> tuple[JsonObject, list[str]]:
        metadata = obj["metadata"]
        namespace = metadata.get("namespace") if resource.namespaced else None
        params = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        creates = (resource.group, resource.kind) == (GROUP, TRAINJOB_KIND) or not metadata.get("name")
        answer, headers = await send(
            self._client,
            "POST" if creates else "PATCH",
            resource.path(namespace, None if creates else metadata["name"]),
            params=params if creates else {**params, "force": "true"},
            body=obj,
            content_type=JSON if creates else APPLY,
        )
        return answer, warnings_in(headers)


def _defined_kind(definition: Manifest) -> tuple[str, str] | None:
    spec = definition.object.get("spec")
    names = spec.get("names") if isinstance(spec, dict) else None
    return (
        (spec.get("group", ""), names.get("kind", "")) if isinstance(spec, dict) and isinstance(names, dict) else None
    )


def _key(metadata: JsonObject) -> str:
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])
