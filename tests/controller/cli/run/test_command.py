"""`trainmaster run` as a program, against an embedded cluster that runs pods as processes."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml
from support.commands import client_of, eventually, started, trainmaster
from support.shelljobs import runtime, trainjob, write
from support.webhooks import Configurer, WebhookServer, rule, serve_webhooks

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, EVENTS
from trainmaster.controller.resources import TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.devcluster.testing.envtest import Environment
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.nightly

SAYS_HELLO = "echo hello from rank $JOB_COMPLETION_INDEX"


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster for all tests of this module."""
    home = tmp_path_factory.mktemp("cluster")
    cluster = [sys.executable, "-m", "trainmaster.controller.cli", "cluster"]
    subprocess.run([*cluster, "up", "--detach"], cwd=home, check=True, capture_output=True, timeout=100)
    yield str(home / ".trainmaster" / "kubeconfig")
    subprocess.run([*cluster, "down"], cwd=home, check=True, capture_output=True, timeout=100)


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[WebhookServer]:
    async with serve_webhooks(tmp_path / "hooks") as server:
        yield server


async def conditions_of(kubeconfig: str, name: str) -> set[str]:
    async with client_of(kubeconfig) as client:
        job = await client.get(TRAINJOBS, "default", name)
    return {each["type"] for each in job.get("status", {}).get("conditions", ()) if each["status"] == "True"}


async def unschedulable(client: KubeClient, job: str) -> set[str]:
    """Names of the pods of a job that do not fit, as events tell."""
    events = (await client.list(EVENTS, "default"))["items"]
    names = {event["regarding"]["name"] for event in events if event["reason"] == "FailedScheduling"}
    return {name for name in names if name.startswith(f"{job}-")}


async def test_a_job_that_completes(kubeconfig: str, tmp_path: Path) -> None:
    """The job comes first in the file: what it depends on is submitted before it all the same."""
    job = trainjob("completes", f"{SAYS_HELLO}; printf 'no newline'")
    file = write(tmp_path, job, runtime("shell", nodes=2))
    done = await trainmaster("run", "--kubeconfig", kubeconfig, file, cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.out == "hello from rank 0\nno newline\n"
    told = done.err.splitlines()
    assert told[:2] == ["TrainingRuntime default/shell applied", "TrainJob default/completes created"]
    assert re.fullmatch(r"TrainJob default/completes: Complete after \d:\d\d", told[-3])
    assert told[-2:] == [
        f"  logs:   trainmaster logs completes --all --kubeconfig {kubeconfig}",
        f"  delete: trainmaster delete completes --kubeconfig {kubeconfig}",
    ]
    assert len([line for line in told if re.fullmatch(r"pod completes-node-0-[01]-\w+: Succeeded", line)]) == 2

    again = await trainmaster("run", "--kubeconfig", kubeconfig, file, cwd=tmp_path)
    assert again.code == 2
    assert "job.yaml:1: TrainJob completes already exists in namespace 'default'" in again.err


async def test_a_job_that_fails_says_why(kubeconfig: str, tmp_path: Path) -> None:
    job = trainjob("fails", "echo loading; echo no such file >&2; exit 7")
    file = write(tmp_path, runtime("shell"), job)
    done = await trainmaster("run", "--kubeconfig", kubeconfig, file, cwd=tmp_path)
    assert done.code == 1
    end = done.err[done.err.index("TrainJob default/fails: Failed after ") :]
    assert re.search(r"rank 0 failed: exit code 7; attempt 0, pod fails-node-0-0-\w+\n", end)
    assert "  its last lines:\n  | loading\n  | no such file\n" in end
    assert f"  again:  trainmaster restart fails --kubeconfig {kubeconfig}\n" in end


async def test_a_command_that_does_not_exist_is_explained_once(kubeconfig: str, tmp_path: Path) -> None:
    job = trainjob("typo", "")
    job["spec"]["trainer"]["command"] = ["pyhton", "train.py"]
    done = await trainmaster("run", "--kubeconfig", kubeconfig, write(tmp_path, runtime("shell"), job), cwd=tmp_path)
    assert done.code == 1
    assert re.search(r"rank 0 failed: exit code 128, StartError \(the container could not be started\); ", done.err)
    problem = r'\| unable to start container process: exec: "pyhton": executable file not found in \$PATH: '
    assert re.search(rf"{problem}did you mean python\? Images are not read here, .* \(PATH is /", done.err)
    assert "warning: Pod" not in done.err


async def test_a_job_that_asks_for_more_than_there_is_says_so_once(kubeconfig: str, tmp_path: Path) -> None:
    job = trainjob("greedy", SAYS_HELLO)
    job["spec"]["trainer"] |= {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "500"}}}
    file = write(tmp_path, runtime("shell"), job)
    async with started("run", "--kubeconfig", kubeconfig, file, cwd=tmp_path) as running:
        await eventually(lambda: any("FailedScheduling" in line for line in running.err))
        async with client_of(kubeconfig) as client:
            while len(await unschedulable(client, "greedy")) < 2:
                await asyncio.sleep(0.05)
            await client.delete(TRAINJOBS, "default", "greedy")
        done = await running.finish()
    told = [line for line in done.err.splitlines() if "FailedScheduling" in line]
    assert len(told) == 1, done.err
    assert re.fullmatch(
        r"problem: Pod greedy-node-0-[01]-\w+: FailedScheduling: 0/1 nodes are available: 1 Insufficient cpu\. "
        r"The pod asks for 500 cpu, the largest node has \d+: it can never run here\.",
        told[0],
    )


