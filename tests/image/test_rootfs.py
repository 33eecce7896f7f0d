"""The root file system of the image, made where there is no engine, and the manager that runs from it.

`make image-rootfs` runs this, and nothing else does: it takes root, and most of a minute.
"""

import asyncio
import base64
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from support.debian import ROOT, read_dockerfile
from support.processes import account_token
from support.stack import Stack, api_server
from support.training import apply_runtime, runtime, trainjob, until

from trainmaster.controller.kube.rest.resources import Resource
from trainmaster.controller.resources import JOBSETS, TRAINJOBS
from trainmaster.runtime.version import __version__

VARIABLE = "TRAINMASTER_IMAGE_ROOTFS"

pytestmark = [
    pytest.mark.skipif(not os.environ.get(VARIABLE), reason="takes root and a minute; `make image-rootfs` runs it"),
    pytest.mark.timeout(900),
]

IMAGE = read_dockerfile()
ADDED = "usr/local/lib/trainmaster"
BUDGET = 75_000_000
"""Bytes of files that may be added to the base image; docs/image.md."""

NOT_POSSIBLE = 77
SECRETS = Resource("", "v1", "Secret", "secrets", namespaced=True)
WEBHOOKS = {
    kind: Resource("admissionregistration.k8s.io", "v1", kind, f"{kind.lower()}s", namespaced=False)
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
}

FILE = "/controller_manager_config.yaml"


def configuration(ports: Callable[[], int], health: int) -> dict[str, Any]:
    """That of deploy/base, but for the ports, which are this machine's."""
    document: dict[str, Any] = yaml.safe_load((ROOT / "deploy/base/controller_manager_config.yaml").read_text())
    document["health"]["healthProbeBindAddress"] = f"127.0.0.1:{health}"
    document["metrics"]["bindAddress"] = f"127.0.0.1:{ports()}"
    document["webhook"]["port"] = ports()
    document["statusServer"]["port"] = ports()
    return document


PLUGIN = """
from collections.abc import Iterator

class Mine:
    name = "mine"

    def build(self, info, job, listers):
        yield from ()
"""


@dataclass(frozen=True)
class Rootfs:
    """A root file system, and what a pod adds to it."""

    path: Path
    volumes: Path
    health: int
    """The port of its probes."""

    def command(self, *words: str) -> list[str]:
        script = ROOT / "hack/image/run_rootfs.sh"
        return [str(script), str(self.path), IMAGE.user, str(self.volumes), *words]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), env=IMAGE.environment, capture_output=True, text=True, check=False, timeout=60
        )


def build(directory: Path) -> Path:
    command = [str(ROOT / "hack/image/build_rootfs.sh"), sys.executable, str(directory)]
    # The cache of pip makes no difference to what is installed, but to how long that takes.
    done = subprocess.run(
        command, env={**os.environ, "PIP_NO_CACHE_DIR": ""}, capture_output=True, text=True, check=False
    )
    if done.returncode == NOT_POSSIBLE:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("image")
    directory.chmod(0o755)
    for above in directory.parents[:2]:
        above.chmod(0o755)  # pytest's directories are nobody else's
    yield build(directory / "rootfs")
    shutil.rmtree(directory)


@pytest.fixture
def rootfs(built: Path, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]) -> Rootfs:
    (tmp_path / "serviceaccount").mkdir()
    health = unused_tcp_port_factory()
    file = tmp_path / FILE.removeprefix("/")
    file.write_text(yaml.safe_dump(configuration(unused_tcp_port_factory, health)))
    return Rootfs(built, tmp_path, health)


def entries(top: Path) -> dict[str, tuple[int, int, str]]:
    """Mode, time and content of everything in a directory."""
    found = {}
    for path in sorted(top.rglob("*")):
        status = path.lstat()
        content = b""
        if stat.S_ISLNK(status.st_mode):
            content = str(path.readlink()).encode()
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        found[str(path.relative_to(top))] = status.st_mode, int(status.st_mtime), hashlib.sha256(content).hexdigest()
    return found


