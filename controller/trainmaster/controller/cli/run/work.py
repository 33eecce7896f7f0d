"""What is to be submitted: the objects of files, which are known from the start, or those that a program becomes, which
depend on the cluster.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainmaster.controller.cli.files.manifests import Manifest
from trainmaster.controller.cli.responses import Rejected
from trainmaster.controller.cli.run.script.options import Options
from trainmaster.controller.cli.run.script.prepare import (
    check_program,
    config_maps,
    discard,
    discard_predecessors,
    find_claim,
    find_runtime,
    give,
    local_objects,
    manifests_of,
    remote_objects,
)
from trainmaster.controller.cli.run.script.program import Program
from trainmaster.controller.cli.run.submit import Diagnosis, Submission, Submitter, is_run, require_jobs
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import KubeError

Report = Callable[[str], None]


class ManifestRun:
    """The objects of some files.

    Raises:
        Rejected: No job is among them.
    """

    def __init__(self, manifests: Sequence[Manifest], *, namespace: str | None) -> None:
        self.diagnosis = Diagnosis(manifests, namespace=namespace)
        self._manifests = list(manifests)
        require_jobs(manifests, self.diagnosis)

    def check(self, *, report: Report) -> None:  # noqa: ARG002 - the other work warns
        """Refuse what an embedded cluster that has to be started first would refuse.

        Raises:
            Rejected: Something is wrong.
        """
        if problems := self.diagnosis.errors():
            raise Rejected(problems)

    async def manifests(
        self,
        client: KubeClient | None,  # noqa: ARG002 - they are the same on every cluster
        manager: Mapping[str, Any] | None,  # noqa: ARG002 - as above
        *,
        report: Report,  # noqa: ARG002 - as above
    ) -> list[Manifest]:
        """Return the objects."""
        return self._manifests

    def rename(self, names: Mapping[tuple[str, str], str]) -> None:
        """Give new names to jobs, which are known by their places and names."""
        self._manifests = [
            replace(manifest, object={**manifest.object, "metadata": {**metadata, "name": names[key]}})
            if is_run(manifest) and (key := (manifest.place, metadata.get("name"))) in names
            else manifest
            for manifest in self._manifests
            for metadata in [manifest.object["metadata"]]
        ]

    async def submit(self, submitter: Submitter, client: KubeClient, *, report: Report) -> Submission:  # noqa: ARG002
        """Submit the objects."""
        return await submitter.submit(report)


class ProgramRun:
    """A program, and what was said of it."""

    def __init__(self, program: Program, options: Options, *, namespace: str | None) -> None:
        self.diagnosis = Diagnosis((), namespace=namespace)  # its TrainJob has no lines that anybody has written
        self._program = program
        self._options = options
        self._namespace = namespace
        self._config_maps: list[str] = []
        self._is_checked = False
        self._is_described = False

    def check(self, *, report: Report) -> None:
        """Refuse what an embedded cluster that has to be started first could not run.

        Raises:
            ProgramError: It is no Python.
        """
        self._check(sys.executable, report)

    async def manifests(
        self, client: KubeClient | None, manager: Mapping[str, Any] | None, *, report: Report
    ) -> list[Manifest]:
        """Return its objects.

        `client` is None if there is no cluster, or it does not answer; `manager` is what an embedded cluster tells of
        its manager, None for others, which do not see this machine.

        Raises:
            ProgramError: It cannot be run there.
        """
        is_local = manager is not None
        # Older clusters do not say with which interpreter they run.
        self._check(str((manager or {}).get("python") or "") or None, report)
        namespace = self._namespace or (client.config.namespace if client is not None else None) or "default"
        if self._is_described:
            report = _say_nothing
        runtime = await find_runtime(self._program, self._options, client, namespace=namespace, report=report)
        objects = local_objects if is_local else functools.partial(remote_objects, report=report)
        found = objects(self._program, self._options, runtime)
        if not is_local:
            claims = await find_claim(self._options, client, namespace=namespace, report=report)
            found = [*manifests_of(self._program, claims), *found]
        self._config_maps = config_maps(found)
        self._is_described = True
        return found

    def rename(self, names: Mapping[tuple[str, str], str]) -> None:
        """Give its TrainJob a new name, and so to what belongs to that."""
        for name in names.values():
            self._options = replace(self._options, name=name)

    async def submit(self, submitter: Submitter, client: KubeClient, *, report: Report) -> Submission:
        """Submit its objects; the ConfigMap goes when the TrainJob does, or at once if that is refused."""
        namespace = self._namespace or client.config.namespace or "default"
        try:
            submission = await submitter.submit(report)
        except Rejected:
            await discard(client, self._config_maps, namespace)
            raise
        except KubeError:
            # Nobody knows whether the TrainJob is there.
            for name in self._config_maps:
                report(f"warning: ConfigMap {namespace}/{name} may have been left behind")
            raise
        await give(client, self._config_maps, submission.jobs[0], report=report)
        if self._options.name is not None:
            await discard_predecessors(client, self._config_maps, submission.jobs[0])
        return submission

    def _check(self, python: str | None, report: Report) -> None:
        if not self._is_checked:
            check_program(self._program, self._options, python=python, report=report)
        self._is_checked = True


def _say_nothing(text: str) -> None:
    """Take what was told already."""
