"""What is started for a container."""

from __future__ import annotations

import pytest

from trainmaster.devcluster.kubelet.container import PodRejectedError
from trainmaster.devcluster.kubelet.container_config import command_of
from trainmaster.runtime.jsontree import JsonObject


def test_command_is_followed_by_arguments() -> None:
    assert command_of({"name": "c", "command": ["a"], "args": ["b"]}) == ["a", "b"]


@pytest.mark.parametrize("container", [{"args": ["x"]}, {"command": []}, {"command": None}])
def test_without_a_command_the_image_would_have_to_be_known(container: JsonObject) -> None:
    with pytest.raises(PodRejectedError, match="set `command` in the container") as caught:
        command_of({"name": "c", "image": "repo/img:1", **container})
    assert caught.value.reason == "ImageEntrypointUnknown"
    assert "repo/img:1" in caught.value.message
