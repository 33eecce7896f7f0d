"""`trainmaster run` as a program: on a whole cluster that runs pods as processes, or where nobody works on jobs."""

import asyncio
import json
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from support.commands import eventually, trainmaster
from support.devcluster.faultycluster import FaultyCluster
from support.running_jobs import runtime, trainjob, write
from support.team import Team
from support.terminals import Terminal
from support.training import conditions_of
from support.webhooks import Configurer, WebhookServer, rule, serve_webhooks

from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import EVENTS
from trainmaster.controller.resources import TRAINING_RUNTIMES, TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.nightly

SAYS_HELLO = "echo hello from rank $JOB_COMPLETION_INDEX"
BLOCKED = {"kind": "Blocked", "reason": "RuntimeNotFound", "message": "there is no such runtime"}


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[WebhookServer]:
    async with serve_webhooks(tmp_path / "hooks") as server:
        yield server


async def registered(cluster: FaultyCluster, hooks: WebhookServer) -> None:
    """Have the API server ask the webhook server about TrainJobs."""
    configurer = Configurer(cluster, hooks)
    await configurer.validating(configurer.webhook(rules=[rule("trainjobs", group="trainer.kubeflow.org")]))


async def both_told(mine: Team) -> bool:
    """Whether events tell of both pods of the job `greedy` that they do not fit."""
    events = (await mine.client.list(EVENTS, mine.name))["items"]
    return len({each["regarding"]["name"] for each in events if each["reason"] == "FailedScheduling"}) == 2


async def test_a_job_that_completes(mine: Team) -> None:
    """The job comes first in the file: what it depends on is submitted before it all the same."""
    job = trainjob("completes", f"{SAYS_HELLO}; printf 'no newline'")
    done = await mine.cli("run", write(mine.directory, job, runtime("shell", nodes=2)), code=0)
    assert done.out == "hello from rank 0\nno newline\n"
    told = done.err.splitlines()
    title = f"TrainJob {mine.name}/completes"
    assert told[:2] == [f"TrainingRuntime {mine.name}/shell applied", f"{title} created"]
    assert re.fullmatch(rf"{title}: Complete after \d:\d\d", told[-3])
    assert told[-2:] == [
        f"  logs:   trainmaster logs completes --all {' '.join(mine.options)}",
        f"  delete: trainmaster delete completes {' '.join(mine.options)}",
    ]
    assert len([line for line in told if re.fullmatch(r"pod completes-node-0-[01]-\w+: Succeeded", line)]) == 2


async def test_a_job_that_fails_says_why(mine: Team) -> None:
    job = trainjob("fails", "echo loading; echo no such file >&2; exit 7")
    done = await mine.cli("run", write(mine.directory, runtime("shell"), job), code=1)
    end = done.err[done.err.index(f"TrainJob {mine.name}/fails: Failed after ") :]
    assert re.search(r"rank 0 failed: exit code 7; attempt 0, pod fails-node-0-0-\w+\n", end)
    assert "  its last lines:\n  | loading\n  | no such file\n" in end
    assert f"  again:  {mine.advised('restart', 'fails')}\n" in end
    # A command that does not exist is explained once.
    job = trainjob("typo", "")
    job["spec"]["trainer"]["command"] = ["pyhton", "train.py"]
    done = await mine.cli("run", write(mine.directory, job), code=1)
    assert re.search(r"rank 0 failed: exit code 128, StartError \(the container could not be started\); ", done.err)
    problem = r'\| unable to start container process: exec: "pyhton": executable file not found in \$PATH: '
    assert re.search(rf"{problem}did you mean python\? Images are not read here, .* \(PATH is /", done.err)
    assert "warning: Pod" not in done.err


async def test_a_job_that_asks_for_more_than_there_is_says_so_once(mine: Team) -> None:
    job = trainjob("greedy", SAYS_HELLO)
    job["spec"]["trainer"] |= {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "500"}}}
    async with mine.started("run", write(mine.directory, runtime("shell"), job)) as running:
        await eventually(lambda: any("FailedScheduling" in line for line in running.err))
        await eventually(lambda: both_told(mine))
        await mine.client.delete(TRAINJOBS, mine.name, "greedy")
        done = await running.finish()
    (told,) = [line for line in done.err.splitlines() if "FailedScheduling" in line]
    assert re.fullmatch(
        r"problem: Pod greedy-node-0-[01]-\w+: FailedScheduling: 0/1 nodes are available: 1 Insufficient cpu\. "
        r"The pod asks for 500 cpu, the largest node has \d+: it can never run here\.",
        told,
    )


