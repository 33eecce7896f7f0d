"""What a container in namespaces gets mounted."""

from __future__ import annotations

import sys
from pathlib import Path

from trainmaster.devcluster.kubelet.directories import PodFiles
from trainmaster.devcluster.kubelet.volumes.mounts import Namespaces, installation, rescued, sandbox_of, volume_binds

FILES = PodFiles(Path("/var/state/pods/u"), Path("/tmp/trainmaster-0/u"))


def test_generated_volumes_are_read_only_and_others_as_they_say() -> None:
    mounts = [
        {"name": "cm", "mountPath": "/etc/cm/"},
        {"name": "data", "mountPath": "/data"},
        {"name": "data", "mountPath": "/ro", "readOnly": True},
        {"name": "data", "mountPath": "/dev/shm"},
    ]
    pod = {"spec": {"volumes": [{"name": "cm", "configMap": {"name": "x"}}, {"name": "data", "emptyDir": {}}]}}
    paths = {"/etc/cm": "/v/cm", "/data": "/v/data", "/ro": "/v/data", "/dev/termination-log": "/t"}
    assert volume_binds({"volumeMounts": mounts}, pod, paths) == [
        ("/v/cm", "/etc/cm", True),
        ("/v/data", "/data", False),
        ("/v/data", "/ro", True),
    ]


def test_what_a_volume_would_hide_is_shown_again() -> None:
    """A volume at /workspace must not take away the environment that was installed there."""
    needed = ["/workspace/.venv", "/workspace/.venv/lib", "/usr/bin"]
    hidden = rescued([("/v/data", "/workspace", False)], files=FILES, needed=needed)
    assert hidden == [("/workspace/.venv", "/workspace/.venv", False)]
    hidden = rescued([("/v", "/tmp", False), ("/v", "/var", False)], files=FILES, needed=needed)
    assert [target for _, target, _ in hidden] == [str(FILES.tmp), str(FILES.root)]
    assert rescued([("/v", "/workspaces", False)], files=FILES, needed=needed) == []


def test_the_installation_is_where_this_python_runs_from() -> None:
    assert {sys.prefix, str(Path(sys.executable).parent)} <= installation()


def test_a_volume_at_the_hosts_file_wins() -> None:
    namespaces = Namespaces(hosts=Path("/hosts"), user_namespace=True)
    ours = sandbox_of(namespaces, [], view=Path("/view"), hostname="h")
    assert ours["binds"] == [("/hosts", "/etc/hosts", True)]
    theirs = sandbox_of(namespaces, [("/v", "/etc/hosts", False)], view=Path("/view"), hostname="h")
    assert theirs["binds"] == [("/v", "/etc/hosts", False)]