async def test_several_jobs_are_followed_together(kubeconfig: str, tmp_path: Path) -> None:
    generated = trainjob("ignored", "echo two; exit 1")
    generated["metadata"] = {"generateName": "second-"}
    file = write(tmp_path, runtime("shell"), trainjob("first", "echo one"), generated)
    done = await trainmaster("run", "--kubeconfig", kubeconfig, file, "--delete", cwd=tmp_path)
    assert done.code == 1
    one, two = sorted(done.out.splitlines())
    assert one == "first | one"
    assert re.fullmatch(r"second-\w+ \| two", two)
    assert "TrainJob default/first: Complete" in done.err
    assert re.search(r"TrainJob default/second-\w+: Failed", done.err)
    assert done.err.count(" deleted\n") == 2


async def test_the_log_is_live(kubeconfig: str, tmp_path: Path) -> None:
    """The second line is not printed before the test has seen the first one."""
    gate = tmp_path / "gate"
    job = trainjob("live", f"echo first; while ! [ -e {gate} ]; do sleep 0.05; done; echo second")
    file = write(tmp_path, runtime("shell"), job)
    async with started("run", "--kubeconfig", kubeconfig, file, cwd=tmp_path) as running:
        await eventually(lambda: running.out == ["first\n"])
        gate.touch()
        done = await running.finish()
    assert (done.code, done.out) == (0, "first\nsecond\n")


async def test_what_blocks_a_job_is_told_and_waited_for(kubeconfig: str, tmp_path: Path) -> None:
    file = write(tmp_path, runtime("shell"), trainjob("early", SAYS_HELLO))
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "early-runtime-snapshot"}}
    async with client_of(kubeconfig) as client:
        await client.create(CONFIGMAPS, foreign, namespace="default")
        async with started("run", "--kubeconfig", kubeconfig, file, cwd=tmp_path) as running:
            await eventually(lambda: any(line.startswith("TrainJob default/early: Blocked") for line in running.err))
            await client.delete(CONFIGMAPS, "default", "early-runtime-snapshot")
            done = await running.finish()
    assert (done.code, done.out) == (0, "hello from rank 0\n")


@pytest.mark.parametrize("choice", ["leave", "delete"])
async def test_an_interrupt_leaves_or_deletes(kubeconfig: str, tmp_path: Path, choice: str) -> None:
    name = f"interrupted-{choice}"
    file = write(tmp_path, runtime("shell"), trainjob(name, "echo up; sleep 1000"))
    command = ["run", "--kubeconfig", kubeconfig, file, "--on-interrupt", choice]
    async with started(*command, cwd=tmp_path) as running:
        await eventually(lambda: bool(running.out))
        running.process.send_signal(signal.SIGINT)
        done = await running.finish()
    assert done.code == 130
    assert "Traceback" not in done.err
    if choice == "leave":
        assert done.err.endswith(
            f"interrupted; TrainJob default/{name} goes on\n"
            f"  to follow it again: trainmaster attach {name} --kubeconfig {kubeconfig}\n"
            f"  to end it: trainmaster delete {name} --kubeconfig {kubeconfig}\n"
        )
        assert await conditions_of(kubeconfig, name) == set()
    else:
        assert done.err.endswith(f"TrainJob default/{name} deleted\n")
        with pytest.raises(NotFound):
            await conditions_of(kubeconfig, name)


