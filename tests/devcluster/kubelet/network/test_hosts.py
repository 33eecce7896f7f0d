"""Names of pods and Services in hosts files, which are whole at every moment."""

import os
import random
from pathlib import Path
from typing import Any

import pytest
from support.disk import full_disk

from trainmaster.devcluster.apiserver.resources import JOBS, JOBSETS, SERVICES, GroupResource
from trainmaster.devcluster.apiserver.storage import ObjectKey
from trainmaster.devcluster.kubelet.network.addresses import host_address
from trainmaster.devcluster.kubelet.network.hosts import HostsFile, HostsTable, Record, expected_hosts, host_lines
from trainmaster.runtime.jsontree import JsonObject


def group(name: str, **spec: Any) -> JsonObject:
    replicas = {"replicas": spec.pop("replicas")} if "replicas" in spec else {}
    return {"name": name, **replicas, "template": {"spec": spec}}


OBJECTS: dict[tuple[GroupResource, str], JsonObject] = {
    (JOBSETS, "train"): {
        "spec": {
            "replicatedJobs": [
                group("node", parallelism=2, completions=2),
                group("data", replicas=2),
                group("none", replicas=0),
            ]
        }
    },
    (JOBS, "indexed"): {"spec": {"completionMode": "Indexed", "completions": 3, "parallelism": 1}},
    (JOBS, "plain"): {"spec": {"parallelism": 3}},
}


def lookup(resource: GroupResource, namespace: str, name: str) -> JsonObject | None:
    return OBJECTS.get((resource, name)) if namespace == "ns" else None


def pod(host: str = "", *, subdomain: str = "train", jobset: str = "train", job: str = "") -> JsonObject:
    labels = {"jobset.sigs.k8s.io/jobset-name": jobset, "batch.kubernetes.io/job-name": job}
    spec = {"hostname": host, "subdomain": subdomain}
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "labels": {k: v for k, v in labels.items() if v}}
    return {"metadata": metadata, "spec": {k: v for k, v in spec.items() if v}}


def test_pods_are_known_from_the_spec_of_their_jobset_or_indexed_job() -> None:
    jobset = ["train-node-0-0", "train-node-0-1", "train-data-0-0", "train-data-1-0"]
    assert list(expected_hosts(pod(), lookup)) == jobset
    assert list(expected_hosts(pod(jobset="", job="indexed"), lookup)) == ["indexed-0", "indexed-1", "indexed-2"]
    assert list(expected_hosts(pod(jobset="", job="plain"), lookup)) == []
    assert list(expected_hosts(pod(jobset="gone"), lookup)) == []


def test_each_pod_has_the_names_by_which_a_cluster_resolves_it() -> None:
    (line,) = host_lines("ns", "sub", ["host"])
    address, *names = line.split()
    assert address == host_address("ns", "sub", "host")
    # The first one is what getfqdn gives.
    assert names[:5] == ["host.sub.ns.svc.cluster.local", "host.sub.ns.svc", "host.sub.ns", "host.sub", "host"]
    assert {"sub", "sub.ns", "sub.ns.svc", "sub.ns.svc.cluster.local"} <= set(names)


HEADLESS: JsonObject = {
    "clusterIP": "None",
    "clusterIPs": ["None"],
    "selector": {"jobset.sigs.k8s.io/jobset-name": "train"},
}


@pytest.mark.parametrize(
    ("spec", "known"),
    [
        (HEADLESS, True),
        ({**HEADLESS, "selector": {"app": "other"}}, False),
        ({**HEADLESS, "clusterIP": "10.0.0.7"}, False),
    ],
)
def test_a_service_of_the_jobs_name_takes_the_names_of_its_pods(tmp_path: Path, spec: JsonObject, known: bool) -> None:
    """JobSet leaves a Service alone that is there before its own, and DNS knows only that."""
    objects = OBJECTS | {(SERVICES, "train"): {"metadata": {"name": "train", "namespace": "ns"}, "spec": spec}}
    table = HostsTable(tmp_path, lookup=lambda resource, _namespace, name: objects.get((resource, name)))
    path = table.file(pod("train-node-0-0"), own=tmp_path / "own", address="127.0.0.9")
    assert ("train-node-0-1.train" in path.read_text()) is known
    assert "train-node-0-0" in path.read_text().split(), "a pod always knows itself"


