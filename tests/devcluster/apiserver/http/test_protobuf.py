"""Protobuf bodies: the JSON form of the same object comes out, or a refusal that helps."""

from typing import Any

import pytest
from support.devcluster.envtest import Environment

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.http.protobuf import decode_protobuf
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    encoded = b""
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """Encode fields by number; numbers as varints, everything else with its length."""
    encoded = b""
    for number, value in fields:
        if isinstance(value, int):
            encoded += varint(number << 3) + varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            encoded += varint(number << 3 | 2) + varint(len(content)) + content
    return encoded


def body(api_version: str, kind: str, content: bytes) -> bytes:
    return b"k8s\0" + message((1, message((1, api_version), (2, kind))), (2, content), (3, ""), (4, ""))


def metadata(name: str) -> bytes:
    """Encode metadata as Go does: plain fields are there even when they are not set."""
    return message((1, name), (2, ""), (3, ""), (4, ""), (5, ""), (6, ""), (7, 0), (8, b""))


def test_fields_that_go_writes_but_nobody_set_are_left_out() -> None:
    decoded = decode_protobuf(body("v1", "ConfigMap", message((1, metadata("a")))))
    assert decoded == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


def test_maps_bytes_and_pointers() -> None:
    entry = message((1, "k"), (2, b"\xff"))
    secret = message((1, metadata("s")), (2, entry), (3, "Opaque"), (5, 0))
    decoded = decode_protobuf(body("v1", "Secret", secret))
    assert decoded["data"] == {"k": "/w=="}
    assert decoded["type"] == "Opaque"
    assert decoded["immutable"] is False, "a pointer to false is not the same as no pointer"


def test_embedded_messages_and_special_types() -> None:
    """Volumes embed their source; quantities, ports, verbs and times are messages that JSON writes as plain values."""
    volume = message((1, "v"), (2, message((2, message((1, "Memory"), (2, message((1, "1Gi"))))))))
    http_get = message((1, "/x"), (2, message((1, 1), (2, 0), (3, "web"))), (3, ""), (4, ""))
    container = message((1, "c"), (2, "i"), (10, message((1, message((2, http_get))), (2, 0), (6, 3))))
    spec = message((1, volume), (2, container), (5, -5))
    meta = message((1, "p"), (8, message((1, 1_700_000_000), (2, 5))))
    pod = decode_protobuf(body("v1", "Pod", message((1, meta), (2, spec))))
    assert pod["metadata"]["creationTimestamp"] == "2023-11-14T22:13:20Z"
    assert pod["spec"]["volumes"] == [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]
    assert pod["spec"]["activeDeadlineSeconds"] == -5
    probe_decoded = {"httpGet": {"path": "/x", "port": "web"}, "failureThreshold": 3}
    assert pod["spec"]["containers"] == [{"name": "c", "image": "i", "livenessProbe": probe_decoded}]


def test_options_and_groups_are_found_by_their_kind() -> None:
    options = decode_protobuf(body("batch/v1", "DeleteOptions", message((1, 0), (4, "Background"))))
    assert options["propagationPolicy"] == "Background"
    assert options["gracePeriodSeconds"] == 0
    rule = message((1, "get"), (2, ""), (3, "pods"))
    role = decode_protobuf(body("rbac.authorization.k8s.io/v1", "Role", message((1, metadata("r")), (2, rule))))
    assert role["rules"] == [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]


def test_fields_of_newer_clients_are_passed_over() -> None:
    content = message((1, metadata("a")), (1000, "new"), (1001, 7)) + varint(1002 << 3 | 1) + bytes(8)
    assert decode_protobuf(body("v1", "ConfigMap", content))["metadata"] == {"name": "a"}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", 400),
        (b"k8s\0\x0a\xff", 400),  # a length without its content
        (body("v1", "ConfigMap", b"\x0a\x05ab"), 400),
        (body("v1", "ConfigMap", message((1, 7))), 400),  # a number instead of metadata
        (body("v1", "ConfigMap", message((1, message((1, b"\xff"))))), 400),  # not UTF-8
        (body("v1", "ConfigMap", b"\xff" * 12), 400),
        (body("v1", "ConfigMap", b"\x0b"), 400),  # groups are long gone
        (body("apps/v1", "StatefulSet", b""), 415),
        (body("example.com/v1", "Thing", b""), 415),
    ],
)
def test_what_cannot_be_read_is_refused(content: bytes, code: int) -> None:
    with pytest.raises(StatusError) as refused:
        decode_protobuf(content)
    assert refused.value.code == code
    assert code == 400 or "kubectl create -f" in refused.value.message


async def test_a_server_stores_it(devcluster_server: Environment) -> None:
    content = body("v1", "ConfigMap", message((1, metadata("a")), (2, message((1, "k"), (2, "v")))))
    async with (
        devcluster_server.session() as session,
        session.post(
            "/api/v1/namespaces/default/configmaps",
            data=content,
            headers={"Content-Type": "application/vnd.kubernetes.protobuf", "Accept": "application/json"},
        ) as response,
    ):
        answer: Any = await response.json()
        assert (response.status, answer["data"]) == (201, {"k": "v"})
    assert devcluster_server.api.get(CONFIGMAPS, "default", "a")["data"] == {"k": "v"}