async def test_time_runs_out(kubeconfig: str, tmp_path: Path) -> None:
    file = write(tmp_path, runtime("shell"), trainjob("endless", "sleep 1000"))
    done = await trainmaster("run", "--kubeconfig", kubeconfig, file, "--timeout", "0.5", cwd=tmp_path)
    assert done.code == 3
    assert "TrainJob default/endless: still " in done.err
    assert await conditions_of(kubeconfig, "endless") == set()


async def test_a_job_that_somebody_deletes_is_not_waited_for(kubeconfig: str, tmp_path: Path) -> None:
    file = write(tmp_path, runtime("shell"), trainjob("removed", "echo up; sleep 1000"))
    async with started("run", "--kubeconfig", kubeconfig, file, cwd=tmp_path) as running:
        await eventually(lambda: bool(running.out))
        async with client_of(kubeconfig) as client:
            await client.delete(TRAINJOBS, "default", "removed")
        done = await running.finish()
    assert done.code == 1
    assert "TrainJob default/removed: Deleted" in done.err


async def test_json_from_standard_input_without_following(kubeconfig: str, tmp_path: Path) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": [runtime("shell"), trainjob("piped", "true")]}
    done = await trainmaster(
        "run", "--kubeconfig", kubeconfig, "--no-follow", "-", cwd=tmp_path, stdin=json.dumps(items, indent="\t")
    )
    assert (done.code, done.out) == (0, "")
    assert "TrainJob default/piped created" in done.err
    async with asyncio.timeout(60):
        while await conditions_of(kubeconfig, "piped") != {"Complete"}:
            await asyncio.sleep(0.05)