def test_pods_of_a_subdomain_share_a_file_that_grows_in_place(tmp_path: Path) -> None:
    """A running pod has the file itself mounted: a new file under the same name would be invisible to it."""
    table = HostsTable(tmp_path, lookup=lookup)
    path = table.file(pod("train-node-0-0"), own=tmp_path / "own", address="127.16.0.9")
    before, inode = path.read_text(), path.stat().st_ino
    assert "train-data-1-0.train" in before
    assert table.file(pod("unforeseen"), own=tmp_path / "own", address="127.16.0.9") == path
    assert path.read_text().startswith(before)
    assert "unforeseen.train" in path.read_text()
    assert path.stat().st_ino == inode


def test_on_a_full_disk_a_file_is_given_to_nobody_before_it_is_whole(tmp_path: Path) -> None:
    table = HostsTable(tmp_path, lookup=lookup)
    with full_disk(room=100), pytest.raises(OSError, match="too large"):
        table.file(pod("train-node-0-0"), own=tmp_path / "own", address="127.16.0.9")
    path = table.file(pod("train-node-0-0"), own=tmp_path / "own", address="127.16.0.9")
    assert (
        path.read_text()
        == HostsTable(tmp_path, lookup=lookup).file(pod("train-node-0-0"), own=path, address="").read_text()
    )
    assert path.read_text().endswith("\n")
    assert "train-data-1-0.train" in path.read_text()


def test_after_a_restart_the_file_is_the_same(tmp_path: Path) -> None:
    first, second = (
        HostsTable(tmp_path, lookup=lookup).file(pod(host), own=tmp_path / "own", address="127.16.0.9").read_text()
        for host in ("train-node-0-0", "train-node-0-1")
    )
    assert first == second


def test_a_pod_without_a_subdomain_knows_itself_only(tmp_path: Path) -> None:
    path = HostsTable(tmp_path, lookup=lookup).file(pod(subdomain=""), own=tmp_path / "own", address="127.16.0.9")
    assert path == tmp_path / "own"
    assert path.read_text().splitlines()[-1].split() == ["127.16.0.9", "p"]


def test_files_go_with_the_last_pod(tmp_path: Path) -> None:
    table = HostsTable(tmp_path, lookup=lookup)
    path = table.file(pod("train-node-0-0"), own=tmp_path / "own", address="127.16.0.9")
    table.keep(["ns/train"])
    assert path.exists()
    HostsTable(tmp_path, lookup=lookup).keep(["ns/other"])
    assert not path.exists(), "also by a later run"


WEB = ObjectKey(SERVICES, "ns", "web")