async def test_several_jobs_are_followed_together(mine: Team) -> None:
    generated = trainjob("ignored", "echo two; exit 1")
    generated["metadata"] = {"generateName": "second-"}
    file = write(mine.directory, runtime("shell"), trainjob("first", "echo one"), generated)
    done = await mine.cli("run", file, "--delete", code=1)
    one, two = sorted(done.out.splitlines())
    assert one == "first | one"
    assert re.fullmatch(r"second-\w+ \| two", two)
    assert f"TrainJob {mine.name}/first: Complete" in done.err
    assert re.search(rf"TrainJob {mine.name}/second-\w+: Failed", done.err)
    assert done.err.count(" deleted\n") == 2


@pytest.mark.parametrize("choice", ["leave", "delete"])
async def test_an_interrupt_leaves_or_deletes(mine: Team, choice: str) -> None:
    file = write(mine.directory, runtime("shell"), trainjob("long", "echo up; sleep 1000"))
    async with mine.started("run", file, "--on-interrupt", choice) as running:
        await eventually(lambda: bool(running.out))
        running.process.send_signal(signal.SIGINT)
        done = await running.finish(code=130)
    assert "Traceback" not in done.err
    title = f"TrainJob {mine.name}/long"
    if choice == "leave":
        assert done.err.endswith(
            f"interrupted; {title} goes on\n"
            f"  to follow it again: {mine.advised('attach', 'long')}\n"
            f"  to end it: {mine.advised('delete', 'long')}\n"
        )
        assert conditions_of(await mine.client.get(TRAINJOBS, mine.name, "long")) == {}
    else:
        assert done.err.endswith(f"{title} deleted\n")
        with pytest.raises(NotFound):
            await mine.client.get(TRAINJOBS, mine.name, "long")


async def test_an_interrupt_asks_on_a_terminal_wherever_the_log_goes(mine: Team) -> None:
    file = write(mine.directory, runtime("shell"), trainjob("long", "echo up; sleep 1000"))
    log = mine.directory / "log"
    log.touch()
    command = shlex.join([sys.executable, "-m", "trainmaster.controller.cli", "run", file, *mine.options])
    with (
        Terminal(columns=200) as terminal,
        terminal.program("sh", "-c", f"exec {command} > log", cwd=mine.directory) as running,
    ):
        await eventually(lambda: log.read_text() == "up\n")
        terminal.press("\x03")
        await asyncio.to_thread(terminal.wait_for, "[y/N]")
        terminal.press("\x03")
        assert await asyncio.to_thread(running.wait) == 130
        terminal.settle()
        assert f"[y/N] ^C\r\ninterrupted; TrainJob {mine.name}/long goes on\r\n" in terminal.output
    assert log.read_text() == "up\n"


async def test_time_runs_out_or_nobody_waits(mine: Team) -> None:
    done = await mine.cli(
        "run", write(mine.directory, runtime("shell"), trainjob("endless", "sleep 1000")), "--timeout", "0.5", code=3
    )
    assert f"TrainJob {mine.name}/endless: still " in done.err
    assert conditions_of(await mine.client.get(TRAINJOBS, mine.name, "endless")) == {}
    # Json from standard input without following.
    items = {"apiVersion": "v1", "kind": "List", "items": [runtime("shell"), trainjob("piped", "true")]}
    given = json.dumps(items, indent="\t")
    done = await trainmaster("run", "--no-follow", "-", *mine.options, cwd=mine.directory, stdin=given)
    assert (done.code, done.out) == (0, "piped\n")
    assert f"TrainJob {mine.name}/piped created" in done.err
    await mine.condition("piped", "Complete")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("numNodes: 2", "numNode: 2"),
        ("kind: TrainJob\n", "kind: Trainjob\n"),
        ("numNodes: 2", "numProcPerNode: 0"),
        ("trainer.kubeflow.org/v1alpha1", "kubeflow.org/v1"),
    ],
)
async def test_mistakes_are_explained_as_validate_explains_them(mine: Team, right: str, wrong: str) -> None:
    job = trainjob("mistaken", "true")
    job["spec"]["trainer"]["numNodes"] = 2
    text = yaml.safe_dump(job)
    assert right in text
    place = mine.directory / "job.yaml"
    place.write_text(yaml.safe_dump_all([runtime("shell")]) + "---\n" + text.replace(right, wrong))
    validated = await trainmaster("validate", "-f", "job.yaml", cwd=mine.directory)
    errors = [line for line in validated.out.splitlines() if ": error: " in line]
    assert errors
    # Where no cluster runs, none is started to be told the same.
    for options in (mine.options, ()):
        done = await trainmaster("run", "job.yaml", *options, cwd=mine.directory)
        assert done.code == 2, done.err
        assert done.err.splitlines() == [f"trainmaster: {line}" for line in errors]
    assert not (mine.directory / ".trainmaster").exists()


