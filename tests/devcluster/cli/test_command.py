"""`trainmaster cluster` as a program: how it starts, tells about itself, ends, and comes back after being killed."""

import asyncio
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import client_of, eventually, processes_of, started, trainmaster

from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.errors import NotFound
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, PODS
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.devcluster.state import StateDirectory
from trainmaster.runtime.jsontree import JsonObject

pytestmark = pytest.mark.nightly

BARE = ("--without", "manager,controllers,gc,kubelet")


async def test_a_cluster_in_the_background_lives_until_it_is_taken_down(home: Path) -> None:
    state = home / ".trainmaster"
    up = await trainmaster("cluster", "up", "--detach", *BARE, cwd=home)
    assert (up.code, up.err) == (0, "")
    assert f"export KUBECONFIG={state / 'kubeconfig'}" in up.out
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert stat.S_IMODE((state / "token").stat().st_mode) == 0o600
    assert (state / ".gitignore").read_text() == "*\n"

    status = await trainmaster("cluster", "status", cwd=home)
    assert status.code == 0
    record = json.loads((state / "cluster.json").read_text())
    assert f"running (pid {record['pid']})" in status.out
    assert record["server"] in status.out
    assert re.search(r"pods: +0 running of 0", status.out)

    for again in (("cluster", "up"), ("cluster", "up", "--detach")):
        second = await trainmaster(*again, *BARE, cwd=home)
        assert second.code == 1
        assert f"already running (pid {record['pid']})" in second.err
        assert "trainmaster cluster down" in second.err
    third = await trainmaster("cluster", "up", "--detach", "--if-needed", *BARE, cwd=home)
    assert (third.code, third.err) == (0, "")
    assert third.out.startswith(f"Cluster runs already at {record['server']} (pid {record['pid']})")
    fourth = await trainmaster("cluster", "up", "--if-needed", *BARE, cwd=home)
    assert (fourth.code, fourth.err) == (2, "trainmaster: --if-needed is for a start in the background; add --detach\n")

    down = await trainmaster("cluster", "down", cwd=home)
    assert (down.code, down.err) == (0, "")
    await eventually(lambda: not processes_of(str(state)))
    status = await trainmaster("cluster", "status", cwd=home)
    assert status.code == 3
    assert "not running" in status.out

    assert (await trainmaster("cluster", "down", "--purge", cwd=home)).code == 0
    assert not state.exists()


async def test_of_many_starts_at_once_one_begins_and_the_others_wait_for_it(home: Path) -> None:
    up = ("cluster", "up", "--detach", "--if-needed", "--without", "kubelet")
    ended = await asyncio.gather(*(trainmaster(*up, cwd=home) for _ in range(4)))
    assert {each.code for each in ended} == {0}, ended
    assert sorted(each.out.split(" at ")[0] for each in ended) == ["Cluster is ready", *["Cluster runs already"] * 3]


def never_ready(home: Path) -> str:
    """A configuration with which a manager waits for certificates that nobody brings."""
    (home / "empty").mkdir()
    (home / "never.yaml").write_text(
        "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Configuration\n"
        f"webhook: {{certDir: {home / 'empty'}}}\n"
    )
    return "never.yaml"


async def test_a_start_that_waited_for_another_in_vain_starts_its_own(home: Path) -> None:
    up = ("cluster", "up", "--detach", "--if-needed", "--without", "kubelet")
    state = StateDirectory(home / ".trainmaster")
    async with started(*up, "--config", never_ready(home), cwd=home) as first:
        await eventually(lambda: state.log.exists() and "cluster is started" in state.log.read_text())
        async with started(*up, cwd=home) as second:
            await eventually(lambda: "waiting for it" in "".join(second.err))
            first.process.send_signal(signal.SIGINT)
            assert (await first.finish()).code == 130
            ended = await second.finish()
    assert ended.code == 0, ended.err
    assert ended.out.startswith("Cluster is ready")


async def test_a_start_that_waits_for_another_is_given_up_on_ctrl_c(home: Path) -> None:
    state = StateDirectory(home / ".trainmaster")
    async with started("cluster", "up", "--config", never_ready(home), "--without", "kubelet", cwd=home) as first:
        await eventually(lambda: state.holder() is not None)
        async with started("cluster", "up", "--detach", "--if-needed", cwd=home) as second:
            await eventually(lambda: "waiting for it" in "".join(second.err))
            second.process.send_signal(signal.SIGINT)
            ended = await second.finish()
        assert ended.code == 130
        assert re.fullmatch(r"trainmaster: a cluster is starting here already \(pid \d+\); waiting for it\n", ended.err)
        assert first.process.returncode is None


