"""`trainmaster delete`, `suspend`, `resume`, of some jobs; and `restart`, which takes a new object: a job is one run.

- Of a job that is restarted, what it says is kept, what the server and the controllers wrote is not. ConfigMaps that
  belong to it, as those with its script, are handed over to the new one.
- Nothing is deleted before the server has agreed to the new job (a dry run). If it refuses after all, or the command is
  ended between deletion and creation, the manifest of the new job is printed, so that nothing is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final

from trainmaster.controller.cli.jobs.lookup import Job, find_job, list_jobs, suspension
from trainmaster.controller.cli.jobs.options import (
    add_cluster_options,
    add_job,
    add_jobs,
    for_each,
    namespace_of,
    next_command,
    on_cluster,
)
from trainmaster.controller.cli.printers import report, to_yaml
from trainmaster.controller.cli.responses import FIELD_MANAGER, Rejected, error_lines, write
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import AlreadyExists, ApiError, Conflict, Invalid, KubeError, NotFound
from trainmaster.controller.kube.rest.resources import CONFIGMAPS
from trainmaster.runtime.jsontree import JsonObject


def delete(commands: Any) -> None:
    """Add `delete`."""
    about = "Delete jobs, their pods and the logs of these. Those that run are ended."
    parser = _parser(commands, "delete", about, jobs="*")
    parser.add_argument("--all", action="store_true", help="all jobs of the namespace")
    parser.set_defaults(run=on_cluster(_delete_some))


async def _delete_some(client: KubeClient, arguments: argparse.Namespace) -> int:
    if bool(arguments.jobs) == arguments.all:
        raise Rejected(["delete which jobs? name some, or write --all for those of the namespace; not both"])
    if not arguments.all:
        return await for_each(_delete)(client, arguments)
    namespace = namespace_of(client, arguments)
    jobs = await list_jobs(client, namespace)
    if not jobs:
        report(f"no jobs in namespace {namespace}")
    for job in jobs:
        await _delete(client, job)
    return 0


def suspend(commands: Any) -> None:
    """Add `suspend`."""
    about = (
        "End the pods of jobs, which `trainmaster resume` starts anew. What they computed after their last checkpoint "
        "is lost."
    )
    _add(commands, "suspend", about, lambda client, job: _set_suspend(client, job, suspend=True))


def resume(commands: Any) -> None:
    """Add `resume`."""
    about = "Start the pods of suspended jobs anew."
    _add(commands, "resume", about, lambda client, job: _set_suspend(client, job, suspend=False))


def _add(commands: Any, name: str, about: str, act: Callable[[KubeClient, Job], Awaitable[None]]) -> None:
    _parser(commands, name, about, jobs="+").set_defaults(run=on_cluster(for_each(act)))


def _parser(commands: Any, name: str, about: str, *, jobs: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, description=about)
    add_jobs(parser, number=jobs)
    add_cluster_options(parser)
    return parser


async def _delete(client: KubeClient, job: Job) -> None:
    try:
        left = await client.delete(job.resource, job.namespace, job.name, uid=job.uid)
    except (NotFound, Conflict):
        report(f"{job.title} is gone already")  # somebody else was faster, and may have made a new one of that name
        return
    finalizers = (left.get("metadata") or {}).get("finalizers") if left.get("kind") == job.kind else None
    waits = f"; it stays until who wrote its finalizers is done: {', '.join(finalizers)}" if finalizers else ""
    report(f"{job.title} deleted{waits}")


async def _set_suspend(client: KubeClient, job: Job, *, suspend: bool) -> None:
    """Suspend or resume a job.

    Raises:
        Rejected: It has ended, or the server refuses.
    """
    if job.outcome is not None:
        word = "suspended" if suspend else "resumed"
        again = f"`trainmaster restart {job.argument}` runs it again"
        raise Rejected([f"{job.title} has ended ({job.outcome}) and cannot be {word}; {again}"])
    if job.is_suspended == suspend:
        report(f"{job.title} is suspended already" if suspend else f"{job.title} is not suspended")
        return
    try:
        await client.patch(
            job.resource, job.namespace, job.name, suspension(job, suspend=suspend), field_manager=FIELD_MANAGER
        )
    except NotFound as error:
        raise Rejected([f"{job.title} was deleted meanwhile"]) from error
    except (Conflict, Invalid) as error:
        raise Rejected([f"{job.title}: {line}" for line in error_lines(error)]) from error
    report(f"{job.title} suspended: its pods end" if suspend else f"{job.title} resumed: its pods start anew")


_GONE_AT_MOST: Final = 60.0
"""Seconds that finalizers may take: those of queues take a few."""

_LOOK_EVERY: Final = 0.1
_KUEUE: Final = "kueue.x-k8s.io/manager"
"""Who patches the runtime of a job when it is admitted, and does so again for the new one."""

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def restart(commands: Any) -> None:
    """Add `restart`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "restart",
        description="Delete a job, also a running one, and create it again with the same spec; with --name, create a "
        "copy.",
    )
    add_job(parser)
    parser.add_argument("--name", metavar="NEW", help="keep the job, and create a copy of this name")
    add_cluster_options(parser)
    parser.set_defaults(run=on_cluster(_restart))


