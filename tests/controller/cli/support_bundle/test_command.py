"""`trainmaster support-bundle` on embedded clusters: what is in the archive, and what never is."""

import argparse
import asyncio
import os
import sys
import tarfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.commands import trainmaster
from support.kubeconfigs import kubeconfig_of, write_kubeconfig
from support.stack import Stack, api_server
from support.team import Team
from support.training import trainjob, until

from trainmaster.controller.cli import main
from trainmaster.controller.cli.probes import DEPLOYMENTS
from trainmaster.controller.cli.support_bundle import command
from trainmaster.controller.cli.support_bundle.bundle import Bundle
from trainmaster.controller.cli.support_bundle.gathering import gather
from trainmaster.controller.cli.support_bundle.redaction import Redactor
from trainmaster.controller.kube.rest.client import KubeClient
from trainmaster.controller.kube.rest.resources import CONFIGMAPS, LEASES, PODS, SECRETS, SERVICES
from trainmaster.controller.manager.roles import NAME
from trainmaster.controller.resources import TRAINJOBS
from trainmaster.runtime.jsontree import JsonObject

PLANTED = "hunter2-swordfish"
LABELS = {"app.kubernetes.io/name": "trainer", "app.kubernetes.io/component": "manager"}
CONFIGURATION = f"""\
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
webhook: {{port: 9444}}  # {PLANTED}
plugins: {{options: {{acme: {{endpoint: {PLANTED}}}}}}}
"""

MANAGER = f"""\
echo using {PLANTED}
if [ -e "$0" ]; then echo the second run; exec sleep 1000; fi
echo the first run; touch "$0"; exit 1
"""


def read(path: Path) -> dict[str, bytes]:
    """The files of an archive by name."""
    with tarfile.open(path) as archive:
        found = {each.name.partition("/")[2]: archive.extractfile(each) for each in archive.getmembers()}
        return {name: file.read() for name, file in found.items() if file is not None}


def index_of(files: dict[str, bytes]) -> JsonObject:
    return dict(orjson.loads(files["index.json"]))


def items(files: dict[str, bytes], path: str) -> list[JsonObject]:
    return list(orjson.loads(files[path])["items"])


def lacking(files: dict[str, bytes]) -> dict[str, str]:
    """Why something is missing, by what it is."""
    return {each["what"]: each["reason"] for each in index_of(files)["missing"]}


async def install_manager(client: KubeClient, namespace: str, directory: Path) -> None:
    """Make what looks like a manager: a program that ends once, and what belongs to it."""
    container = {
        "name": "manager",
        "image": "none",
        "command": ["sh", "-c", MANAGER, str(directory / "ran")],
        "env": [{"name": "MANAGER_TOKEN", "value": PLANTED}],
    }
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    metadata = {"name": NAME, "namespace": namespace, "labels": LABELS}
    for kind, body in (
        (DEPLOYMENTS, {"spec": {"selector": {"matchLabels": LABELS}, "template": template}}),
        (SERVICES, {"spec": {"selector": LABELS, "ports": [{"port": 443, "targetPort": 9443}]}}),
        (LEASES, {"spec": {"holderIdentity": "somebody"}}),
        (SECRETS, {"stringData": {"tls.key": PLANTED}}),
        (CONFIGMAPS, {"data": {"controller_manager_config.yaml": CONFIGURATION, "other": PLANTED}}),
    ):
        await client.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **body})

    async def restarted() -> bool:
        pods = (await client.list(PODS, namespace, label_selector="app.kubernetes.io/component=manager"))["items"]
        statuses = [each for pod in pods for each in pod["status"].get("containerStatuses") or ()]
        return any(each.get("restartCount") and "running" in each["state"] for each in statuses)

    await until(restarted)


