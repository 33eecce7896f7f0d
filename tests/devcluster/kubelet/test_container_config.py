"""What is started for a container."""

from __future__ import annotations

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