async def _restart(client: KubeClient, arguments: argparse.Namespace) -> int:
    job = await find_job(client, namespace_of(client, arguments), arguments.job)
    if arguments.name is None:
        new = await replace(client, job, anew(job.object))
        done = f"{new.title} started anew"
    else:
        new = await copy(client, job, arguments.name)
        done = f"{new.title} created, a copy of {job.name}"
    if new.is_suspended:
        report(f"{done}; it is suspended, as it was: {next_command('resume', new, client, arguments)}")
    else:
        report(f"{done}; to follow it: {next_command('attach', new, client, arguments)}")
    return 0


def anew(obj: JsonObject, *, name: str | None = None) -> JsonObject:
    """Return what to create for another run of a job: what its authors wrote.

    A copy of another name belongs to nobody; what takes the place of the job belongs to whom the job belongs to.
    """
    metadata = obj["metadata"]
    kept: JsonObject = {"name": name or metadata["name"], "namespace": metadata["namespace"]}
    if metadata.get("labels"):
        kept["labels"] = metadata["labels"]
    if annotations := {key: text for key, text in (metadata.get("annotations") or {}).items() if key != _LAST_APPLIED}:
        kept["annotations"] = annotations
    if metadata.get("ownerReferences") and name is None:
        kept["ownerReferences"] = metadata["ownerReferences"]
    spec = dict(obj["spec"])
    if patches := spec.pop("runtimePatches", None):
        patches = [each for each in patches if each.get("manager") != _KUEUE]
        spec |= {"runtimePatches": patches} if patches else {}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": kept, "spec": spec}


async def copy(client: KubeClient, job: Job, name: str) -> Job:
    """Create a copy of a job, which shares the ConfigMaps that belong to it.

    Raises:
        Rejected: The server refuses.
    """
    new = await _create(client, job, anew(job.object, name=name))
    await _hand_over(client, await _belongings(client, job), new)
    return new


async def replace(client: KubeClient, job: Job, manifest: JsonObject) -> Job:
    """Delete a job, and create another one of its name when it is gone.

    Raises:
        Rejected: The server refuses the new one.
        KubeError: The cluster cannot be used.
    """
    await _create(client, job, manifest, dry_run=True)
    belongings = await delete_alone(client, job)
    with _not_lost(manifest):
        await wait_until_gone(client, job)
        new = await _create(client, job, manifest)
    await _hand_over(client, belongings, new)
    return new