async def test_what_the_server_admits_is_run_whatever_validate_says(team: Team) -> None:
    """The definitions of the cluster may be newer, or others."""
    field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/novelty"
    body = json.dumps([{"op": "add", "path": field, "value": {"type": "string"}}]).encode()
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainjobs.trainer.kubeflow.org"
    status, _, answer = await team.client.raw("PATCH", path, body=body, content_type="application/json-patch+json")
    assert status == 200, answer
    file = write(team.directory, runtime("shell"), trainjob("novel", "true", novelty="new"))
    validated = await trainmaster("validate", "-f", file, cwd=team.directory)
    assert "spec.novelty: unknown field" in validated.out
    done = await team.cli("run", "--no-follow", file, code=0)
    assert "TrainJob research/novel created" in done.err


async def test_nothing_is_submitted_if_something_cannot_be(team: Team) -> None:
    """Two of one name, a kind that nobody serves, another namespace."""
    file = write(team.directory, runtime("unwanted"), trainjob("twice", "true"), trainjob("twice", "false"))
    done = await team.cli("run", file, code=2)
    assert re.sub(r":[0-9]+", ":N", done.err) == (
        "trainmaster: job.yaml:N: TrainJob twice: there is another one of this name at job.yaml:N\n"
    )
    elsewhere = trainjob("elsewhere", "true")
    elsewhere["metadata"]["namespace"] = "kubeflow"
    pod = {"apiVersion": "v1", "kind": "Pood", "metadata": {"name": "x"}}
    done = await team.cli("run", write(team.directory, runtime("unwanted"), pod, elsewhere), code=2)
    assert "the cluster serves no kind Pood in v1" in done.err
    assert "is in namespace 'kubeflow', but --namespace says 'research'" in done.err
    assert (await team.client.list(TRAINING_RUNTIMES))["items"] == []


async def test_a_refusal_half_way_leaves_the_others_running_and_says_so(
    quiet: tuple[Team, FaultyCluster], hooks: WebhookServer
) -> None:
    def admit(request: JsonObject) -> JsonObject:
        if request["dryRun"] or request["name"] != "second":
            return {}
        return {"allowed": False, "status": {"message": "the budget was spent a moment ago"}}

    team, cluster = quiet
    hooks.on("/hook", admit)
    await registered(cluster, hooks)
    file = write(team.directory, runtime("shell"), *(trainjob(name, "true") for name in ("first", "second", "third")))
    async with team.started("run", file) as running:
        await eventually(lambda: "TrainJob research/first goes on\n" in running.err)
        await team.tell("first", "Complete")
        done = await running.finish(code=2)
    assert "job.yaml:42: TrainJob second: " in done.err
    assert "the budget was spent a moment ago" in done.err
    assert "trainmaster: not submitted: TrainJob second, TrainJob third\n" in done.err
    assert "TrainJob research/first: Complete" in done.err


