"""`trainmaster run` where a TrainJob of the name exists, or existed: each run finds nothing of the one before it."""

import asyncio
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from support.commands import eventually, run_program
from support.samples import configmap, owner_reference
from support.team import Team
from support.terminals import Terminal

from trainmaster.controller.kube.rest.resources import CONFIGMAPS
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.nightly

TOLD = (
    "  what next: --if-exists attach follows it, --if-exists replace deletes it and runs this one, "
    "--if-exists rename runs this one under a new name"
)


def write(team: Team, *objects: JsonObject) -> str:
    (team.directory / "job.yaml").write_text(yaml.safe_dump_all(objects))
    return "job.yaml"


async def names(team: Team) -> dict[str, str]:
    """The TrainJobs there, with their UIDs."""
    found = await team.client.list(TRAINJOBS, team.name)
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in found["items"]}


async def test_elsewhere_than_on_a_terminal_it_fails_and_names_the_ways_out(team: Team) -> None:
    await team.submit("digits", "true")
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "script", "namespace": team.name}}
    file = write(team, config_map, team.manifest("digits", "false"), team.manifest("more", "true"))
    before = await names(team)
    for options in ([], ["--if-exists", "fail"]):
        done = await team.cli("run", file, *options)
        assert (done.code, done.out) == (2, "")
        told = done.err.splitlines()
        assert told[0].startswith("trainmaster: job.yaml:7: TrainJob digits already exists in namespace 'research'; ")
        assert told[1:] == ["trainmaster:   it has not ended", f"trainmaster: {TOLD}"]
    assert await names(team) == before
    assert (await team.client.list(CONFIGMAPS, team.name, field_selector="metadata.name=script"))["items"] == []


async def test_another_one_takes_its_place(team: Team) -> None:
    """What belongs to it is not lost: it may be applied again a moment later, before the garbage collector comes."""
    old = await team.submit("digits", "true")
    script = configmap("script", namespace=team.name, ownerReferences=[owner_reference(old)])
    await team.client.create(CONFIGMAPS, script)
    file = write(team, team.manifest("digits", "echo new"))
    done = await team.cli("run", file, "--if-exists", "replace", "--no-follow", code=0)
    assert done.err.splitlines() == ["TrainJob research/digits deleted", "TrainJob research/digits created"]
    new = await team.client.get(TRAINJOBS, team.name, "digits")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert new["spec"]["trainer"]["command"][-1] == "echo new"
    assert "ownerReferences" not in (await team.client.get(CONFIGMAPS, team.name, "script"))["metadata"]


async def test_nothing_is_replaced_by_what_would_be_refused(team: Team) -> None:
    await team.submit("digits", "true")
    before = await names(team)
    wrong = team.manifest("digits", "echo new", activeDeadlineSeconds=0)
    done = await team.cli("run", write(team, wrong), "--if-exists", "replace", "--no-follow", code=2)
    assert "spec.activeDeadlineSeconds" in done.err
    assert await names(team) == before


async def test_a_new_name_is_found_beside_those_that_are_there(team: Team) -> None:
    for name in ("digits", "digits-2", "digits-4", "run-7"):
        await team.submit(name, "true")
    wanted = ("digits", "digits-2", "run-7", "own")
    file = write(team, *(team.manifest(name, "true") for name in wanted))
    done = await team.cli("run", file, "--if-exists", "rename", "--no-follow", code=0)
    assert "TrainJob research/digits exists already; this one is called digits-3" in done.err
    assert set(await names(team)) == {*wanted, "digits-3", "digits-4", "digits-5", "run-8"}


async def test_a_program_takes_what_belongs_to_it_along_under_the_new_name(team: Team) -> None:
    (team.directory / "train.py").write_text("print(1)\n")
    command = ["run", "train.py", "--name", "digits", "--no-follow", "--image", "python:3.13"]
    for options in ([], ["--if-exists", "rename"]):
        await team.cli(*command, *options, code=0)
    jobs = await names(team)
    assert set(jobs) == {"digits", "digits-2"}
    owners = [
        each["metadata"]["ownerReferences"][0]["uid"]
        for each in (await team.client.list(CONFIGMAPS, team.name))["items"]
        if each["metadata"].get("ownerReferences")
    ]
    assert sorted(owners) == sorted(jobs.values())