def shown(path: Path) -> dict[str, list[str]]:
    """The addresses of each name, as a resolver reads them."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        address, *names = line.split("#")[0].split() or [""]
        for name in names:
            found.setdefault(name, []).append(address)
    return found


def test_a_service_is_known_to_pods_that_run_already_and_to_those_that_come(tmp_path: Path) -> None:
    table = HostsTable(tmp_path, lookup=lookup)
    early = table.file(pod(subdomain=""), own=tmp_path / "early", address="127.16.0.9")
    table.publish(WEB, [Record("127.16.0.1", "ns", "web"), Record("127.16.0.2", "ns", "web")])
    late = pod(subdomain="")
    late["metadata"] |= {"uid": "v", "namespace": "other"}
    elsewhere = table.file(late, own=tmp_path / "late", address="127.16.0.8")
    both = ["127.16.0.1", "127.16.0.2"]
    for name in ("web.ns.svc.cluster.local", "web.ns.svc", "web.ns"):
        assert shown(early)[name] == shown(elsewhere)[name] == both
    assert shown(early)["web"] == both
    assert "web" not in shown(elsewhere), "the short name is one of the namespace"
    table.publish(WEB, [Record("127.16.0.2", "ns", "web")])
    assert shown(early)["web"] == ["127.16.0.2"]
    table.publish(WEB, [])
    assert shown(early).keys() == {"localhost", "ip6-localhost", "ip6-loopback", "p"}


def test_the_own_names_of_a_file_come_before_those_of_services(tmp_path: Path) -> None:
    """As in a cluster, where /etc/hosts is asked before the name server: no name has two addresses by that."""
    table = HostsTable(tmp_path, lookup=lookup)
    path = table.file(pod(subdomain=""), own=tmp_path / "own", address="127.16.0.9")
    table.publish(ObjectKey(SERVICES, "ns", "p"), [Record("127.16.0.9", "ns", "p")])
    assert shown(path)["p"] == shown(path)["p.ns"] == ["127.16.0.9"]
    headless = [Record(host_address("ns", "train", "unforeseen"), "ns", "train", "unforeseen")]
    shared = table.file(pod("train-node-0-0"), own=tmp_path, address="")
    table.publish(ObjectKey(SERVICES, "ns", "train"), headless)
    assert shown(shared)["unforeseen.train"] == [headless[0].address]
    assert shown(path)["unforeseen.train.ns.svc"] == [headless[0].address]
    table.file(pod("unforeseen"), own=tmp_path, address="")
    assert shown(shared)["unforeseen.train"] == [headless[0].address], "once"
    assert len(shown(shared)["train"]) == 5


def test_a_file_whose_pod_is_being_removed_holds_nobody_up(tmp_path: Path) -> None:
    table = HostsTable(tmp_path, lookup=lookup)
    table.file(pod(subdomain=""), own=tmp_path / "own", address="127.16.0.9").unlink()
    table.publish(WEB, [Record("127.16.0.1", "ns", "web")])
    table.forget("u")
    table.publish(WEB, [])


def test_localhost_is_no_address_of_ipv6_where_there_are_no_such_sockets(tmp_path: Path) -> None:
    """A program would try that first, and tell its failure."""
    table = HostsTable(tmp_path, lookup=lookup)
    own = table.file(pod(subdomain=""), own=tmp_path / "own", address="127.16.0.9", ipv6=False)
    assert shown(own)["localhost"] == ["127.0.0.1"]
    both = table.file(pod("train-node-0-0"), own=tmp_path, address="")
    assert shown(both)["localhost"] == ["127.0.0.1", "::1"]


def lines(path: Path) -> list[str]:
    return [line.rstrip() for line in path.read_text().splitlines() if not line.startswith("#")]


def test_every_write_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver may read between any two system calls."""
    file = HostsFile(tmp_path / "hosts")
    possible = {f"127.0.0.{number}\tname-{number}{'-long' * (number % 4)}" for number in range(9)}
    seen = 0
    real = os.pwrite

    def pwrite(descriptor: int, content: bytes, offset: int) -> int:
        nonlocal seen
        part = real(descriptor, content[:7], offset)  # as an almost full disk does
        assert set(lines(file.path)) <= possible
        seen += 1
        return part

    monkeypatch.setattr(os, "pwrite", pwrite)
    choice = random.Random(7)  # the seed of this test
    for _ in range(200):
        wanted = choice.sample(sorted(possible), choice.randrange(6))
        file.show("services", wanted)
        assert sorted(lines(file.path)) == sorted(wanted)
    assert seen > 1000


def test_it_does_not_grow_without_end(tmp_path: Path) -> None:
    file = HostsFile(tmp_path / "hosts")
    file.show("own", ["127.0.0.1\tlocalhost"])
    for number in range(100):
        file.show(number % 3, [f"127.0.0.{number}\tname-{number}", "127.0.1.1\tother"])
        file.show((number + 1) % 3, [])
    assert len(file.path.read_bytes()) < 400
    assert lines(file.path)[0] == "127.0.0.1\tlocalhost"


def test_what_an_earlier_run_left_is_gone(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("127.0.0.9\told\n" * 100)
    file = HostsFile(tmp_path / "hosts")
    file.show("a", ["127.0.0.1\tnew"])
    assert file.path.read_text() == "127.0.0.1\tnew\n"