@pytest.mark.nightly
async def test_it_has_what_a_maintainer_needs_and_no_secret(mine: Team, tmp_path: Path) -> None:
    job = mine.manifest("demo", f"echo {PLANTED}; exit 3")
    job["spec"]["trainer"] |= {
        "args": ["--token", PLANTED],
        "env": [{"name": "WANDB_API_KEY", "value": PLANTED}, {"name": "GREETING", "value": "good morning"}],
    }
    applied = {"kubectl.kubernetes.io/last-applied-configuration": orjson.dumps(job).decode()}
    job["metadata"]["annotations"] = {**applied, "example.com/note": f"the key is {PLANTED}"}
    await mine.client.create(TRAINJOBS, job)
    await mine.client.create(TRAINJOBS, mine.manifest("other", "true"))
    await install_manager(mine.client, mine.name, tmp_path)
    await mine.condition("demo", "Failed")
    await mine.condition("other", "Complete")

    done = await mine.cli("support-bundle", "-m", mine.name)
    path = tmp_path / "trainmaster-support-bundle.tar.gz"
    assert (done.code, done.out) == (0, "")
    first, *_, last = done.err.splitlines()
    assert first.startswith("trainmaster-support-bundle.tar.gz: ")
    assert last == "look through it before you pass it on: a program cannot know all that is confidential"
    assert path.stat().st_mode & 0o777 == 0o600

    files = read(path)
    token = (mine.kubeconfig.parent / "token").read_text().strip()
    for name, content in files.items():
        assert PLANTED.encode() not in content, name
        assert token.encode() not in content, name
        assert b"good morning" not in content, name
        assert b"managedFields" not in content, name
    assert list(files) == ["index.json", *sorted(files.keys() - {"index.json"})]
    index = index_of(files)
    assert {each["path"]: each["bytes"] for each in index["files"]} == {
        name: len(content) for name, content in files.items() if name != "index.json"
    }
    assert index["scope"] == {"jobs": [], "namespaces": [mine.name], "environmentValues": False}

    here = f"namespaces/{mine.name}"
    names = {each["metadata"]["name"] for each in items(files, f"{here}/trainjobs.trainer.kubeflow.org.json")}
    assert names == {"demo", "other"}
    for kind in ("jobsets.jobset.x-k8s.io", "jobs.batch", "pods", "events.events.k8s.io"):
        assert items(files, f"{here}/{kind}.json"), kind
    (explanation,) = orjson.loads(files[f"{here}/explanations.json"])
    assert (explanation["job"]["name"], explanation["causes"][0]["cause"]) == ("demo", "ContainerFailed")

    assert orjson.loads(files["versions.json"])["kubernetes"].startswith("v1.")
    assert "trainjobs.trainer.kubeflow.org" in files["cluster/definitions.json"].decode()
    assert items(files, "cluster/clustertrainingruntimes.trainer.kubeflow.org.json")
    assert items(files, "cluster/validatingwebhookconfigurations.admissionregistration.k8s.io.json")
    assert items(files, "cluster/nodes.json")

    there = f"manager/{mine.name}"
    checks = {each["check"] for each in orjson.loads(files[f"{there}/doctor.json"])}
    assert checks >= {"kubernetes", "definitions", "leases"}
    for kind in ("deployments.apps", "services", "leases.coordination.k8s.io", "endpointslices.discovery.k8s.io"):
        assert items(files, f"{there}/{kind}.json"), kind
    config_maps = {each["metadata"]["name"]: each["data"] for each in items(files, f"{there}/configmaps.json")}
    assert config_maps[NAME]["other"] == f"[left out: {len(PLANTED)} characters]"
    assert orjson.loads(files[f"{there}/configuration.json"])["inEffect"]["webhook"]["port"] == 9444
    assert orjson.loads(files[f"{there}/configuration.given.json"])["plugins"]["options"] == {
        "acme": {"endpoint": "[redacted]"}
    }
    assert not [name for name in files if "secret" in name]
    (log,) = [name for name in files if name.startswith(f"{there}/logs/") and name.endswith("/manager.log")]
    assert log.startswith(f"{there}/logs/{NAME}-")
    assert b"using [redacted]\n" in files[log]
    assert b"the second run" in files[log]
    assert b"the first run" in files[log.replace(".log", ".previous.log")]
    # What runs in the place of a manager here serves nothing.
    (why,) = [reason for what, reason in lacking(files).items() if what.endswith("/metrics.txt")]
    assert "503" in why

    # The embedded cluster has more to tell than its API.
    assert b"cluster is started" in files["embedded/cluster.log"]
    assert b"starting" in files["embedded/manager.log"]
    assert b"controller_runtime_reconcile_total" in files["embedded/metrics.txt"]
    assert orjson.loads(files["embedded/configuration.json"])["inEffect"]["metrics"]["secureServing"] is False

    # Of a long log there is the end, from a whole line on.
    most = Bundle(datetime.now(UTC), log_bytes=50)
    files = await gathered(mine.kubeconfig, most=most, namespace=[mine.name], manager_namespace=mine.name)
    (line,) = files[log].decode().splitlines()
    assert line.endswith("Z the second run")
    (listed,) = [each for each in index_of(files)["files"] if each["path"] == log]
    assert listed["remark"].startswith("the last 50 bytes of ")

    done = await mine.cli("support-bundle", "demo", "-o", "one.tar.gz", "--env-values", code=0)
    files = read(tmp_path / "one.tar.gz")
    (only,) = items(files, f"{here}/trainjobs.trainer.kubeflow.org.json")
    assert only["spec"]["trainer"]["env"] == [
        {"name": "WANDB_API_KEY", "value": "[redacted]"},
        {"name": "GREETING", "value": "good morning"},
    ]
    assert {each["metadata"]["name"] for each in items(files, f"{here}/jobsets.jobset.x-k8s.io.json")} == {"demo"}
    abouts = [each["regarding"]["name"] for each in items(files, f"{here}/events.events.k8s.io.json")]
    assert abouts
    assert all(each.startswith("demo") for each in abouts)
    assert PLANTED.encode() not in b"".join(files.values())

    refused = await mine.cli("support-bundle", "demo", "-o", "one.tar.gz")
    assert (refused.code, refused.err) == (
        2,
        "trainmaster: one.tar.gz exists; --force replaces it, -o FILE writes elsewhere\n",
    )
    assert (await mine.cli("support-bundle", "nobody", "-o", "x")).code == 2


