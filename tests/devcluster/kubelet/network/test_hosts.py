"""Hosts files: every name that pods of a subdomain use, before the pods are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.disk import full_disk

from trainmaster.devcluster.apiserver.resources import JOBS, JOBSETS, GroupResource
from trainmaster.devcluster.kubelet.network.addresses import host_address
from trainmaster.devcluster.kubelet.network.hosts import HostsTable, expected_hosts, hosts_text
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


def test_the_pods_of_a_jobset_are_known_from_its_spec() -> None:
    assert list(expected_hosts(pod(), lookup)) == [
        "train-node-0-0",
        "train-node-0-1",
        "train-data-0-0",
        "train-data-1-0",
    ]


def test_the_pods_of_an_indexed_job_are_known_from_its_spec() -> None:
    assert list(expected_hosts(pod(jobset="", job="indexed"), lookup)) == ["indexed-0", "indexed-1", "indexed-2"]
    assert list(expected_hosts(pod(jobset="", job="plain"), lookup)) == []
    assert list(expected_hosts(pod(jobset="gone"), lookup)) == []


def test_each_pod_has_the_names_by_which_a_cluster_resolves_it() -> None:
    line = hosts_text("ns", "sub", ["host"]).splitlines()[-1]
    address, *names = line.split()
    assert address == host_address("ns", "sub", "host")
    # The first one is what getfqdn gives.
    assert names[:5] == ["host.sub.ns.svc.cluster.local", "host.sub.ns.svc", "host.sub.ns", "host.sub", "host"]
    assert {"sub", "sub.ns", "sub.ns.svc", "sub.ns.svc.cluster.local"} <= set(names)


def test_pods_of_a_subdomain_share_a_file_that_grows_in_place(tmp_path: Path) -> None:
    """A running pod has the file itself mounted: a new file under the same name would be invisible to it."""
    table = HostsTable(tmp_path, lookup=lookup)
    path = table.file(pod("train-node-0-0"), own=tmp_path / "own")
    before, inode = path.read_text(), path.stat().st_ino
    assert "train-data-1-0.train" in before
    assert table.file(pod("unforeseen"), own=tmp_path / "own") == path
    assert path.read_text().startswith(before)
    assert "unforeseen.train" in path.read_text()
    assert path.stat().st_ino == inode


def test_on_a_full_disk_a_file_is_given_to_nobody_before_it_is_whole(tmp_path: Path) -> None:
    table = HostsTable(tmp_path, lookup=lookup)
    with full_disk(room=100), pytest.raises(OSError, match="too large"):
        table.file(pod("train-node-0-0"), own=tmp_path / "own")
    path = table.file(pod("train-node-0-0"), own=tmp_path / "own")
    assert path.read_text() == HostsTable(tmp_path, lookup=lookup).file(pod("train-node-0-0"), own=path).read_text()
    assert path.read_text().endswith("\n")
    assert "train-data-1-0.train" in path.read_text()


def test_after_a_restart_the_file_is_the_same(tmp_path: Path) -> None:
    before = HostsTable(tmp_path, lookup=lookup).file(pod("train-node-0-0"), own=tmp_path / "own").read_text()
    assert HostsTable(tmp_path, lookup=lookup).file(pod("train-node-0-1"), own=tmp_path / "own").read_text() == before


def test_a_pod_without_a_subdomain_knows_itself_only(tmp_path: Path) -> None:
    path = HostsTable(tmp_path, lookup=lookup).file(pod(subdomain=""), own=tmp_path / "own")
    assert path == tmp_path / "own"
    assert path.read_text().splitlines()[-1].split() == [host_address("ns", "", "p"), "p"]


def test_files_go_with_the_last_pod(tmp_path: Path) -> None:
    table = HostsTable(tmp_path, lookup=lookup)
    path = table.file(pod("train-node-0-0"), own=tmp_path / "own")
    table.keep(["ns/train"])
    assert path.exists()
    HostsTable(tmp_path, lookup=lookup).keep(["ns/other"])
    assert not path.exists(), "also by a later run"
