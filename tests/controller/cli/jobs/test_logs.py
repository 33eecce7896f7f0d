"""`trainmaster logs` and `trainmaster attach`, of pods that run as processes."""

import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
from support.commands import eventually, run_program, trainmaster
from support.running_jobs import job, write
from support.team import IN_PLACE, Team
from support.training import until

from trainmaster.controller.kube.rest.resources import PODS
from trainmaster.controller.resources import JOBSETS, TRAINJOBS

pytestmark = pytest.mark.nightly

RANK = "$JOB_COMPLETION_INDEX"


async def test_one_rank_or_all_of_them(mine: Team) -> None:
    await mine.submit("two", f"echo a {RANK}; echo b {RANK}; printf c{RANK}", nodes=2)
    await mine.condition("two", "Complete")
    done = await mine.cli("logs", "two")
    assert (done.code, done.out, done.err) == (0, "a 0\nb 0\nc0", "")
    assert (await mine.cli("logs", "two", "--rank", "1", "--tail", "2")).out == "b 1\nc1"
    lines = (await mine.cli("logs", "two", "--all")).out.splitlines()
    assert sorted(lines) == [f"rank {n} | {text}" for n in (0, 1) for text in (f"a {n}", f"b {n}", f"c{n}")]
    assert [line for line in lines if line.startswith("rank 1")] == ["rank 1 | a 1", "rank 1 | b 1", "rank 1 | c1"]
    stamped = (await mine.cli("logs", "two", "--all", "--timestamps", "--since", "1h")).out.splitlines()
    times = [re.fullmatch(r"rank [01] \| (\S+Z) \S.*", line) for line in stamped]
    assert len(times) == 6
    assert all(times)
    assert sorted(found[1] for found in times if found) == [found[1] for found in times if found]

    done = await mine.cli("logs", "two", "--rank", "2")
    assert (done.code, done.out) == (2, "")
    assert "has no rank 2 at the moment; there are: rank 0, rank 1 (--all prints them all)" in done.err


async def test_a_log_is_followed_from_before_the_pods_to_the_end(mine: Team, tmp_path: Path) -> None:
    """The job is resumed while somebody waits for its log; one line is read before the next one is written."""
    gate = tmp_path / "gate"
    script = f"echo first; while ! [ -e {gate} ]; do sleep 0.05; done; echo second"
    await mine.submit("live", script, suspend=True)
    await mine.condition("live", "Suspended")
    async with mine.started("logs", "live", "-f") as running:
        resume = f"  what next: {mine.advised('resume', 'live')}; Ctrl-C ends the waiting\n"
        await eventually(lambda: resume in running.err)
        await mine.cli("resume", "live")
        await eventually(lambda: running.out == ["first\n"])
        gate.touch()
        done = await running.finish()
    assert (done.code, done.out) == (0, "first\nsecond\n")


async def test_restarts_are_followed_and_the_run_before_can_be_read(mine: Team, tmp_path: Path) -> None:
    gate, runs = tmp_path / "gate", tmp_path / "runs"
    script = (
        f"echo x >> {runs}; n=$(wc -l < {runs}); echo run $n; while ! [ -e {gate} ]; do sleep 0.05; done; [ $n = 2 ]"
    )
    await mine.submit("twice", script, on=IN_PLACE)
    async with mine.started("logs", "twice", "--all", "-f") as running:
        await eventually(lambda: running.out == ["rank 0 | run 1\n"])
        gate.touch()
        done = await running.finish()
    assert (done.code, done.out) == (0, "rank 0 | run 1\nrank 0 | run 2\n")
    assert (await mine.cli("logs", "twice")).out == "run 2\n"
    assert (await mine.cli("logs", "twice", "--previous")).out == "run 1\n"


async def test_where_the_current_run_has_printed_nothing_the_last_one_is_read(mine: Team, tmp_path: Path) -> None:
    """The second run starts, and waits for something before it prints."""
    gate, runs = tmp_path / "gate", tmp_path / "runs"
    again = f"echo x >> {runs}; while ! [ -e {gate} ]; do sleep 0.05; done"
    await mine.submit("silent", f"[ -e {runs} ] || {{ touch {runs}; echo broken; exit 1; }}; {again}", on=IN_PLACE)
    await eventually(lambda: runs.exists() and bool(runs.read_text()))
    done = await mine.cli("logs", "silent")
    assert (done.code, done.out) == (0, "broken\n")
    assert "rank 0: its current run has written nothing yet; this is the log of the run before\n" in done.err
    assert (await mine.cli("logs", "silent", "--all")).out == "rank 0 | broken\n"
    assert (await mine.cli("logs", "silent", "--tail", "5")).out == ""
    gate.touch()


