"""Records what the version that is checked out leaves in a cluster, for `test_upgrade` of the versions after it.

    PYTHONPATH=tests python tests/upgrade/record.py

It plays the TrainJobs of the recorded cases, a namespace each, lets every second one end, and writes all objects of the
cluster, as the journal of the embedded cluster has them, to `<version>.journal.gz` beside this file.
"""

import asyncio
import gzip
import tempfile
from pathlib import Path

from support.golden import RESOURCES, in_namespace, load_case, recorded_cases
from support.series import series
from support.stack import api_server, manager

from trainmaster.controller.kube.rest.errors import AlreadyExists, Invalid
from trainmaster.controller.kube.rest.resources import NAMESPACES
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.version import __version__

HERE = Path(__file__).parent
COMPLETED = {
    "type": "Completed",
    "status": "True",
    "reason": "AllJobsCompleted",
    "message": "jobset completed successfully",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


async def settled() -> None:
    """Wait until the manager has nothing left to do; those that are blocked are tried again for ever."""
    calm = 0
    while calm < 100:
        working = [
            each.value
            for name in ("workqueue_depth", "controller_runtime_active_workers")
            for each in series(name)
            if each.labels.get("controller") == "trainjob_controller"
        ]
        calm = 0 if any(working) else calm + 1
        await asyncio.sleep(0.02)


async def record(directory: Path) -> bytes:
    """Return the journal."""
    async with api_server(directory) as stack:
        client = stack.client
        for name in recorded_cases("cases"):
            namespace = f"upgrade-{name[:3]}"
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            for obj in in_namespace(load_case(name).given, namespace):
                resource = RESOURCES[obj["kind"]]
                if resource.namespaced:
                    obj["metadata"]["namespace"] = namespace
                try:
                    await client.create(resource, obj)
                except (AlreadyExists, Invalid) as error:
                    print(f"{name}: {error}")
        async with manager(stack.access):
            await settled()
            for number, jobset in enumerate((await client.list(JOBSETS))["items"]):
                if number % 2:
                    metadata = jobset["metadata"]
                    await client.patch(
                        JOBSETS,
                        metadata["namespace"],
                        metadata["name"],
                        {"status": {"conditions": [COMPLETED]}},
                        subresource="status",
                    )
            await settled()
        print(f"{len((await client.list(TRAINJOBS))['items'])} TrainJobs")
    return (directory / "cluster/journal").read_bytes()


def main() -> None:
    """Run the command."""
    with tempfile.TemporaryDirectory() as directory:
        journal = asyncio.run(record(Path(directory)))
    target = HERE / f"{__version__}.journal.gz"
    target.write_bytes(gzip.compress(journal, 9, mtime=0))
    print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