def test_who_starts_one_in_the_background_loads_nothing_of_it() -> None:
    """That would be half of what its own start costs."""
    script = "import sys, trainmaster.devcluster.cli.detach; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"trainmaster.devcluster.cluster", "trainmaster.devcluster.apiserver.server", "aiohttp"}


async def test_without_its_parts_it_is_an_api_server_and_nothing_else(home: Path) -> None:
    """Recorded cases bring their own definitions; ours would get into their way."""
    await trainmaster("cluster", "up", "--detach", *BARE, "--token", "secret-of-the-test", cwd=home)
    async with client_of(home / ".trainmaster" / "kubeconfig") as client:
        assert await client.list(PODS, "default")
        with pytest.raises(NotFound):
            await client.list(TRAINJOBS, "default")
        assert await client.config.headers() == {"Authorization": "Bearer secret-of-the-test"}


async def test_roles_are_enforced_if_asked_for_and_tokens_outlive_a_restart(home: Path) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "me"}}
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    asked = {"user": "system:serviceaccount:default:me", "resourceAttributes": {"verb": "get", "resource": "pods"}}

    async def post(client: KubeClient, path: str, body: JsonObject) -> JsonObject:
        status, _, answer = await client.raw("POST", path, body=json.dumps(body).encode())
        assert status == 201, answer
        created: JsonObject = json.loads(answer)
        return created

    await trainmaster("cluster", "up", "--detach", "--rbac", *BARE, cwd=home)
    async with client_of(home / ".trainmaster" / "kubeconfig") as client:
        await post(client, accounts, account)
        token = (await post(client, f"{accounts}/me/token", {}))["status"]["token"]
        review = await post(client, "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": asked})
        assert review["status"]["allowed"] is False
    await trainmaster("cluster", "down", cwd=home)
    await trainmaster("cluster", "up", "--detach", *BARE, cwd=home)
    async with client_of(home / ".trainmaster" / "kubeconfig") as client:
        review = await post(client, "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})
        assert review["status"]["authenticated"] is True
        review = await post(client, "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": asked})
        assert review["status"]["allowed"] is True
    key = home / ".trainmaster" / "pki" / "service-accounts.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")
async def test_killed_it_leaves_no_process_and_finds_every_object_again(home: Path) -> None:
    state, marker = home / ".trainmaster", f"pod-of-{home.name}"
    up = await trainmaster("cluster", "up", "--detach", cwd=home)
    assert up.code == 0, up.err
    async with client_of(state / "kubeconfig") as client:
        script = f"echo {marker}; exec {sys.executable} -c 'import signal; signal.pause()' {marker}"
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "sleeper", "namespace": "default"},
            "spec": {"containers": [{"name": "main", "image": "none", "command": ["sh", "-c", script]}]},
        }
        await client.create(PODS, pod)
        await eventually(lambda: bool(processes_of(marker)))
        written = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "last", "namespace": "default"}}
        acknowledged = await client.create(CONFIGMAPS, written)
        os.kill(json.loads((state / "cluster.json").read_text())["pid"], signal.SIGKILL)
    await eventually(lambda: not processes_of(str(state)) and not processes_of(marker))
    assert (await trainmaster("cluster", "status", cwd=home)).code == 3

    up = await trainmaster("cluster", "up", "--detach", cwd=home)
    assert up.code == 0, up.err
    async with client_of(state / "kubeconfig") as client:
        found = await client.get(CONFIGMAPS, "default", "last")
        assert found["metadata"]["uid"] == acknowledged["metadata"]["uid"]
        assert found["metadata"]["resourceVersion"] == acknowledged["metadata"]["resourceVersion"]
        await eventually(lambda: bool(processes_of(marker)))
    status = await trainmaster("cluster", "status", cwd=home)
    assert re.search(r"trainjobs: +0 running of 0", status.out)


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        foreground = await trainmaster("cluster", "up", "--port", str(port), *BARE, cwd=tmp_path)
        background = await trainmaster("cluster", "up", "--detach", "--port", str(port), *BARE, cwd=tmp_path)
    assert foreground.code == background.code == 1
    line = f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another port"
    assert line in foreground.err
    assert len(foreground.err.splitlines()) == 1
    assert line in background.err


