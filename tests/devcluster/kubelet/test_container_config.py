"""What is started for a container, images that cannot exist, and what is said where a start fails."""

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.commands import eventually
from support.node import Node, sh

from trainmaster.devcluster.kubelet.container import PodRejectedError
from trainmaster.devcluster.kubelet.container_config import command_of, start_error
from trainmaster.devcluster.kubelet.image_manager import ImageManager, ImagePullError
from trainmaster.devcluster.kubelet.kubelet import Kubelet
from trainmaster.runtime.jsontree import JsonObject


def test_command_is_followed_by_arguments() -> None:
    assert command_of({"name": "c", "command": ["a"], "args": ["b"]}, {}) == ["a", "b"]


@pytest.mark.parametrize("container", [{"args": ["x"]}, {"command": []}, {"command": None}])
def test_without_a_command_the_image_would_have_to_be_known(container: JsonObject) -> None:
    with pytest.raises(PodRejectedError, match="set `command` in the container") as caught:
        command_of({"name": "c", "image": "repo/img:1", **container}, {})
    assert caught.value.reason == "ImageEntrypointUnknown"
    assert "repo/img:1" in caught.value.message


@pytest.mark.parametrize(
    "image",
    ["example.com:5000/team/web", "example.com:5000/team/web:1.2", "example.com:5000/team/web:1.2@sha256:0f", "web:1"],
)
def test_the_entrypoint_of_an_image_may_be_told(image: str) -> None:
    entrypoints = {"example.com:5000/team/web": ("serve",), "web:1": ("serve",), "web": ("other",)}
    assert command_of({"name": "c", "image": image, "args": ["--port", "1"]}, entrypoints) == ["serve", "--port", "1"]
    assert command_of({"name": "c", "image": image, "command": ["own"]}, entrypoints) == ["own"]


def test_the_entrypoint_of_another_image_stays_unknown() -> None:
    with pytest.raises(PodRejectedError, match="--entrypoint IMAGE=COMMAND"):
        command_of({"name": "c", "image": "example.com/other:1"}, {"example.com/web": ("serve",)})


@pytest.mark.nightly
@pytest.mark.parametrize("tag", ["", ":latest", ":v1.9.4"])
def test_the_init_container_of_mpijobs_brings_kubectl(tmp_path: Path, tag: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "bin" / "kubectl").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "kubectl").chmod(0o755)
    argv = command_of({"name": "c", "image": f"ghcr.io/kubeflow/training-v1/kubectl-delivery{tag}"}, {})
    path = {"TARGET_DIR": str(tmp_path / "target"), "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    subprocess.run(argv, env=path, check=True)
    assert os.access(tmp_path / "target" / "kubectl", os.X_OK)


@pytest.mark.nightly
def test_without_kubectl_it_says_what_is_missing(tmp_path: Path) -> None:
    argv = command_of({"name": "c", "image": "ghcr.io/kubeflow/training-v1/kubectl-delivery"}, {})
    shell = shutil.which("sh")
    assert shell is not None
    environment = {"TARGET_DIR": str(tmp_path), "PATH": str(tmp_path)}
    done = subprocess.run([shell, *argv[1:]], env=environment, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.startswith("an MPIJob needs kubectl, which is not on the search path")) == (
        1,
        True,
    )


FAILED = "unable to start container process: "
HERE = "containers run the programs of this machine"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (
            "torchrun",
            f"torchrun is not installed in the environment of the cluster: {sys.executable} -m pip install torch",
        ),
        ("pyhton", f"did you mean python? Images are not read here, {HERE}"),
        ("nonesuch", f"images are not read here, {HERE}"),
        ("python train.py", 'a command is a list of words: write ["python", "train.py"]'),
        ("torchrun --nnodes 2 train.py", 'a command is a list of words: write ["torchrun", "--nnodes", "2", ...]'),
    ],
)
def test_a_program_that_is_not_on_the_search_path(tmp_path: Path, program: str, expected: str) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    path = f"{tmp_path}/bin:/nowhere:"
    problem = f'exec: "{program}": executable file not found in $PATH'
    shown = start_error(problem, argv=[program, "--verbose"], search_path=path, own=tmp_path)
    assert shown == f"{FAILED}{problem}: {expected} (PATH is /nowhere:)"


