"""Watching what a manager writes that starts in a cluster where another one has worked before."""

import asyncio
from collections.abc import Collection

from support.commands import TIMEOUT
from support.golden import RESOURCES, SEEN
from support.series import series
from support.stack import Stack, manager

from trainmaster.controller.kube.clock import Clock

_TRAINJOBS = {"controller": "trainjob_controller"}


async def written_by_a_new_manager(
    stack: Stack, prefix: str, *, clock: Clock | None = None, foreseen: Collection[str] = ()
) -> set[str]:
    """Run a manager until it has looked at every TrainJob, and tell what it wrote, as "namespace Kind/name".

    Events and the Lease do not count, nor does what is in other namespaces than those whose names begin with `prefix`.

    Args:
        stack: The cluster.
        prefix: How the names of the namespaces begin.
        clock: That of the manager.
        foreseen: Namespaces in which it has something to write. What has to be tried again waits in no queue that can
            be seen, so that a calm moment does not mean that all of it is written.
    """
    before = await _versions(stack, prefix)
    jobs = sum(key.partition(" ")[2].startswith("TrainJob/") for key in before)
    assert jobs
    looked = _metric("controller_runtime_reconcile_total")
    async with manager(stack.access, clock=clock):
        deadline = asyncio.get_running_loop().time() + TIMEOUT
        while True:
            await _idle(looked + jobs)
            after = await _versions(stack, prefix)
            written = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
            missing = set(foreseen) - {key.partition(" ")[0] for key in written}
            if not missing or asyncio.get_running_loop().time() > deadline:
                return written


async def _versions(stack: Stack, prefix: str) -> dict[str, str]:
    found = {}
    for kind in SEEN:
        if kind != "Event":
            for item in (await stack.client.list(RESOURCES[kind]))["items"]:
                metadata = item["metadata"]
                if metadata.get("namespace", "").startswith(prefix):
                    found[f"{metadata['namespace']} {kind}/{metadata['name']}"] = metadata["resourceVersion"]
    return found


async def _idle(reconciles: float) -> None:
    """Wait until there have been so many reconciles, and nothing is left to do.

    What is blocked is tried again for ever, so a calm moment has to do.
    """
    calm = 0
    async with asyncio.timeout(TIMEOUT):
        while calm < 20:
            busy = _metric("workqueue_depth") or _metric("controller_runtime_active_workers")
            calm = 0 if busy or _metric("controller_runtime_reconcile_total") < reconciles else calm + 1
            await asyncio.sleep(0.02)


def _metric(name: str) -> float:
    return sum(each.value for each in series(name) if _TRAINJOBS.items() <= each.labels.items())