async def test_a_runtime_that_does_not_exist_is_told_with_those_that_do(mine: Team) -> None:
    """The webhooks refuse the TrainJob; its author wants to know how to go on."""
    await mine.client.create(TRAINING_RUNTIMES, runtime("shell"), namespace=mine.name)
    done = await mine.cli("run", write(mine.directory, trainjob("lost", "true", runtime="shel")), code=2)
    missing, there, here, advice = done.err.splitlines()
    assert missing == (
        f'trainmaster: job.yaml:1: TrainJob lost: TrainingRuntime "shel" does not exist in namespace {mine.name} '
        '(did you mean "shell"?)'
    )
    assert there.startswith("trainmaster:   ClusterTrainingRuntimes: deepspeed-distributed, ")
    assert here == f"trainmaster:   TrainingRuntimes in {mine.name}: shell"
    assert advice.startswith("trainmaster:   what next: correct spec.runtimeRef.name, or add the file")
    confused = trainjob("lost", "true")
    del confused["spec"]["runtimeRef"]["kind"]
    done = await mine.cli("run", write(mine.directory, confused), code=2)
    assert "there is a TrainingRuntime of this name: set spec.runtimeRef.kind to TrainingRuntime" in done.err
    # One that comes with Trainmaster is found: here the one that no cluster has by itself.
    confused["spec"]["runtimeRef"] = {"name": "torch-distributed-with-cache"}
    done = await mine.cli("run", write(mine.directory, confused), code=2)
    found = re.search(r'"torch-distributed-with-cache" comes with Trainmaster: add (\S+) to the files', done.err)
    assert found, done.err
    assert yaml.safe_load(Path(found[1]).read_text())["metadata"]["name"] == "torch-distributed-with-cache"


async def test_a_job_that_is_blocked_for_want_of_its_runtime_is_not_waited_for(
    team: Team,
) -> None:
    """Where no webhook refuses it, its condition tells."""
    async with team.started("run", write(team.directory, trainjob("lost", "true", runtime="shel"))) as running:
        await eventually(lambda: "TrainJob research/lost created\n" in running.err)
        await team.tell("lost", **BLOCKED)
        done = await running.finish(code=1)
    assert 'TrainingRuntime "shel" does not exist in namespace research' in done.err
    assert "TrainingRuntimes in research: none" in done.err
    assert "what next: " in done.err
    assert "TrainJob research/lost: still Blocked: RuntimeNotFound: there is no such runtime\n" in done.err
    assert "  follow: trainmaster attach lost " in done.err


async def test_a_runtime_of_the_same_files_is_waited_for(
    quiet: tuple[Team, FaultyCluster], hooks: WebhookServer
) -> None:
    """It exists; whoever says that it does not, a condition or a webhook, has not seen it yet."""
    team, cluster = quiet
    async with team.started("run", write(team.directory, runtime("shell"), trainjob("patient", "true"))) as running:
        await eventually(lambda: "TrainJob research/patient created\n" in running.err)
        await team.tell("patient", **BLOCKED)
        await eventually(lambda: any("Blocked: there is no such runtime" in line for line in running.err))
        await team.tell("patient", "Complete")
        done = await running.finish(code=0)
    assert "does not exist" not in done.err

    def admit(_: JsonObject) -> JsonObject:
        if len(hooks.asked) > 3:  # the first time is a dry run
            return {}
        return {"allowed": False, "status": {"message": 'TrainingRuntime.trainer.kubeflow.org "shell" not found'}}

    hooks.on("/hook", admit)
    await registered(cluster, hooks)
    gang = runtime("shell")
    gang["spec"]["scheduling"] = {}  # behind a feature gate, of which only the cluster knows
    done = await team.cli("run", "--no-follow", write(team.directory, gang, trainjob("late", "true")))
    assert (done.code, len(hooks.asked)) == (0, 4), done.err


async def test_what_else_is_wrong_with_a_job_without_runtime_is_told(
    quiet: tuple[Team, FaultyCluster], hooks: WebhookServer
) -> None:
    team, cluster = quiet
    complaints = ["the budget is spent", 'TrainingRuntime.trainer.kubeflow.org "shel" not found']
    details = {"causes": [{"message": text} for text in complaints]}
    hooks.on("/hook", {"allowed": False, "status": {"code": 422, "message": "no", "details": details}})
    await registered(cluster, hooks)
    done = await team.cli("run", write(team.directory, trainjob("lost", "true", runtime="shel")), code=2)
    told = done.err.splitlines()
    assert told[0].endswith("TrainJob lost: the budget is spent")
    assert told[1].endswith('TrainJob lost: TrainingRuntime "shel" does not exist in namespace research')
    assert "not found" not in done.err