async def test_the_port_stays_the_same_from_run_to_run(home: Path) -> None:
    """Not one of the usual ports, which other clusters on this machine might take in between."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for wanted in (str(port), "0"):
        up = await trainmaster("cluster", "up", "--detach", "--port", wanted, *BARE, cwd=home)
        assert f"https://127.0.0.1:{port} " in up.out
        await trainmaster("cluster", "down", cwd=home)


async def test_state_that_cannot_be_used_is_explained_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("")
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "cluster.json").write_text('{"format": 99, "version": "9.9.9"}')
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "journal").write_text("not a journal\n")
    for directory, texts in {
        "file": ["is not a directory", "--state-dir"],
        "file/below": ["cannot write to the state directory", "--state-dir"],
        "project": ["is not empty and holds no cluster (found train.py)", "--state-dir"],
        "newer": ["was written by trainmaster 9.9.9 (format 99)", "down --purge"],
        "damaged": [
            "journal is damaged: line 1 is not the header of a journal; restore it from a backup",
            "delete objects, logs and volumes with `trainmaster cluster down --purge --state-dir",
        ],
    }.items():
        up = await trainmaster("cluster", "up", "--state-dir", directory, *BARE, cwd=tmp_path)
        assert up.code == 1, directory
        assert len(up.err.splitlines()) == 1, up.err
        assert all(text in up.err for text in texts), up.err


async def test_an_empty_journal_is_not_an_empty_cluster(home: Path) -> None:
    state = home / ".trainmaster"
    assert (await trainmaster("cluster", "up", "--detach", *BARE, cwd=home)).code == 0
    assert (await trainmaster("cluster", "down", cwd=home)).code == 0
    (state / "journal").write_bytes(b"")
    up = await trainmaster("cluster", "up", *BARE, cwd=home)
    assert up.code == 1
    assert up.err == (
        f"trainmaster: {state / 'journal'} is empty, although a journal never is: it was cut off; restore it from a "
        f"backup, or delete objects, logs and volumes with `trainmaster cluster down --purge --state-dir {state}`\n"
    )
    assert (state / "journal").read_bytes() == b""


async def test_a_torn_end_of_the_journal_is_told(home: Path) -> None:
    assert (await trainmaster("cluster", "up", "--detach", *BARE, cwd=home)).code == 0
    assert (await trainmaster("cluster", "down", cwd=home)).code == 0
    with (home / ".trainmaster" / "journal").open("ab") as journal:
        journal.write(b'{"crc":"')
    up = await trainmaster("cluster", "up", "--detach", *BARE, cwd=home)
    told = re.search(r"Note: the last cluster ended in the middle of a write.* is kept in (\S+)\n", up.out)
    assert told, up.out
    assert Path(told[1]).read_bytes() == b'{"crc":"'
    status = await trainmaster("cluster", "status", cwd=home)
    assert (status.code, told[1] in status.out) == (0, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_directory_without_write_permission_is_explained(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    up = await trainmaster("cluster", "up", "--state-dir", "locked/state", *BARE, cwd=tmp_path)
    assert up.code == 1
    assert "Permission denied; make it writable" in up.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--port", "70000"], "'70000' is no port"),
        (["--without", "kubelet,scheduler"], "'scheduler' is no part"),
        (["--token", "two words"], "without spaces"),
        (["--networking", "bridge"], "invalid choice: 'bridge'"),
        (["--fake-gpus", "-1"], "'-1' is no number"),
        (["--endpoint-lag", "1s"], "'1s' is no number of seconds; use one from 0 up"),
        (["--entrypoint", "web"], "'web' is no entrypoint; write IMAGE=COMMAND, as in example.com/web=python"),
        (["--entrypoint", "=python"], "'=python' is no entrypoint"),
        (["--entrypoint", "web='python"], "cannot be read: No closing quotation"),
    ],
)
async def test_wrong_arguments_exit_with_2(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    up = await trainmaster("cluster", "up", *arguments, cwd=tmp_path)
    assert up.code == 2
    assert complaint in up.err
    assert not (tmp_path / ".trainmaster").exists()


async def test_a_kubeconfig_of_other_clusters_is_not_replaced(tmp_path: Path) -> None:
    precious = "clusters: [{name: production}, {name: trainmaster}]\n"
    (tmp_path / "config").write_text(precious)
    up = await trainmaster("cluster", "up", "--kubeconfig", "config", *BARE, cwd=tmp_path)
    assert up.code == 1
    assert "config was not made by an embedded cluster and will not be replaced" in up.err
    assert (tmp_path / "config").read_text() == precious


async def test_a_missing_configuration_is_noticed_before_anything_starts(tmp_path: Path) -> None:
    up = await trainmaster("cluster", "up", "--detach", "--config", "missing.yaml", cwd=tmp_path)
    assert up.code == 1
    assert "cannot read missing.yaml" in up.err
    up = await trainmaster("cluster", "up", "--detach", "--config", ".", cwd=tmp_path)
    assert up.code != 0
    assert "cannot read .; name the configuration file of the manager with --config" in up.err
    assert not (tmp_path / ".trainmaster").exists()
