"""Submits the manifests of some files: makes objects of them in a cluster.

- Nothing is written before every manifest is known to be of a kind that the cluster serves, and before the server has
  judged each of them, and the names of the jobs, in a dry run.
- The order is that of dependence (namespaces, definitions, runtimes, other objects, jobs), then that of the files.
- A TrainJob that is refused for want of its runtime gets advice; one whose runtime was applied a moment before is tried
  again, since a webhook may learn of that late.
- Jobs are created, because each is one run: the same name cannot run twice. Everything else is applied, so that
  files can be run again. Fields that the schema does not know are errors.
- What is wrong is told in the words of `trainmaster validate`. It only explains; whether an object is refused is said
  by the server alone, which may have other definitions, runtimes and plugins.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainmaster.controller.cli.files.manifests import CRD_KIND, Manifest, apply_order, is_job, is_trainjob
from trainmaster.controller.cli.follow.job_status import FollowedJob, followed_job
from trainmaster.controller.cli.follow.runtime_reference import (
    RuntimeReference,
    explain_missing,
    is_missing,
    reference_of,
)
from trainmaster.controller.cli.responses import (
    Rejected,
    RestMapper,
    error_lines,
    unknown_kind,
    warnings_in,
    write,
)
from trainmaster.controller.cli.run.existing import Taken
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import AlreadyExists, ApiError
from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.runtime.api.constants import GROUP, SCHEDULING_GATE, TRAINING_RUNTIME_KIND, TRAINJOB_KIND
from trainmaster.runtime.jobs.constants import installed_kinds
from trainmaster.runtime.jsontree import JsonObject

_LATE_AT_MOST = 10.0
"""Seconds that the caches of a webhook may be behind; they follow watches, which take less than one."""

_LOOK_EVERY = 0.1

_REFUSALS = frozenset({400, 403, 422})
"""What a server answers, also to a dry run, if it will never take an object as it is."""

_NO_DRY_RUN = "does not support dry run"
"""What it says of an admission webhook that has side effects."""

_WEBHOOK = "admission webhook "


class Diagnosis:
    """Of the manifests of some files; made when it is asked for, since most files are sound.

    With `runtimes_elsewhere` there may be runtimes that are neither in the files nor built in.
    """

    def __init__(
        self, manifests: Sequence[Manifest], *, namespace: str | None, runtimes_elsewhere: bool = True
    ) -> None:
        self._manifests = manifests
        self._namespace = namespace
        self._runtimes_elsewhere = runtimes_elsewhere

    def errors(self, manifest: Manifest | None = None) -> list[str]:
        """Return what is wrong with a manifest, or with all of them."""
        if manifest is not None:
            return list(self._errors.get(id(manifest), ()))
        return [error for errors in self._errors.values() for error in errors]

    @functools.cached_property
    def _errors(self) -> Mapping[int, list[str]]:
        # Most files are sound, and these take longer than all the rest.
        try:
            from trainmaster.controller.cli.files.offline import OfflineValidation  # noqa: PLC0415 - see above
        except ImportError:
            return {}
        from trainmaster.runtime.framework import Framework, PluginInvalid, load_plugins  # noqa: PLC0415 - see above
        from trainmaster.runtime.jobs.loader import load_job_kinds  # noqa: PLC0415 - see above

        try:
            validation = OfflineValidation(
                self._manifests,
                Framework(load_plugins(features=(SCHEDULING_GATE,))),  # whether it is on, the cluster says
                namespace=self._namespace or "default",
                job_kinds=load_job_kinds,
                runtimes_elsewhere=self._runtimes_elsewhere,
            )
        except (ImportError, RuntimeError, PluginInvalid):
            return {}
        return {
            id(validated.manifest): [
                # What was made of a program has no lines that anybody has written.
                str(diagnostic if validated.manifest.source.line else replace(diagnostic, line=None, column=None))
                for diagnostic in validated.diagnostics
                if diagnostic.severity == "error"
            ]
            for validated in validation.validated
        }


@dataclass(frozen=True, slots=True)
class Submission:
    """What became of some manifests."""

    jobs: list[FollowedJob]
    """The jobs that were created."""

    problem: Rejected | None = None
    """Why the rest was not, if it was not."""


def is_run(manifest: Manifest) -> bool:
    """Whether it is a job, which runs once, and is followed: a TrainJob, or one of `kubeflow.org/v1`."""
    return is_trainjob(manifest) or is_job(manifest)


def require_jobs(manifests: Sequence[Manifest], diagnosis: Diagnosis) -> None:
    """Raise `Rejected` if no file has a job."""
    if not any(map(is_run, manifests)):
        raise Rejected(diagnosis.errors() or [f"no {TRAINJOB_KIND} or other job in the files; there is nothing to run"])


class Submitter:
    """Brings some manifests into a cluster."""

    def __init__(
        self, client: KubeClient, manifests: Sequence[Manifest], *, namespace: str | None, diagnosis: Diagnosis
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._rest_mapper = RestMapper(client)
        self._manifests = sorted(manifests, key=apply_order)
        self._diagnosis = diagnosis

    async def check(self) -> list[Taken]:
        """Ask the server about every manifest, without writing anything.

        Returns:
            The jobs whose names are taken.

        Raises:
            Rejected: Some cannot be submitted.
            TransportError: The server cannot be reached.
        """
        await self._check_kinds()
        taken, problems = list[Taken](), self._repeated()
        for manifest in self._manifests:
            resource = await self._rest_mapper.resource(manifest.api_version, manifest.kind)
            if resource is None:
                continue  # the files define it
            obj = self._completed(manifest, resource)
            try:
                await self._write(resource, obj, dry_run=True)
            except AlreadyExists:
                taken.append(self._taken(manifest, resource))
            except ApiError as error:
                if error.status in _REFUSALS and not self._is_unsure(manifest, obj, error):
                    problems += await self._explained(manifest, obj, error)
        if problems:
            raise Rejected(dict.fromkeys(problems))
        return taken

    async def submit(self, report: Callable[[str], None]) -> Submission:
        """Write all objects.

        Raises:
            Rejected: The server refuses one, and no job was created before.
            TransportError: The server cannot be reached.
        """
        jobs: list[FollowedJob] = []
        for number, manifest in enumerate(self._manifests):
            try:
                obj, warnings, resource = await self._submit(manifest)
            except Rejected as error:
                if not jobs:
                    raise
                left = ", ".join(each.title for each in self._manifests[number:])
                return Submission(jobs, Rejected([*str(error).splitlines(), f"not submitted: {left}"]))
            metadata = obj["metadata"]
            for warning in warnings:
                report(f"warning: {manifest.place}: {warning}")
            if is_run(manifest):
                runtime = self._reference(obj) if is_trainjob(manifest) else None
                jobs.append(followed_job(obj, resource, runtime=runtime))
                report(f"{jobs[-1].title} created")
            else:
                report(f"{manifest.kind} {_key(metadata)} applied")
        return Submission(jobs)

    def _taken(self, manifest: Manifest, resource: Resource) -> Taken:
        namespace, name = self.namespace_of(manifest), manifest.object["metadata"]["name"]
        return Taken(manifest.place, resource, namespace, name, self._already_exists(manifest))

    def _already_exists(self, manifest: Manifest) -> str:
        """Say that the name of a job is taken."""
        new = "metadata.generateName makes a new one" if manifest.source.line else "without --name there is a new one"
        return (
            f"{manifest.place}: {manifest.title} already exists in namespace {self.namespace_of(manifest)!r}; "
            f"delete it or take another name ({new} for each run)"
        )

    def _repeated(self) -> list[str]:
        """Say which jobs have the kind and name of another one in the files."""
        problems = []
        first: dict[tuple[str, str, str], Manifest] = {}
        for manifest in filter(is_run, self._manifests):
            name = manifest.object["metadata"].get("name")
            key = manifest.kind, self.namespace_of(manifest), str(name)
            if name and (other := first.setdefault(key, manifest)) is not manifest:
                problems.append(
                    f"{manifest.place}: {manifest.title}: there is another one of this name at {other.place}"
                )
        return problems

    def _reference(self, trainjob: JsonObject) -> RuntimeReference | None:
        """Return the runtime that a TrainJob names."""
        namespace = trainjob["metadata"]["namespace"]
        named = {
            (
                each.kind,
                self.namespace_of(each) if each.kind == TRAINING_RUNTIME_KIND else None,
                each.object["metadata"].get("name"),
            )
            for each in self._manifests
            if each.api_version.partition("/")[0] == GROUP
        }
        return reference_of(trainjob, namespace=namespace, supplied=named)

    def namespace_of(self, manifest: Manifest) -> str:
        """Return the namespace of an object that is in one."""
        given = manifest.object["metadata"].get("namespace")
        return str(given or self._namespace or self._client.config.namespace or "default")

    def _completed(self, manifest: Manifest, resource: Resource) -> JsonObject:
        """Return the object with its namespace."""
        metadata = dict(manifest.object["metadata"])
        if resource.namespaced:
            metadata["namespace"] = self.namespace_of(manifest)
        return {**manifest.object, "metadata": metadata}

    async def _check_kinds(self) -> None:
        """Refuse kinds that the cluster does not serve, unless the files define them, and foreign namespaces."""
        defined = {_defined_kind(manifest) for manifest in self._manifests if manifest.kind == CRD_KIND}
        problems = []
        for manifest in self._manifests:
            group = manifest.api_version.rpartition("/")[0]
            if (group, manifest.kind) not in defined and await self._rest_mapper.resource(
                manifest.api_version, manifest.kind
            ) is None:
                problems += self._diagnosis.errors(manifest) or [unknown_kind(manifest)]
            given = manifest.object["metadata"].get("namespace")
            if given and self._namespace and given != self._namespace:
                problems.append(
                    f"{manifest.place}: {manifest.title} is in namespace {given!r}, but --namespace says "
                    f"{self._namespace!r}; leave one of them out"
                )
        if problems:
            raise Rejected(problems)

    async def _submit(self, manifest: Manifest) -> tuple[JsonObject, list[str], Resource]:
        """Write one object; returns it as the server has it, what the server warns of, and its kind."""
        resource = await self._rest_mapper.resource(manifest.api_version, manifest.kind, fresh=True)
        if resource is None:
            raise Rejected([unknown_kind(manifest)])
        obj = self._completed(manifest, resource)
        try:
            reference = self._reference(obj) if is_trainjob(manifest) else None
            return *await self._write_patiently(resource, obj, reference), resource
        except AlreadyExists as error:
            raise Rejected([self._already_exists(manifest)]) from error
        except ApiError as error:
            raise Rejected(await self._explained(manifest, obj, error)) from error

    def _is_unsure(self, manifest: Manifest, obj: JsonObject, error: ApiError) -> bool:
        """Whether a refusal of a dry run need not be one when the files are in the cluster.

        Webhooks judge a TrainJob by the runtime that the cluster has. The files may bring another one, by which nothing
        is wrong with it.
        """
        if _NO_DRY_RUN in error.message:
            return True
        reference = self._reference(obj) if is_trainjob(manifest) else None
        supplied = reference is not None and reference.supplied and _WEBHOOK in error.message
        return supplied and not self._diagnosis.errors(manifest)

    async def _explained(self, manifest: Manifest, obj: JsonObject, error: ApiError) -> list[str]:
        """Say why the server refuses an object: as `validate` does if that knows, else in its own words."""
        lines, advice = error_lines(error), list[str]()
        reference = self._reference(obj) if is_trainjob(manifest) else None
        missed = [] if reference is None else list(filter(reference.is_missed_in, lines))
        if reference is not None and missed and await is_missing(self._client, reference):
            # In place of what the webhook says about it; what else is wrong is reported as well.
            is_written = manifest.source.line > 0
            missing, *advice = await explain_missing(self._client, reference, is_written=is_written)
            lines = [line for line in lines if line not in missed] + [missing]
        elif diagnosed := self._diagnosis.errors(manifest):
            return diagnosed
        return [*(f"{manifest.place}: {manifest.title}: {line}" for line in lines), *advice]

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

    async def _write(
        self, resource: Resource, obj: JsonObject, *, dry_run: bool = False
    ) -> tuple[JsonObject, list[str]]:
        is_run = resource.kind == TRAINJOB_KIND or resource.kind.lower() in installed_kinds()
        answer, headers = await write(self._client, resource, obj, creates=is_run, dry_run=dry_run)
        return answer, warnings_in(headers)


def _defined_kind(definition: Manifest) -> tuple[str, str] | None:
    spec = definition.object.get("spec")
    names = spec.get("names") if isinstance(spec, dict) else None
    return (
        (spec.get("group", ""), names.get("kind", "")) if isinstance(spec, dict) and isinstance(names, dict) else None
    )


def _key(metadata: JsonObject) -> str:
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])
