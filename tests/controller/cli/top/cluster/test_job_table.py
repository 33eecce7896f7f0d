"""Jobs as rows: what is looked at when, and what is explained of many."""

from __future__ import annotations

from support.top import NOW, ago

from trainmaster.controller.cli.jobs.lookup import Job
from trainmaster.controller.cli.top.cluster.attention import TopJob
from trainmaster.controller.cli.top.cluster.job_table import ASK_AGAIN, JobTable
from trainmaster.controller.kube.cache.store import Store
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject


class Cluster:
    """Stores of jobs, and a clock that goes on when it is looked at."""

    def __init__(self, *, second_per_look: float = 0.0) -> None:
        self.jobs, self.jobsets = Store(), Store()
        self.pods: dict[str, list[JsonObject]] = {}
        self.now = 0.0
        self.second_per_look = second_per_look
        self.table = JobTable({TRAINJOBS: self.jobs}, self.jobsets, self.pods_of, monotonic=self.monotonic)

    def monotonic(self) -> float:
        self.now += self.second_per_look
        return self.now

    def pods_of(self, job: Job) -> list[JsonObject]:
        return self.pods.get(job.name, [])

    def put(self, name: str, condition: str = "", *, ended: float = 60) -> None:
        conditions = [{"type": condition, "status": "True", "reason": "OddReason", "message": "an odd story",
                       "lastTransitionTime": ago(ended)}]  # fmt: skip
        metadata = {"name": name, "namespace": "team", "uid": name, "creationTimestamp": ago(3600)}
        obj = {"apiVersion": TRAINJOBS.api_version, "kind": "TrainJob", "metadata": metadata, "spec": {}}
        self.jobs.put({**obj, "status": {"conditions": conditions if condition else []}})
        self.table.mark(TRAINJOBS, f"team/{name}")

    @property
    def rows(self) -> dict[str, TopJob]:
        return {job.row.name: job for job in self.table.rows}

    @property
    def explained(self) -> list[str]:
        return sorted(name for name, job in self.rows.items() if job.trouble is not None)


async def test_rows_follow_their_jobs() -> None:
    cluster = Cluster()
    cluster.put("done", "Complete")
    cluster.put("failed", "Failed")
    await cluster.table.bring_up_to_date(NOW)
    assert {name: job.row.state for name, job in cluster.rows.items()} == {"done": "Complete", "failed": "Failed"}
    assert cluster.explained == ["failed"]
    assert cluster.table.is_up_to_date
    cluster.jobs.delete("team/done")
    cluster.table.mark(TRAINJOBS, "team/done")
    cluster.table.mark(TRAINJOBS, "team/never-seen")
    assert not cluster.table.is_up_to_date
    await cluster.table.bring_up_to_date(NOW)
    assert cluster.rows.keys() == {"failed"}


async def test_of_many_all_are_shown_at_once_and_explained_little_by_little_the_latest_first() -> None:
    cluster = Cluster(second_per_look=0.03)
    for number in range(30):
        cluster.put(f"failed-{number:02}", "Failed", ended=100 + number)
    cluster.put("goes-on", "Odd")
    await cluster.table.bring_up_to_date(NOW)
    assert len(cluster.rows) == 31
    assert cluster.explained[:3] == ["failed-00", "failed-01", "failed-02"]
    assert "goes-on" in cluster.explained
    assert not cluster.table.is_up_to_date
    assert len(cluster.explained) < 15
    while not cluster.table.is_up_to_date:
        await cluster.table.bring_up_to_date(NOW)
    assert len(cluster.explained) == 31


async def test_what_is_known_of_a_job_is_shown_until_it_is_explained_anew() -> None:
    cluster = Cluster()
    cluster.put("odd", "Odd")
    await cluster.table.bring_up_to_date(NOW)
    cluster.second_per_look = 1.0
    for number in range(5):
        cluster.put(f"later-{number}", "Odd")
    cluster.put("odd", "Odd")
    await cluster.table.bring_up_to_date(NOW)
    assert "odd" in cluster.explained
    cluster.put("odd", "Complete")
    await cluster.table.bring_up_to_date(NOW)
    assert cluster.rows["odd"].trouble is None


async def test_a_job_that_waits_is_asked_about_again() -> None:
    """That nothing becomes of it for half a minute is a reason by itself, which nobody writes."""
    cluster = Cluster()
    cluster.put("waits")
    await cluster.table.bring_up_to_date(NOW)
    assert (cluster.table.is_up_to_date, cluster.explained) == (True, [])
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node"}
    metadata = {"name": "p", "namespace": "team", "uid": "p", "creationTimestamp": ago(3000), "labels": labels}
    status = {"phase": "Pending", "conditions": [unscheduled]}
    cluster.pods["waits"] = [{"metadata": metadata, "spec": {"containers": [{"name": "node"}]}, "status": status}]
    await cluster.table.bring_up_to_date(NOW)
    assert cluster.explained == []
    cluster.now += ASK_AGAIN + 1
    await cluster.table.bring_up_to_date(NOW)
    assert cluster.explained == ["waits"]