async def test_why_there_is_no_log_is_told(mine: Team) -> None:
    await mine.submit("early", "true", suspend=True)
    await mine.condition("early", "Suspended")
    done = await mine.cli("logs", "early")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"TrainJob {mine.name}/early is suspended, and has no pods\n  what next: {mine.advised('resume', 'early')}\n"
    )

    resources = {"resourcesPerNode": {"requests": {"cpu": "500"}}}
    wide = mine.manifest("wide", "true")
    wide["spec"]["trainer"] |= resources
    await mine.client.create(TRAINJOBS, wide)

    async def unscheduled() -> bool:
        conditions = [each for pod in await mine.pods("wide") for each in (pod["status"].get("conditions") or ())]
        return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)

    await until(unscheduled)
    done = await mine.cli("logs", "wide")
    assert (done.code, done.out) == (1, "")
    told = done.err.splitlines()
    assert re.fullmatch(r"node 0: pod wide-node-0-0-\w+ has no log yet: it has no node: .+", told[0])
    assert told[1] == f"  what next: {mine.advised('logs', 'wide')} -f waits for it"

    done = await mine.cli("logs", "wide", "--previous", code=1)
    assert re.fullmatch(r"node 0: pod wide-node-0-0-\w+ has had no run before the current one\n", done.err)
    done = await mine.cli("logs", "wide", "--previous", "-f", code=2)

    async with mine.started("logs", "wide", "-f") as running:
        await eventually(lambda: any("FailedScheduling" in line and "never" in line for line in running.err))
        await mine.client.delete(TRAINJOBS, mine.name, "wide")
        done = await running.finish(code=1)
    assert f"  what next: {mine.advised('explain', 'wide')}; Ctrl-C ends the waiting\n" in done.err
    assert done.err.endswith(f"\nTrainJob {mine.name}/wide: Deleted\n")