def test_a_path_of_an_image_that_this_machine_does_not_have() -> None:
    problem = 'exec: "/opt/conda/bin/python": no such file or directory'
    shown = start_error(problem, argv=["/opt/conda/bin/python"], search_path="/bin", own=Path("/var"))
    assert shown == f"{FAILED}{problem}: images are not read here, {HERE}"


def test_what_has_nothing_to_do_with_programs_stays() -> None:
    shown = start_error("cannot mount at /proc/x", argv=["a"], search_path="", own=Path("/var"))
    assert shown == f"{FAILED}cannot mount at /proc/x"


IMAGE = "registry.invalid/team/trainer:1"
ERROR = (
    f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": failed to do request: Head '
    '"https://registry.invalid/v2/team/trainer/manifests/1": dial tcp: lookup registry.invalid: no such host'
)


def waiting(pod: JsonObject) -> JsonObject:
    found: JsonObject = pod["status"]["containerStatuses"][0]["state"].get("waiting") or {}
    return found


@pytest.mark.nightly
async def test_a_registry_that_cannot_exist_keeps_the_container_waiting(node: Node, kubelet: Kubelet) -> None:
    await node.create({**sh("true"), "image": IMAGE})
    pod = await node.reached(lambda pod: pod["status"].get("containerStatuses"))
    assert (pod["status"]["phase"], waiting(pod)) == ("Pending", {"reason": "ErrImagePull", "message": ERROR})
    pod = await node.reached(lambda pod: waiting(pod).get("reason") == "ImagePullBackOff")
    assert waiting(pod)["message"] == f'Back-off pulling image "{IMAGE}": ErrImagePull: {ERROR}'
    wanted = [
        ("Normal", "Pulling", f'Pulling image "{IMAGE}"'),
        ("Warning", "Failed", f'Failed to pull image "{IMAGE}": {ERROR}'),
        ("Warning", "Failed", "Error: ErrImagePull"),
        ("Normal", "BackOff", f'Back-off pulling image "{IMAGE}"'),
        ("Warning", "Failed", "Error: ImagePullBackOff"),
    ]
    await eventually(lambda: all(event in node.events() for event in wanted))


@pytest.mark.parametrize(
    "image",
    [
        "a",
        "python:3.13-slim",
        "localhost:5000/team/x@sha256:" + "a" * 64,
        "10.0.0.1:5000/x:v1_2",
        "registry.example.com/deep/er/path__x/y-z.w:T.1",
        "[::1]:5000/x",
        "invalid/x:1",
    ],
)
def test_any_other_image_will_do(image: str) -> None:
    ImageManager(backoff=1.0, clock=lambda: datetime.now(UTC)).ensure_image_exists(image)


@pytest.mark.parametrize("image", ["UPPER", "a b", "x:", "x@sha256:short", "/x", "http://x/y:1", "x:tag:tag"])
def test_what_is_no_reference(image: str) -> None:
    with pytest.raises(ImagePullError) as caught:
        ImageManager(backoff=1.0, clock=lambda: datetime.now(UTC)).ensure_image_exists(image)
    assert caught.value.reason == "InvalidImageName"


def test_the_pauses_between_two_attempts_grow() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    images = ImageManager(backoff=1.0, clock=lambda: now)
    seen = []
    for _ in range(12):
        with pytest.raises(ImagePullError) as caught:
            images.ensure_image_exists(IMAGE)
        seen.append(caught.value.reason)
        now += timedelta(seconds=1)
    assert [second for second, reason in enumerate(seen) if reason == "ErrImagePull"] == [0, 2, 6]