MISTAKES = {
    "an unknown field": ("numNodes: 2", "numNode: 2"),
    "a kind in the wrong case": ("kind: TrainJob\n", "kind: Trainjob\n"),
    "a word for a number": ("numNodes: 2", "numNodes: three"),
    "a value that no job can have": ("numNodes: 2", "numProcPerNode: 0"),
    "a group that is another one": ("trainer.kubeflow.org/v1alpha1", "kubeflow.org/v1"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_mistakes_are_explained_as_validate_explains_them(kubeconfig: str, tmp_path: Path, mistake: str) -> None:
    job = trainjob("mistaken", "true")
    job["spec"]["trainer"]["numNodes"] = 2
    text = yaml.safe_dump(job)
    right, wrong = MISTAKES[mistake]
    assert right in text
    (tmp_path / "job.yaml").write_text(yaml.safe_dump_all([runtime("shell")]) + "---\n" + text.replace(right, wrong))
    done = await trainmaster("run", "--kubeconfig", kubeconfig, "job.yaml", cwd=tmp_path)
    assert done.code == 2
    validated = await trainmaster("validate", "-f", "job.yaml", cwd=tmp_path)
    errors = [line for line in validated.out.splitlines() if ": error: " in line]
    assert errors
    assert done.err.splitlines() == [f"trainmaster: {line}" for line in errors]
    # Where no cluster runs, none is started to be told the same.
    done = await trainmaster("run", "job.yaml", cwd=tmp_path)
    assert done.code == 2
    assert done.err.splitlines() == [f"trainmaster: {line}" for line in errors]
    assert not (tmp_path / ".trainmaster").exists()


async def test_what_the_server_admits_is_run_whatever_validate_says(served: Environment, tmp_path: Path) -> None:
    """The definitions of the cluster may be newer, or others."""
    field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/novelty"
    body = json.dumps([{"op": "add", "path": field, "value": {"type": "string"}}]).encode()
    async with client_of(served.kubeconfig) as client:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainjobs.trainer.kubeflow.org"
        status, _, answer = await client.raw("PATCH", path, body=body, content_type="application/json-patch+json")
        assert status == 200, answer
    file = write(tmp_path, runtime("shell"), trainjob("novel", "true", novelty="new"))
    validated = await trainmaster("validate", "-f", file, cwd=tmp_path)
    assert "spec.novelty: unknown field" in validated.out
    done = await trainmaster("run", "--kubeconfig", str(served.kubeconfig), "--no-follow", file, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "TrainJob default/novel created" in done.err


async def test_nothing_is_submitted_if_a_name_is_taken(kubeconfig: str, tmp_path: Path) -> None:
    second = write(tmp_path, runtime("shell"), trainjob("taken-second", "true"))
    done = await trainmaster("run", "--kubeconfig", kubeconfig, second, cwd=tmp_path)
    assert done.code == 0, done.err
    (tmp_path / "first.yaml").write_text(yaml.safe_dump_all([runtime("unwanted"), trainjob("taken-first", "true")]))
    done = await trainmaster("run", "--kubeconfig", kubeconfig, "first.yaml", second, cwd=tmp_path)
    assert done.code == 2
    assert re.sub(r":[0-9]+:", ":N:", done.err) == (
        "trainmaster: job.yaml:N: TrainJob taken-second already exists in namespace 'default'; delete it or take "
        "another name (metadata.generateName makes a new one for each run)\n"
        "trainmaster:   it has ended (Complete)\n"
        "trainmaster:   what next: --if-exists attach follows it, --if-exists replace deletes it and runs this one, "
        "--if-exists rename runs this one under a new name\n"
    )
    async with client_of(kubeconfig) as client:
        with pytest.raises(NotFound):
            await client.get(TRAINJOBS, "default", "taken-first")
        with pytest.raises(NotFound):
            await client.get(TRAINING_RUNTIMES, "default", "unwanted")


async def test_nothing_is_submitted_if_two_have_one_name(kubeconfig: str, tmp_path: Path) -> None:
    file = write(tmp_path, runtime("unwanted"), trainjob("twice", "true"), trainjob("twice", "false"))
    done = await trainmaster("run", "--kubeconfig", kubeconfig, file, cwd=tmp_path)
    assert done.code == 2
    assert re.sub(r":[0-9]+", ":N", done.err) == (
        "trainmaster: job.yaml:N: TrainJob twice: there is another one of this name at job.yaml:N\n"
    )
    async with client_of(kubeconfig) as client:
        with pytest.raises(NotFound):
            await client.get(TRAINING_RUNTIMES, "default", "unwanted")


async def test_a_refusal_half_way_leaves_the_others_running_and_says_so(
    served: Environment, hooks: WebhookServer, tmp_path: Path
) -> None:
    def admit(request: JsonObject) -> JsonObject:
        if request["dryRun"] or request["name"] != "second":
            return {}
        return {"allowed": False, "status": {"message": "the budget was spent a moment ago"}}

    hooks.on("/hook", admit)
    configurer = Configurer(served, hooks)
    await configurer.validating(configurer.webhook(rules=[rule("trainjobs", group="trainer.kubeflow.org")]))
    file = write(tmp_path, runtime("shell"), *(trainjob(name, "true") for name in ("first", "second", "third")))
    async with started("run", "--kubeconfig", str(served.kubeconfig), file, cwd=tmp_path) as running:
        await eventually(lambda: "TrainJob default/first goes on\n" in running.err)
        await set_condition(served.kubeconfig, "first", COMPLETE)
        done = await running.finish()
    assert done.code == 2
    assert "job.yaml:41: TrainJob second: " in done.err
    assert "the budget was spent a moment ago" in done.err
    assert "trainmaster: not submitted: TrainJob second, TrainJob third\n" in done.err
    assert "TrainJob default/first: Complete" in done.err


async def test_nothing_is_submitted_if_a_kind_is_unknown(kubeconfig: str, tmp_path: Path) -> None:
    pod = {"apiVersion": "v1", "kind": "Pood", "metadata": {"name": "x"}}
    elsewhere = trainjob("elsewhere", "true")
    elsewhere["metadata"]["namespace"] = "kubeflow"
    file = write(tmp_path, runtime("never-applied"), pod, elsewhere)
    done = await trainmaster("run", "--kubeconfig", kubeconfig, "-n", "default", file, cwd=tmp_path)
    assert done.code == 2
    assert "the cluster serves no kind Pood in v1" in done.err
    assert "is in namespace 'kubeflow', but --namespace says 'default'" in done.err
    async with client_of(kubeconfig) as client:
        with pytest.raises(NotFound):
            await client.get(TRAINING_RUNTIMES, "default", "never-applied")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("a: 1\nb: [1\nc: 2\n", "job.yaml:3: "),
        ("kind: TrainJob\n", "job.yaml:1: apiVersion is missing"),
        ("---\n# nothing\n", "no TrainJob in the files"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "no TrainJob in the files"),
        (None, "job.yaml: cannot be read: No such file or directory"),
    ],
)
async def test_files_that_cannot_be_used(kubeconfig: str, tmp_path: Path, content: str | None, complaint: str) -> None:
    if content is not None:
        (tmp_path / "job.yaml").write_text(content)
    done = await trainmaster("run", "--kubeconfig", kubeconfig, "job.yaml", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err
    assert len(done.err.splitlines()) == 1


async def test_a_runtime_that_does_not_exist_is_told_with_those_that_do(kubeconfig: str, tmp_path: Path) -> None:
    """The webhooks refuse the TrainJob; its author wants to know how to go on."""
    await trainmaster(
        "run",
        "--kubeconfig",
        kubeconfig,
        "--no-follow",
        write(tmp_path, runtime("shell"), trainjob("fine", "true")),
        cwd=tmp_path,
    )
    file = write(tmp_path, trainjob("lost", "true", runtime="shel"))
    done = await trainmaster("run", "--kubeconfig", kubeconfig, file, cwd=tmp_path)
    assert done.code == 2
    told = done.err.splitlines()
    assert told[0] == (
        'trainmaster: job.yaml:1: TrainJob lost: TrainingRuntime "shel" does not exist in namespace default '
        '(did you mean "shell"?)'
    )
    assert told[1].startswith("trainmaster:   ClusterTrainingRuntimes: deepspeed-distributed, ")
    assert told[2].startswith("trainmaster:   TrainingRuntimes in default: ")
    assert "shell" in told[2]
    assert told[3].startswith("trainmaster:   what next: correct spec.runtimeRef.name, or add the file")
    assert len(told) == 4

    confused = trainjob("lost", "true")
    del confused["spec"]["runtimeRef"]["kind"]
    done = await trainmaster("run", "--kubeconfig", kubeconfig, write(tmp_path, confused), cwd=tmp_path)
    assert done.code == 2
    assert "there is a TrainingRuntime of this name: set spec.runtimeRef.kind to TrainingRuntime" in done.err


async def test_a_runtime_that_comes_with_trainmaster_is_found(kubeconfig: str, tmp_path: Path) -> None:
    job = trainjob("lost", "true")
    job["spec"]["runtimeRef"] = {"name": "torch-distributed-with-cache"}  # the one that no cluster has by itself
    done = await trainmaster("run", "--kubeconfig", kubeconfig, write(tmp_path, job), cwd=tmp_path)
    assert done.code == 2
    found = re.search(r'"torch-distributed-with-cache" comes with Trainmaster: add (\S+) to the files', done.err)
    assert found, done.err
    assert yaml.safe_load(Path(found[1]).read_text())["metadata"]["name"] == "torch-distributed-with-cache"


BLOCKED = {"type": "Blocked", "status": "True", "reason": "RuntimeNotFound", "message": "there is no such runtime"}
COMPLETE = {"type": "Complete", "status": "True", "reason": "JobsCompleted", "message": "all is done"}


async def set_condition(kubeconfig: Path, name: str, condition: JsonObject) -> None:
    condition = condition | {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    async with client_of(kubeconfig) as client:
        path = TRAINJOBS.path("default", name, "status")
        body = json.dumps({"status": {"conditions": [condition]}}).encode()
        status, _, answer = await client.raw("PATCH", path, body=body, content_type="application/merge-patch+json")
        assert status == 200, answer


async def test_a_job_that_is_blocked_for_want_of_its_runtime_is_not_waited_for(
    served: Environment, tmp_path: Path
) -> None:
    """Where no webhook refuses it, its condition tells."""
    file = write(tmp_path, trainjob("lost", "true", runtime="shel"))
    async with started("run", "--kubeconfig", str(served.kubeconfig), file, cwd=tmp_path) as running:
        await eventually(lambda: "TrainJob default/lost created\n" in running.err)
        await set_condition(served.kubeconfig, "lost", BLOCKED)
        done = await running.finish()
    assert done.code == 1
    assert 'TrainingRuntime "shel" does not exist in namespace default' in done.err
    assert "TrainingRuntimes in default: none" in done.err
    assert "what next: " in done.err
    assert "TrainJob default/lost: still Blocked: RuntimeNotFound: there is no such runtime\n" in done.err
    assert "  follow: trainmaster attach lost " in done.err


async def test_a_runtime_of_the_same_files_is_waited_for(served: Environment, tmp_path: Path) -> None:
    """It exists; whoever says that it does not has not seen it yet."""
    file = write(tmp_path, runtime("shell"), trainjob("patient", "true"))
    async with started("run", "--kubeconfig", str(served.kubeconfig), file, cwd=tmp_path) as running:
        await eventually(lambda: "TrainJob default/patient created\n" in running.err)
        await set_condition(served.kubeconfig, "patient", BLOCKED)
        await eventually(lambda: any("Blocked: there is no such runtime" in line for line in running.err))
        await set_condition(served.kubeconfig, "patient", COMPLETE)
        done = await running.finish()
    assert done.code == 0
    assert "does not exist" not in done.err


async def test_a_webhook_that_is_late_to_see_a_runtime_is_asked_again(
    served: Environment, hooks: WebhookServer, tmp_path: Path
) -> None:
    def admit(_: JsonObject) -> JsonObject:
        if len(hooks.asked) > 3:  # the first time is a dry run
            return {}
        return {"allowed": False, "status": {"message": 'TrainingRuntime.trainer.kubeflow.org "shell" not found'}}

    hooks.on("/hook", admit)
    configurer = Configurer(served, hooks)
    rules = [rule("trainjobs", group="trainer.kubeflow.org")]
    await configurer.validating(configurer.webhook(rules=rules))
    command = ("run", "--kubeconfig", str(served.kubeconfig), "--no-follow")
    done = await trainmaster(*command, write(tmp_path, runtime("shell"), trainjob("late", "true")), cwd=tmp_path)
    assert (done.code, len(hooks.asked)) == (0, 4), done.err


async def test_what_else_is_wrong_with_a_job_without_runtime_is_told(
    served: Environment, hooks: WebhookServer, tmp_path: Path
) -> None:
    complaints = ["the budget is spent", 'TrainingRuntime.trainer.kubeflow.org "shel" not found']
    details = {"causes": [{"message": text} for text in complaints]}
    hooks.on("/hook", {"allowed": False, "status": {"code": 422, "message": "no", "details": details}})
    configurer = Configurer(served, hooks)
    await configurer.validating(configurer.webhook(rules=[rule("trainjobs", group="trainer.kubeflow.org")]))
    file = write(tmp_path, trainjob("lost", "true", runtime="shel"))
    done = await trainmaster("run", "--kubeconfig", str(served.kubeconfig), file, cwd=tmp_path)
    assert done.code == 2
    told = done.err.splitlines()
    assert told[0].endswith("TrainJob lost: the budget is spent")
    assert told[1].endswith('TrainJob lost: TrainingRuntime "shel" does not exist in namespace default')
    assert "not found" not in done.err


async def test_without_a_cluster_one_is_started_in_the_working_directory(tmp_path: Path) -> None:
    file = write(tmp_path, runtime("shell"), trainjob("first", SAYS_HELLO), trainjob("second", SAYS_HELLO))
    try:
        done = await trainmaster("run", file, cwd=tmp_path)
        assert done.code == 0, done.err
        assert "starting an embedded one" in done.err
        file = write(tmp_path, trainjob("third", SAYS_HELLO))
        done = await trainmaster("run", file, cwd=tmp_path)
        assert (done.code, done.out) == (0, "hello from rank 0\n")
        assert "starting" not in done.err
    finally:
        await trainmaster("cluster", "down", cwd=tmp_path)


async def test_a_kubeconfig_that_is_missing_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, trainjob("nowhere", "true"))
    done = await trainmaster("run", "--kubeconfig", "missing", file, cwd=tmp_path)
    assert done.code == 1
    assert "kubeconfig missing" in done.err
    assert len(done.err.splitlines()) == 1