async def make_what_it_manages(stack: Stack) -> None:
    """Make the Secret and the webhook configurations of deploy/, in the namespace default."""
    secret = yaml.safe_load((ROOT / "deploy/base/secret.yaml").read_text())
    secret["metadata"]["namespace"] = "default"
    await stack.client.create(SECRETS, secret)
    for configuration in yaml.safe_load_all((ROOT / "deploy/webhooks/webhooks.yaml").read_text()):
        for webhook in configuration["webhooks"]:
            webhook["clientConfig"]["service"]["namespace"] = "default"
        await stack.client.create(WEBHOOKS[configuration["kind"]], configuration)


@asynccontextmanager
async def running(rootfs: Rootfs, stack: Stack) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the image's entry point as a pod does: with a token, the configuration, and the address of the server."""
    kubeconfig = yaml.safe_load((rootfs.volumes / "cluster/kubeconfig").read_text())
    authority = base64.b64decode(kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"])
    account = rootfs.volumes / "serviceaccount"
    (account / "ca.crt").write_bytes(authority)
    (account / "token").write_text(await account_token(stack.client, "manager"))
    (account / "namespace").write_text("default")
    await make_what_it_manages(stack)
    host, _, port = stack.access.server.removeprefix("https://").partition(":")
    process = await asyncio.create_subprocess_exec(
        *rootfs.command(*IMAGE.entrypoint, f"--config={FILE}"),
        env={**IMAGE.environment, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def is_ready(rootfs: Rootfs) -> bool:
    url = f"http://127.0.0.1:{rootfs.health}/readyz"
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def test_the_manager_runs_unprivileged_from_a_read_only_tree(rootfs: Rootfs) -> None:
    before = entries(rootfs.path / ADDED)
    async with api_server(rootfs.volumes) as stack:
        # Before there are webhooks: the API server finds no Service here.
        await apply_runtime(stack.client, runtime())
        await stack.client.create(TRAINJOBS, trainjob("from-the-image"))
        async with running(rootfs, stack) as process:
            log = await the_life_of(process, rootfs, stack)
    assert [line for line in log if line["level"] == "error"] == []
    assert [line["event_loop"] for line in log if line["event"] == "starting"] == ["uvloop"]
    assert entries(rootfs.path / ADDED) == before


async def the_life_of(process: asyncio.subprocess.Process, rootfs: Rootfs, stack: Stack) -> list[dict[str, Any]]:
    """See a manager become ready, look at it, see it do its work and end; returns what it has logged."""

    async def jobsets() -> list[str]:
        found = await stack.client.list(JOBSETS, "default")
        return [item["metadata"]["name"] for item in found["items"]]

    async def ready_or_ended() -> bool:
        return process.returncode is not None or await is_ready(rootfs)

    assert process.stdout is not None
    await until(ready_or_ended)
    assert process.returncode is None, (await process.stdout.read()).decode()
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert status["Uid"].split() == ["65532"] * 4
    assert status["Gid"].split() == ["65532"] * 4
    assert status["Groups"].strip() in {"", "65532"}
    assert [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")] == [0, 0, 0, 0]
    assert status["NoNewPrivs"] == "1"
    assert await until(jobsets) == ["from-the-image"]
    process.send_signal(signal.SIGTERM)
    output, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, output.decode()
    return [json.loads(line) for line in output.decode().splitlines()]


def test_the_tree_cannot_be_written_to(rootfs: Rootfs) -> None:
    writing = "import sys; open(sys.argv[1], 'w')"
    for path in ("/x", "/usr/local/lib/trainmaster/x", "/etc/passwd"):
        done = rootfs.run("python", "-c", writing, path)
        assert "Read-only file system" in done.stderr, (path, done.stderr)
    assert rootfs.run("python", "-c", writing, "/tmp/x").returncode == 0


def test_the_command_line_says_what_it_lacks(rootfs: Rootfs) -> None:
    assert rootfs.run("trainmaster", "--version").stdout == f"trainmaster {__version__}\n"
    overview = rootfs.run("trainmaster", "--help")
    assert (overview.returncode, overview.stderr) == (0, "")
    assert not re.search(r"^ +cluster ", overview.stdout, re.MULTILINE)
    for command in (["crds"], ["config", "check", FILE], ["rbac", "--config", FILE]):
        done = rootfs.run("trainmaster", *command)
        assert done.returncode == 0, done.stderr
    away = rootfs.run("trainmaster", "doctor", "--kubeconfig", "/away")
    assert away.stderr.startswith("trainmaster: "), away.stderr
    cluster = rootfs.run("trainmaster", "cluster", "up")
    assert (cluster.returncode, cluster.stdout) == (1, "")
    assert cluster.stderr.startswith("trainmaster: the command 'cluster' needs the embedded cluster, which is not part")


def test_it_has_what_the_lock_pins_and_no_embedded_cluster(rootfs: Rootfs) -> None:
    (packages,) = (rootfs.path / ADDED / "lib").glob("python3*/site-packages")
    installed = {path.name.partition("-")[0] for path in packages.glob("*.dist-info")}
    lock = (ROOT / "hack/image/requirements.txt").read_text()
    pinned = {name.replace("-", "_") for name in re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE)}
    assert {name.lower().replace("-", "_") for name in installed} <= {"trainmaster", *pinned}
    assert {path.name for path in (packages / "trainmaster").iterdir()} == {
        "controller",
        "metrics",
        "plugins",
        "report.py",
        "runtime",
    }
    assert [path for path in packages.rglob("*") if path.name in {"tests", "__pycache__"}] == []


def test_modules_are_compiled_whatever_the_time_of_their_files(rootfs: Rootfs) -> None:
    """A tree that is read-only could not keep what was compiled later."""
    compiled = list((rootfs.path / ADDED / "pycache").rglob("*.pyc"))
    assert any("trainmaster/controller/cli/manager" in str(path) for path in compiled)
    assert any("/asyncio/" in str(path) for path in compiled)
    unchecked = 0b01
    assert {int.from_bytes(path.read_bytes()[4:8], "little") for path in compiled} == {unchecked}
    script = (
        "import sys, os; import trainmaster.controller.cli.manager; "
        "print([m.__name__ for m in list(sys.modules.values()) if getattr(m, '__cached__', None)"
        " and not os.path.exists(m.__cached__) and m.__name__ != '__main__'])"
    )
    assert rootfs.run("python", "-c", script).stdout == "[]\n"


def test_it_is_within_its_budget(rootfs: Rootfs, capsys: pytest.CaptureFixture[str]) -> None:
    files = [path.lstat().st_size for path in (rootfs.path / ADDED).rglob("*") if path.is_file()]
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6) as out, tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(rootfs.path / ADDED, ADDED)
    report = f"{sum(files) / 1e6:.1f} MB in {len(files)} files, {len(packed.getvalue()) / 1e6:.1f} MB compressed"
    with capsys.disabled():
        sys.stdout.write(f"\nthe image adds {report}\n")
    assert sum(files) <= BUDGET


def test_the_same_sources_make_the_same_files(rootfs: Rootfs, tmp_path: Path) -> None:
    once, again = entries(rootfs.path / ADDED), entries(build(tmp_path / "again") / ADDED)
    assert {path for path in once.keys() | again.keys() if once.get(path) != again.get(path)} == set()


def test_a_derived_image_brings_a_plugin(rootfs: Rootfs, tmp_path: Path) -> None:
    """By the instruction that docs/image.md shows."""
    (example,) = re.findall(
        r"^FROM trainmaster.*?(?=^```)", (ROOT / "docs/image.md").read_text(), re.MULTILINE | re.DOTALL
    )
    lines = dict(line.split(maxsplit=1) for line in example.splitlines() if line.startswith(("RUN", "COPY")))
    assert example.splitlines()[-1] == f"USER {IMAGE.user}"
    name, directory = lines["COPY"].split()
    derived = replace(rootfs, path=tmp_path / "derived")
    shutil.copytree(rootfs.path, derived.path, symlinks=True)
    with zipfile.ZipFile(f"{derived.path}{directory}{name}", "w") as wheel:
        info = "my_plugin-1.0.dist-info"
        wheel.writestr("my_plugin.py", PLUGIN)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/entry_points.txt", "[trainmaster.plugins]\nmine = my_plugin:Mine\n")
        wheel.writestr(f"{info}/RECORD", "")
    chroot = shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert chroot is not None
    installed = subprocess.run(
        [chroot, derived.path, *json.loads(lines["RUN"])],
        env=IMAGE.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert installed.returncode == 0, installed.stderr
    script = (
        "from trainmaster.runtime.framework import load_plugins; print(*(plugin.name for plugin in load_plugins()))"
    )
    done = derived.run("python", "-c", script)
    assert {"mine", "jobset", "torch"} <= set(done.stdout.split()), done.stderr