async def gathered(kubeconfig: Path, *, most: Bundle | None = None, **given: Any) -> dict[str, bytes]:
    """What the command gathers, asked in this process."""
    defaults: dict[str, Any] = {"jobs": [], "namespace": None, "manager_namespace": None, "env_values": False}
    arguments = argparse.Namespace(**{**defaults, "kubeconfig": str(kubeconfig), **given})
    bundle, redactor = most or Bundle(datetime.now(UTC)), Redactor()
    await gather(arguments, bundle, redactor, token="")
    return dict(bundle.written(redactor))


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with api_server(tmp_path, rbac=True) as stack:
        yield stack


@pytest.mark.nightly
async def test_what_may_not_be_read_is_listed_with_the_reason(stack: Stack, tmp_path: Path) -> None:
    kubeconfig = await kubeconfig_of(stack, tmp_path, "nobody", namespace="team")
    done = await trainmaster("support-bundle", "--kubeconfig", kubeconfig, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    files = read(tmp_path / "trainmaster-support-bundle.tar.gz")
    assert set(files) >= {"index.json", "versions.json", "manager/kubeflow/doctor.json"}
    found = lacking(files)
    assert found["trainjobs.trainer.kubeflow.org of all namespaces"] == (
        "you have no right to list them; only namespace team was looked at"
    )
    for what in (
        "trainjobs.trainer.kubeflow.org in namespace team",
        "pods in namespace team",
        "nodes",
        "deployments.apps in namespace kubeflow",
    ):
        assert found[what] == "you have no right to list it", what
    assert "you have no right to get it" in found.values()
    assert found["the namespace of the manager"].endswith("kubeflow was looked at, see -m")


async def test_a_big_cluster_makes_no_big_bundle(stack: Stack, tmp_path: Path) -> None:
    for number in range(25):
        await stack.client.create(TRAINJOBS, trainjob(f"job-{number:02}"))
    kubeconfig = next(tmp_path.rglob("kubeconfig"))
    files = await gathered(kubeconfig, most=Bundle(datetime.now(UTC), most_objects=10))
    path = "namespaces/default/trainjobs.trainer.kubeflow.org.json"
    assert [each["metadata"]["name"] for each in items(files, path)] == [f"job-{number:02}" for number in range(10)]
    (listed,) = [each for each in index_of(files)["files"] if each["path"] == path]
    assert listed["remark"] == "the first 10; 15 more are there"
    assert index_of(files)["limits"]["objectsOfAKind"] == 10

    files = await gathered(kubeconfig, most=Bundle(datetime.now(UTC), most_bytes=8000))
    assert sum(len(content) for name, content in files.items() if name != "index.json") < 20_000
    assert "and the bundle 8000 at most; name jobs or namespaces" in lacking(files)[path]


async def piped(tmp_path: Path, target: int) -> tuple[int | None, bytes]:
    """Write the archive of the cluster to a file descriptor; returns the exit code and what was said."""
    code = (sys.executable, "-m", "trainmaster.controller.cli", "support-bundle", "-o", "-")
    process = await asyncio.create_subprocess_exec(
        *(*code, "--kubeconfig", str(next(tmp_path.rglob("kubeconfig")))),
        stdout=target,
        stderr=asyncio.subprocess.PIPE,
        cwd=tmp_path,
    )
    os.close(target)
    _, err = await process.communicate()
    return process.returncode, err


@pytest.mark.nightly
async def test_standard_output_gets_the_archive_and_nothing_else(stack: Stack, tmp_path: Path) -> None:
    path = tmp_path / "piped.tar.gz"
    assert await piped(tmp_path, os.open(path, os.O_WRONLY | os.O_CREAT)) == (0, b"")
    assert "versions.json" in read(path)
    # A reader who goes away is no traceback.
    source, target = os.pipe()
    os.close(source)
    assert await piped(tmp_path, target) == (141, b"")


async def test_a_cluster_that_does_not_answer_costs_what_it_would_have_told(tmp_path: Path) -> None:
    write_kubeconfig(tmp_path / "nowhere", "http://127.0.0.1:9")
    files = await gathered(tmp_path / "nowhere")
    assert list(files) == ["index.json", "versions.json"]
    assert "Cannot connect" in lacking(files)["the cluster"] or "refused" in lacking(files)["the cluster"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("-n", "No"), "trainmaster: --namespace 'No' cannot be a name: "),
        (("-m", "No"), "trainmaster: --manager-namespace 'No' cannot be a name: "),
        (("demo", "-n", "a", "-n", "b"), "trainmaster: jobs are named in one namespace; give -n once, or no jobs"),
        (("-o", "no/x.gz"), "trainmaster: no/x.gz cannot be written: there is no directory no"),
        (("-o", "."), "trainmaster: . is a directory; give the name of a file in it: "),
        (("--kubeconfig", "missing"), "trainmaster: "),
        (("--token-file", "t"), "trainmaster: --token-file takes -m: "),
        (("-m", "a", "--token-file", "t"), "trainmaster: --token-file t cannot be read: "),
        ((), "trainmaster: "),
    ],
)
async def test_what_is_wrong_is_told_in_a_line(tmp_path: Path, arguments: tuple[str, ...], error: str) -> None:
    done = await trainmaster("support-bundle", *arguments, cwd=tmp_path, HOME=str(tmp_path))
    assert done.code in (1, 2)
    assert done.err.startswith(error)
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) == 1 or not arguments
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
async def test_an_embedded_cluster_that_is_down_leaves_its_logs(tmp_path: Path) -> None:
    home = tmp_path / ".trainmaster"
    home.mkdir()
    (home / "cluster.log").write_text(f"password={PLANTED}\nit ended\n")
    done = await trainmaster("support-bundle", cwd=tmp_path)
    assert done.code == 0, done.err
    files = read(tmp_path / "trainmaster-support-bundle.tar.gz")
    assert "embedded/manager.log" not in files
    assert files["embedded/cluster.log"] == b"password=[redacted]\nit ended\n"
    assert lacking(files)["the cluster"] == "the embedded cluster of .trainmaster does not run"
    assert lacking(files)[".trainmaster/manager.log"] == "it does not exist"


def test_no_archive_goes_to_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "configure_logs", lambda **_: None)  # for the whole process otherwise
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["support-bundle", "-o", "-"]) == 2
    assert capsys.readouterr().err == (
        "trainmaster: the archive is nothing for a terminal: redirect standard output, or name a file with -o\n"
    )
