"""What is started for a container."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from trainmaster.devcluster.kubelet.container import PodRejectedError
from trainmaster.devcluster.kubelet.container_config import command_of
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