async def test_who_attaches_follows_the_old_one_and_runs_only_the_others(team: Team) -> None:
    old = await team.submit("digits", "true")
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "script", "namespace": team.name}}
    file = write(team, config_map, team.manifest("digits", "echo new"))
    async with team.started("run", file, "--if-exists", "attach") as running:
        await eventually(lambda: any("is followed in place of a new one" in line for line in running.err))
        await team.tell("digits", "Complete")
        await running.finish(code=0)
    assert await names(team) == {"digits": old["metadata"]["uid"]}
    assert (await team.client.list(CONFIGMAPS, team.name, field_selector="metadata.name=script"))["items"] == []

    file = write(team, config_map, team.manifest("digits", "echo new"), team.manifest("more", "true"))
    assert "trainmaster:   it has ended (Complete)\n" in (await team.cli("run", file)).err
    await team.cli("run", file, "--if-exists", "attach", "--no-follow", code=0)
    assert set(await names(team)) == {"digits", "more"}
    assert (await names(team))["digits"] == old["metadata"]["uid"]


def answered(team: Team, file: str, *answers: str) -> tuple[int, str]:
    """Run a file on a terminal, give these answers, and return the exit code and what was on the terminal."""
    command = [sys.executable, "-m", "trainmaster.controller.cli", "run", file, "--no-follow", *team.options]
    with Terminal(columns=200) as terminal, terminal.program(*command, cwd=team.directory) as running:
        for answer in answers:
            terminal.wait_for("[a/r/n/Q]")
            terminal.press(answer)
        code = running.wait()
        terminal.settle()
        return code, terminal.output


async def test_on_a_terminal_it_asks(team: Team) -> None:
    await team.submit("digits", "true")
    file = write(team, team.manifest("digits", "echo new"))

    async def asked(*answers: str) -> tuple[int, str]:
        return await asyncio.to_thread(answered, team, file, *answers)  # the API server is in the loop of the test

    before = await names(team)
    code, seen = await asked("what?\n", "q\n")
    assert code == 2
    assert "TrainJob research/digits exists already, and has not ended\r\n" in seen
    assert "[a]ttach to it, [r]eplace it by this one, run this one under a [n]ew name, or [q]uit?" in seen
    assert "nothing was submitted" in seen
    code, seen = await asked("\x03")
    assert code == 130
    assert "[a/r/n/Q] ^C\r\ntrainmaster: interrupted\r\n" in seen
    assert await names(team) == before
    code, _ = await asked("n\n")
    assert (code, set(await names(team))) == (0, {"digits", "digits-2"})
    code, _ = await asked("r\n")
    assert code == 0
    assert (await names(team))["digits"] != before["digits"]


RUNS = 6


def ran(mine: Team, name: str) -> Path:
    """A file with a line for each time that a job ran."""
    return mine.directory / f"{name}.ran"


def write_program(mine: Team, name: str) -> str:
    script = f"echo trained; echo >> {ran(mine, name)}"
    (mine.directory / f"{name}.yaml").write_text(yaml.safe_dump(mine.manifest(name, script)))
    return f"{name}.yaml"


async def by_run(mine: Team) -> None:
    """`trainmaster run FILE --delete`: the next run follows upon the deletion at once."""
    file = write_program(mine, "by-run")
    for _ in range(RUNS):
        done = await mine.cli("run", file, "--delete")
        assert (done.code, done.out) == (0, "trained\n"), done.err


async def by_kubectl(mine: Team) -> None:
    """`kubectl delete` that waits, and `kubectl apply` after it."""
    file = str(mine.directory / write_program(mine, "by-kubectl"))

    async def kubectl(*words: str) -> None:
        done = await run_program("kubectl", "--kubeconfig", str(mine.kubeconfig), *words)
        assert done.code == 0, done.err

    for _ in range(RUNS):
        await kubectl("apply", "--server-side", "-f", file)
        await kubectl("wait", "--for=condition=Complete", "-f", file, "--timeout=60s")
        await kubectl("delete", "-f", file)


@pytest.mark.timeout(400)
async def test_each_run_of_a_job_runs_it_once(mine: Team) -> None:
    """Both ways at once, with names of their own: most of this is waiting."""
    ways = {"by-run": by_run, **({"by-kubectl": by_kubectl} if shutil.which("kubectl") is not None else {})}
    await asyncio.gather(*(way(mine) for way in ways.values()))
    assert {name: len(ran(mine, name).read_text().splitlines()) for name in ways} == dict.fromkeys(ways, RUNS)
