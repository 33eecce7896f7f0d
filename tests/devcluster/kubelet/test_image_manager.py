"""Images that cannot exist, with the words that kubelet and containerd have for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from support.commands import eventually
from support.node import Node, sh

from trainmaster.devcluster.kubelet.image_manager import ImageManager, ImagePullError
from trainmaster.devcluster.kubelet.kubelet import Kubelet
from trainmaster.runtime.jsontree import JsonObject

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
    attempts = [second for second, reason in enumerate(seen) if reason == "ErrImagePull"]
    assert attempts == [0, 2, 6]