async def test_an_empty_log_is_told(mine: Team, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    await mine.submit("mute", f"while ! [ -e {gate} ]; do sleep 0.05; done")

    async def runs() -> bool:
        return any(pod["status"].get("phase") == "Running" for pod in await mine.pods("mute"))

    await until(runs)
    assert (await mine.cli("logs", "mute", code=0)).err == "rank 0: its container has written nothing yet\n"
    done = await mine.cli("logs", "mute", "--since", "1h", code=0)
    assert done.err == "rank 0: its container has written nothing in that time\n"
    async with mine.started("logs", "mute", "-f") as running:
        await eventually(lambda: running.err == ["rank 0: its container has written nothing yet\n"])
        gate.touch()
        done = await running.finish(code=0)
    nothing = "rank 0: its container ended, and wrote nothing\n"
    assert (done.out, "".join(running.err[1:])) == ("", nothing)
    assert (await mine.cli("logs", "mute", "--all", code=0)).err == nothing


async def test_logs_outlive_pods_until_the_job_is_deleted(mine: Team, tmp_path: Path) -> None:
    """Of the rank that another one took with it, and of all ranks when their JobSet goes."""
    script = f"echo here {RANK}; if [ {RANK} = 0 ]; then touch {tmp_path}/came; exec sleep 1000; fi; "
    script += f"while ! [ -e {tmp_path}/came ]; do sleep 0.05; done; echo oh no; exit 3"
    job = await mine.submit("broken", script, nodes=2)
    await mine.condition("broken", "Failed")

    async def left(count: int) -> bool:
        return len((await mine.client.list(PODS, mine.name))["items"]) == count

    await until(lambda: left(1))
    first = f"rank 1 failed first; its log: {mine.advised('logs', 'broken')} --rank 1\n"
    for words, told in (([], first), (["--rank", "0"], ""), (["-f"], first)):
        done = await mine.cli("logs", "broken", *words, code=0)
        assert (done.out, done.err) == ("here 0\n", told)
    assert (await mine.cli("logs", "broken", "--rank", "1", code=0)).out == "here 1\noh no\n"
    await mine.client.delete(JOBSETS, mine.name, "broken")
    await until(lambda: left(0))
    lines = (await mine.cli("logs", "broken", "--all", code=0)).out.splitlines()
    assert sorted(lines) == ["rank 0 | here 0", "rank 1 | here 1", "rank 1 | oh no"]
    done = await mine.cli("logs", "broken", "--rank", "2", code=2)
    assert "has no rank 2 at the moment; there are: rank 0, rank 1 (--all prints them all)" in done.err

    path = f"/trainmaster.dev/logs/{job['metadata']['uid']}"
    await mine.client.delete(TRAINJOBS, mine.name, "broken")

    async def nothing_is_kept() -> bool:
        _, _, body = await mine.client.raw("GET", path)
        return body == b'{"pods":[],"logs":{}}'

    await until(nothing_is_kept, timeout=90)


async def test_every_attempt_has_its_log(mine: Team, tmp_path: Path) -> None:
    """All nodes start anew when one fails, which counts once; each node has several ranks."""
    came = f"-e {tmp_path}/0-$n -a -e {tmp_path}/1-$n"
    script = (
        f"# torchrun\nn=$(ls {tmp_path} | grep -c ^{RANK}-); echo attempt $n of {RANK}; touch {tmp_path}/{RANK}-$n; "
    )
    script += f"while ! [ {came} ]; do sleep 0.05; done; [ $n = 1 ]"
    again = mine.manifest("again", script, nodes=2)
    again["spec"]["trainer"]["numProcPerNode"] = 2
    again["metadata"]["annotations"] = {"trainmaster.dev/resilience-policy": '{"maxRestarts": 1}'}
    await mine.client.create(TRAINJOBS, again)
    await mine.condition("again", "Complete")
    assert (await mine.cli("logs", "again", code=0)).out == "attempt 1 of 0\n"
    for words in (["--attempt", "0"], ["--previous"]):
        assert (await mine.cli("logs", "again", *words, code=0)).out == "attempt 0 of 0\n"
    done = await mine.cli("logs", "again", "--rank", "3", "--attempt", "0", code=0)
    assert done.out == "attempt 0 of 1\n"
    assert done.err == "rank 3 runs on node 1, where ranks 2-3 print to this one log\n"
    done = await mine.cli("logs", "again", "--attempt", "2", code=1)
    assert done.err == "node 0 (ranks 0-1): no attempt 2 is known; there are logs of: 0, 1\n"
    done = await mine.cli("logs", "again", "--rank", "4", code=2)
    assert "has no rank 4 at the moment; there are: node 0 (ranks 0-1), node 1 (ranks 2-3)" in done.err


async def test_jobs_of_the_older_api_have_logs_as_well(mine: Team, tmp_path: Path) -> None:
    """With its master the job ends, so that this waits for the workers."""
    worker = f"echo worker $RANK; touch {tmp_path}/came-$RANK"
    master = f"echo master $RANK; while ! [ -e {tmp_path}/came-1 -a -e {tmp_path}/came-2 ]; do sleep 0.05; done"
    replicas = {"Master": (1, ["sh", "-c", master]), "Worker": (2, ["sh", "-c", worker])}
    await mine.submit_v1("PyTorchJob", "older", replicas)
    done = await mine.cli("logs", "older", "-f")
    assert (done.code, done.out) == (0, "master 0\n")

    lines = (await mine.cli("logs", "older", "--all")).out.splitlines()
    assert sorted(lines) == ["master 0 | master 0", "worker 0 | worker 1", "worker 1 | worker 2"]
    assert (await mine.cli("logs", "pytorchjob/older", "--rank", "2")).out == "worker 2\n"


async def test_wrong_options_are_told(tmp_path: Path) -> None:
    for words, complaint in (
        (["--rank", "-1"], "--rank"),
        (["--rank", "one"], "'one' is no whole number of at least 0"),
        (["--since", "soon"], "'soon' is no duration above 0; write 30s, 10m or 1h30m"),
        (["--all", "--rank", "1"], "not allowed with argument"),
    ):
        done = await trainmaster("logs", "any", *words, cwd=tmp_path)
        assert done.code == 2, done.err
        assert complaint in done.err


async def test_who_detaches_comes_back(mine: Team, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    await mine.submit("long", f"echo first; while ! [ -e {gate} ]; do sleep 0.05; done; echo second")
    async with mine.started("attach", "long") as running:
        await eventually(lambda: running.out == ["first\n"])
        running.process.send_signal(signal.SIGINT)
        done = await running.finish(code=130)
    assert "Traceback" not in done.err
    assert done.err.endswith(
        f"detached; TrainJob {mine.name}/long goes on\n"
        f"  to follow it again: {mine.advised('attach', 'long')}\n"
        f"  to end it: {mine.advised('delete', 'long')}\n"
    )
    async with mine.started("attach", "long") as running:
        await eventually(lambda: running.out == ["first\n"])
        gate.touch()
        done = await running.finish()
    assert (done.code, done.out) == (0, "first\nsecond\n")
    assert f"TrainJob {mine.name}/long: Complete" in done.err


async def test_ranks_and_the_end_of_their_logs_are_chosen(mine: Team) -> None:
    await mine.submit("two", "for n in 1 2 3; do echo $n of $JOB_COMPLETION_INDEX; done", nodes=2)
    await mine.condition("two", "Complete")
    assert (await mine.cli("attach", "two", "--rank", "1", "--tail", "1")).out == "3 of 1\n"
    everything = (await mine.cli("attach", "two", "--all")).out.splitlines()
    assert len(everything) == 6
    assert [line for line in everything if line.endswith(" of 1")][-1].endswith("3 of 1")
    assert "no pod of rank 9 was seen" in (await mine.cli("attach", "two", "--rank", "9")).err


async def test_a_job_that_is_deleted_meanwhile_is_not_waited_for(mine: Team) -> None:
    await mine.submit("removed", "echo up; sleep 1000")
    async with mine.started("attach", "removed") as running:
        await eventually(lambda: bool(running.out))
        await mine.client.delete(TRAINJOBS, mine.name, "removed")
        done = await running.finish(code=1)
    assert f"TrainJob {mine.name}/removed: Deleted" in done.err


async def test_jobs_of_v1_are_run_and_followed_as_well(mine: Team, tmp_path: Path) -> None:
    """A master is rank 0; a job is one run, so that its name cannot run twice."""
    tells, gate = "echo this is $RANK of $WORLD_SIZE", tmp_path / "gate"
    master = ["sh", "-c", f"while ! [ -e {gate} ]; do sleep 0.05; done; {tells}"]
    worker = ["sh", "-c", f"{tells}; touch {gate}"]
    await mine.submit_v1("PyTorchJob", "older", {"Master": (1, master), "Worker": (1, worker)})
    done = await mine.cli("attach", "older", "--all", code=0)
    assert sorted(done.out.splitlines()) == ["master 0 | this is 0 of 2", "worker 0 | this is 1 of 2"]
    assert f"PyTorchJob {mine.name}/older: Succeeded after " in done.err
    failing = job("PyTorchJob", "newer", {"Worker": (1, ["sh", "-c", "echo no such data; exit 3"])})
    failing["metadata"]["namespace"] = mine.name
    file = write(mine.directory, failing)
    done = await mine.cli("run", file, code=1)
    assert done.out == "no such data\n"
    assert f"PyTorchJob {mine.name}/newer created\n" in done.err
    assert re.search(r": Failed after .*\n  worker 0 failed: exit code 3; attempt 0, pod newer-worker-0\n", done.err)
    assert mine.advised("restart", "pytorchjob/newer") in done.err
    done = await mine.cli("run", file, code=2)
    assert "PyTorchJob newer already exists in namespace" in done.err
    assert (await mine.cli("attach", "nothing")).code == 2


async def test_a_reader_that_goes_away_ends_a_command_without_a_word(mine: Team) -> None:
    await mine.submit("chatty", "seq 20000", nodes=2)
    await mine.condition("chatty", "Complete")
    for words in (["logs", "chatty", "--all"], ["logs", "chatty"], ["top", "--once"], ["list"]):
        command = shlex.join([sys.executable, "-P", "-m", "trainmaster.controller.cli", *words, *mine.options])
        done = await run_program("bash", "-c", f"set -o pipefail; {command} | true")
        assert (done.code, done.out, done.err) in [(141, "", ""), (0, "", "")], words
