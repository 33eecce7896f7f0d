"""`trainmaster explain`, of jobs that run as processes or are gone, and to those who may see little."""

import json
import re
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.commands import Finished, run_program, trainmaster
from support.explained import delete_runtimes, runtime_with
from support.failing_pods import show_failure
from support.installations import allow
from support.kubeconfigs import kubeconfig_of
from support.objects import replicated_job
from support.running_jobs import jobs
from support.samples import owner_reference
from support.stack import Stack, api_server
from support.team import IN_PLACE, Team
from support.training import apply_runtime, trainjob, until

from trainmaster.controller.kube.rest.resources import NAMESPACES, PODS
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.nightly


async def explain(mine: Team, name: str) -> JsonObject:
    done = await mine.cli("explain", name, "-o", "json")
    assert (done.code, done.err) == (0, "")
    found: JsonObject = json.loads(done.out)
    return found


async def test_a_job_that_runs_is_well_and_one_that_is_complete_too(mine: Team, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    await mine.submit("fine", f"while ! [ -e {gate} ]; do sleep 0.05; done", nodes=2)

    async def run() -> bool:
        return [pod["status"].get("phase") for pod in await mine.pods("fine")] == ["Running", "Running"]

    await until(run)
    done = await mine.cli("explain", "fine")
    lines = [line for line in done.out.splitlines() if " of which " not in line]  # goodput, once there is any
    assert re.fullmatch(rf"TrainJob {mine.name}/fine: Running for \d+s \(2 pods\)", lines[0])
    assert lines[1:3] == [
        "  nothing is known to be wrong; whether it makes progress is not known:",
        "  - its pods have written nothing so far",
    ]
    assert any(re.fullmatch(r"  \d\d:\d\d:\d\d  \+\d+s +2 pods are started.*", line) for line in lines)

    gate.touch()
    await mine.condition("fine", "Complete")
    before = await mine.client.get(TRAINJOBS, mine.name, "fine")
    found = await explain(mine, "fine")
    assert (found["state"]["name"], found["causes"], found["failedContainer"]) == ("Complete", [], None)
    assert found["timeline"][-1]["text"].startswith("it is complete")
    assert await mine.client.get(TRAINJOBS, mine.name, "fine") == before, "a look writes nothing"


async def test_a_rank_that_waits_to_be_restarted_in_place_is_shown_with_its_last_lines(mine: Team) -> None:
    await mine.submit("crashes", "echo broken; exit 1", on=IN_PLACE)

    async def waits() -> bool:
        statuses = [each for pod in await mine.pods("crashes") for each in pod["status"].get("containerStatuses") or ()]
        return any((each["state"].get("waiting") or {}).get("reason") == "CrashLoopBackOff" for each in statuses)

    await until(waits)
    assert (await explain(mine, "crashes"))["failedContainer"]["lastLines"] == ["broken"]


async def test_of_a_job_that_was_deleted_events_still_tell(mine: Team) -> None:
    await mine.submit("gone", "exit 1")
    await mine.condition("gone", "Failed")
    await mine.client.delete(TRAINJOBS, mine.name, "gone")

    async def collected() -> bool:
        return not await mine.pods("gone")

    await until(collected)
    done = await mine.cli("explain", "gone", code=0)
    assert done.out.splitlines()[0] == f"TrainJob {mine.name}/gone: Deleted"
    assert "1. ContainerFailed (certain)" in done.out
    assert re.search(r"TrainJob gone: rank 0 \(pod gone-node-0-0-\w+, container node\) failed at", done.out)
    assert re.search(r"  ContainerFailed: attempt 0: rank 0", done.out), done.out


async def test_a_worker_of_a_job_of_kubeflow_org_that_fails_is_named_also_when_the_job_is_gone(mine: Team) -> None:
    fails = ["sh", "-c", "echo no data; exit 3"]
    await mine.submit_v1("PyTorchJob", "ddp", {"Master": (1, ["sleep", "600"]), "Worker": (1, fails)})

    async def failed() -> bool:
        status = (await mine.client.get(jobs("PyTorchJob"), mine.name, "ddp")).get("status") or {}
        return any((each["type"], each["status"]) == ("Failed", "True") for each in status.get("conditions") or ())

    await until(failed)
    found = await explain(mine, "pytorchjob/ddp")
    assert found["causes"][0]["cause"] == "ContainerFailed"
    shown = found["failedContainer"]
    assert (shown["role"], shown["exitCode"], shown["lastLines"]) == ("worker 0", 3, ["no data"])

    await mine.client.delete(jobs("PyTorchJob"), mine.name, "ddp")

    async def collected() -> bool:
        return not (await mine.client.list(PODS, mine.name))["items"]

    await until(collected)
    for name in ("pytorchjob/ddp", "ddp"):
        done = await mine.cli("explain", name, code=0)
        assert done.out.splitlines()[0] == f"PyTorchJob {mine.name}/ddp: Deleted"
        assert "1. ContainerFailed (certain)" in done.out
        assert "Pod ddp-worker-0: exited with code 3" in done.out
    done = await mine.cli("explain", "trainjob/ddp")
    assert (done.code, done.out) == (2, ""), "no event tells of a TrainJob"


COMMAND = re.compile(r"(?:: |`)((?:trainmaster|kubectl) [^`|);]+)")
FAILS: dict[str, tuple[JsonObject, str, str]] = {
    "a-node": ({}, "[ $JOB_COMPLETION_INDEX = 0 ] || { echo broken; exit 3; }; sleep 600", "ContainerFailed"),
    "killed": ({}, "kill -9 $$", "ContainerFailed"),
    "no-name": ({}, "echo 'socket.gaierror: [Errno -2] Name or service not known'; exit 1", "NameResolutionFailed"),
    "nobody": ({}, "echo 'DistStoreError: wait timeout after 300000ms'; exit 1", "RendezvousTimeout"),
    "no-step": ({}, "echo 'Watchdog caught collective operation timeout: x'; exit 1", "CollectiveTimeout"),
    "no-module": ({}, f"exec {sys.executable} -c 'import yamlx'", "ContainerFailed"),
    "late": ({"activeDeadlineSeconds": 1}, "sleep 600", "DeadlineExceeded"),
    "held": ({"suspend": True}, "true", "Suspended"),
    "no-data": ({"on": "fetches"}, "true", "InitContainerFailed"),
    "loops": ({"on": "loops"}, "echo broken; sleep 1; exit 3", "ContainerFailed"),
}
"""Jobs of two nodes, each with a cause of its own."""


async def test_every_command_that_is_advised_works_where_it_is_advised(mine: Team) -> None:
    """What looks at something comes before what changes the job."""
    fetch = {"name": "fetch", "image": "i", "command": ["sh", "-c", "echo no such bucket; exit 1"]}
    await apply_runtime(mine.client, runtime_with("fetches", initContainers=[fetch]))
    # Its pods are deleted when it has failed, while one of their containers runs again.
    await apply_runtime(mine.client, runtime_with("loops", backoff_limit=1, restart_policy="OnFailure"))
    for name, (spec, script, _) in FAILS.items():
        await mine.submit(name, script, nodes=2, **spec)
    for name, (*_, cause) in FAILS.items():
        found: JsonObject = {}

        async def is_explained(name: str = name, cause: str = cause, found: JsonObject = found) -> bool:
            found.update(await explain(mine, name))
            is_over = name != "loops" or found["state"]["name"] == "Failed"
            return is_over and any(each["cause"] == cause for each in found["causes"])

        await until(is_explained)
        if name == "no-module":
            assert f"{sys.executable} -m pip install yamlx" in found["causes"][0]["whatNext"][0]
        advice = [line for each in found["causes"] for line in each["whatNext"]]
        for command in sorted({command for line in advice for command in COMMAND.findall(line)}, key=_changes):
            program, *words = shlex.split(command)
            if program == "trainmaster":
                done = await trainmaster(*words, cwd=mine.directory)
            elif shutil.which(program):
                done = await run_program(program, *words, *([] if "--kubeconfig" in words else mine.options[2:]))
            assert done.code == 0, f"{command}: {done.err}"
            assert done.out or done.err, command
            if " logs " in command and name in ("a-node", "no-data", "loops"):
                assert done.out.endswith(("broken\n", "no such bucket\n")), command
    for name in ("fetches", "loops"):
        await delete_runtimes(mine.client, name)


def _changes(command: str) -> bool:
    return command.split()[1] in ("resume", "restart", "delete")


TEAM = "research"
TRAINER = "trainer.kubeflow.org"


class Guest:
    """Somebody who has some rights in one namespace, and a job that does not run."""

    def __init__(self, stack: Stack, kubeconfig: str) -> None:
        self._stack, self._kubeconfig = stack, kubeconfig

    async def may(self, *rights: tuple[str, str]) -> None:
        """Give rights to read, each as group and resource."""
        rules = [{"apiGroups": [group], "resources": [each], "verbs": ["get", "list"]} for group, each in rights]
        await allow(self._stack.client, "guest", *rules, namespace=TEAM)

    async def explain(self, *options: str) -> Finished:
        words = ("explain", "digits", "-n", TEAM, "--kubeconfig", self._kubeconfig, *options)
        return await trainmaster(*words, cwd=Path(self._kubeconfig).parent)


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[Guest]:
    """There is a job of which node 1 has failed; nobody works on the cluster."""
    async with api_server(tmp_path, rbac=True) as stack:
        await stack.client.create(NAMESPACES, {"metadata": {"name": TEAM}})
        job = trainjob("digits")
        job["metadata"]["namespace"] = TEAM
        made = await stack.client.create(TRAINJOBS, job)
        spec = {"replicatedJobs": [replicated_job()]}
        metadata = {"name": "digits", "ownerReferences": [owner_reference(made)]}
        head = {"apiVersion": JOBSETS.api_version, "kind": "JobSet"}
        await stack.client.create(JOBSETS, {**head, "metadata": metadata, "spec": spec}, namespace=TEAM)
        await show_failure(stack.client, TEAM, "digits", message="")
        yield Guest(stack, await kubeconfig_of(stack, tmp_path, "guest"))


async def test_who_may_see_nothing_but_the_job_is_told_so(guest: Guest) -> None:
    done = await guest.explain()
    assert (done.code, done.out) == (1, ""), "not even the job itself"
    assert "cannot get resource" in done.err
    assert "Traceback" not in done.err
    await guest.may((TRAINER, "trainjobs"))
    found = json.loads((await guest.explain("-o", "json")).out)
    assert {"pods", "jobsets.jobset.x-k8s.io", "configmaps"} <= {each["resource"] for each in found["unread"]}
    assert {each["why"] for each in found["unread"]} == {"forbidden"}
    assert not found["causes"], "of what may not be seen nothing follows"


async def test_who_may_only_see_pods_learns_why_they_failed(guest: Guest) -> None:
    await guest.may((TRAINER, "trainjobs"), ("", "pods"))
    done = await guest.explain()
    assert (done.code, done.err) == (0, "")
    assert "1. ContainerFailed (certain)" in done.out
    assert "rank 1: container node failed with exit code 1" in done.out
    assert "  its log may not be read" in done.out
    assert done.out.partition("could not look at:\n")[2].splitlines() == [
        "  configmaps: you have no right to get them in namespace research",
        f"  events.events.k8s.io, jobs.batch, {JOBSETS.name}: you have no right to list them in namespace research",
        "  nodes: you have no right to list them",
        "  pods/log: you have no right to read the logs of pods in namespace research",
    ]
