"""A training that reports by `trainmaster.report`, copied into it, and is killed once: what that costs."""

from pathlib import Path

from support.authorities import Authority
from support.commands import trainmaster
from support.training import ended, python, reporting_cluster, trainjob

from trainmaster import report
from trainmaster.controller.kube.clock import parse_time
from trainmaster.controller.resilience.goodput import KINDS
from trainmaster.controller.resources import TRAINJOBS

SCRIPT = """
import os, pathlib, signal, sys, time
sys.path.insert(0, {place!r})
import copied
place = pathlib.Path({place!r})
is_first = not (place / "times").exists()
time.sleep(2)
copied.progress(percent=40 if is_first else 90, metrics={{"loss": 0.5}}, checkpoint=True, world_size=1)
copied.flush()
if is_first:
    begun = time.time()
    time.sleep(4)
    (place / "times").write_text(str(time.time() - begun))
    os.kill(os.getpid(), signal.SIGKILL)
copied.progress(percent=100)
"""


async def test_what_a_failure_costs_is_counted_from_the_last_checkpoint(tmp_path: Path) -> None:
    certificates = tmp_path / "certificates"
    Authority().mount(certificates)
    (tmp_path / "copied.py").write_text(Path(report.__file__).read_text())
    async with reporting_cluster(tmp_path, certificates) as client:
        script = SCRIPT.format(place=str(tmp_path))
        job = trainjob("reports", trainer={"command": python(script)}, resiliencePolicy={"maxRestarts": 1})
        await client.create(TRAINJOBS, job)
        end = await ended(client, "reports")
        assert end["type"] == "Complete", end
        found = await client.get(TRAINJOBS, "default", "reports")
        goodput, reported = found["status"]["resilience"]["goodput"], found["status"]["trainerStatus"]
        assert (reported["progressPercentage"], reported["worldSize"]) == (100, 1)
        trained = float((tmp_path / "times").read_text())
        assert abs(goodput["lostSeconds"] - trained) <= 1
        assert not goodput["estimated"]
        spent = sum(goodput.get(field, 0) for field in KINDS.values())
        created, done = found["metadata"]["creationTimestamp"], end["lastTransitionTime"]
        assert spent == (parse_time(done) - parse_time(created)).total_seconds()
        explained = (await trainmaster("explain", "reports", cwd=tmp_path)).out
        assert f"{goodput['lostSeconds']}s lost in 1 failure\n" in explained
        (header, row) = (await trainmaster("list", "-o", "wide", cwd=tmp_path)).out.splitlines()
        assert (header.split()[-1], row.split()[-1]) == (
            "GOODPUT",
            f"{100 * goodput['productiveSeconds'] / spent:.0f}%",
        )