async def delete_alone(client: KubeClient, job: Job) -> list[JsonObject]:
    """Delete a job, but not the ConfigMaps that belong to it; returns those, which belong to nobody then."""
    belongings = await _belongings(client, job)
    for each in belongings:
        # The garbage collector would delete them with the job.
        others = [owner for owner in each["metadata"]["ownerReferences"] if owner["uid"] != job.uid]
        await _set_owners(client, each, others)
    try:
        await client.delete(job.resource, job.namespace, job.name, uid=job.uid)
    except (NotFound, Conflict):
        pass  # somebody else has deleted it
    except KubeError:
        await _hand_over(client, belongings, job)
        raise
    return belongings


@contextlib.contextmanager
def _not_lost(manifest: JsonObject) -> Iterator[None]:
    """Print the manifest of a job that is deleted, if no new one could be made of it."""
    try:
        yield
    except BaseException:
        report("the job was deleted, and could not be created anew; this is its manifest, for `trainmaster run`:")
        print(to_yaml(manifest), end="", flush=True)
        raise


async def wait_until_gone(client: KubeClient, job: Job) -> None:
    """Wait until a job that was deleted is gone.

    Raises:
        Rejected: Its finalizers take too long.
    """
    deadline = asyncio.get_running_loop().time() + _GONE_AT_MOST
    waiting = False
    while True:
        try:
            current = await client.get(job.resource, job.namespace, job.name, metadata_only=True)
        except NotFound:
            return
        metadata = current["metadata"]
        if metadata["uid"] != job.uid:
            return  # somebody was faster, as the creation will tell
        holding = ", ".join(metadata.get("finalizers") or ()) or "nobody that is known"
        if asyncio.get_running_loop().time() > deadline:
            raise Rejected(
                [f"{job.title} is still there {_GONE_AT_MOST:g} s after its deletion; its finalizers are of: {holding}"]
            )
        if not waiting and metadata.get("finalizers"):
            report(f"waiting until {job.title} is gone; its finalizers are of: {holding}")
            waiting = True
        await asyncio.sleep(_LOOK_EVERY)


async def _create(client: KubeClient, job: Job, manifest: JsonObject, *, dry_run: bool = False) -> Job:
    """Create a job, or find out whether the server would: there admission comes before the look at the name."""
    name = manifest["metadata"]["name"]
    try:
        made, _ = await write(client, job.resource, manifest, creates=True, dry_run=dry_run)
    except AlreadyExists as error:
        if dry_run:
            return job
        raise Rejected(
            [f"{job.kind} {job.namespace}/{name} exists already; take another name, or delete that one"]
        ) from error
    except ApiError as error:
        raise Rejected([f"{job.kind} {job.namespace}/{name}: {line}" for line in error_lines(error)]) from error
    return Job(made, job.resource)


async def _belongings(client: KubeClient, job: Job) -> list[JsonObject]:
    """Return the ConfigMaps that are to live as long as the job, other than those that a controller makes of it."""
    try:
        found = await client.list(CONFIGMAPS, job.namespace)
    except ApiError:
        return []  # who may not read them did not make any for it
    return [
        each
        for each in found["items"]
        if any(
            owner["uid"] == job.uid and not owner.get("controller")
            for owner in each["metadata"].get("ownerReferences") or ()
        )
    ]


async def _hand_over(client: KubeClient, belongings: Iterable[JsonObject], job: Job) -> None:
    """Make ConfigMaps belong to a job, beside whom they belong to."""
    for each in belongings:
        current = await client.get(CONFIGMAPS, job.namespace, each["metadata"]["name"])
        await _set_owners(client, current, [*(current["metadata"].get("ownerReferences") or ()), _reference(job)])


def _reference(job: Job) -> JsonObject:
    return {"apiVersion": job.resource.api_version, "kind": job.kind, "name": job.name, "uid": job.uid}


async def _set_owners(client: KubeClient, config_map: JsonObject, owners: list[JsonObject]) -> None:
    metadata = config_map["metadata"]
    await client.patch(
        CONFIGMAPS,
        metadata["namespace"],
        metadata["name"],
        {"metadata": {"ownerReferences": owners or None, "resourceVersion": metadata["resourceVersion"]}},
        field_manager=FIELD_MANAGER,
    )
