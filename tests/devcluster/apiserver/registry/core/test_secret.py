"""Secrets and ConfigMaps: keys, sizes and what a type promises."""

from __future__ import annotations

import base64

import pytest
from support.refusals import mistakes_of

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.registry.generic import Api, WriteOptions
from trainmaster.devcluster.apiserver.resources import CONFIGMAPS, SECRETS
from trainmaster.runtime.jsontree import JsonObject

BIG = 1024 * 1024


def secret(kind: str, **data: str) -> JsonObject:
    return {"metadata": {"name": "s"}, "type": kind, "stringData": data}


@pytest.mark.parametrize(
    ("obj", "mistakes"),
    [
        (secret("kubernetes.io/tls"), {("data[tls.crt]", "Required"), ("data[tls.key]", "Required")}),
        (secret("kubernetes.io/dockercfg"), {("data[.dockercfg]", "Required")}),
        (secret("kubernetes.io/dockercfg", **{".dockercfg": "[]"}), {("data[.dockercfg]", "Invalid")}),
        (
            secret("kubernetes.io/service-account-token"),
            {("metadata.annotations[kubernetes.io/service-account.name]", "Required")},
        ),
        (secret("Opaque", a="x" * (BIG + 1)), {("data", "TooLong")}),
    ],
)
async def test_a_secret_holds_what_its_type_promises(api: Api, obj: JsonObject, mistakes: set[tuple[str, str]]) -> None:
    with pytest.raises(StatusError) as caught:
        await api.create(SECRETS, obj, namespace="default")
    assert mistakes_of(caught.value) == mistakes


async def test_a_secret_may_be_as_big_as_a_real_one(api: Api) -> None:
    """The limit is on the bytes themselves, not on their encoded form."""
    await api.create(SECRETS, secret("Opaque", a="x" * BIG), namespace="default")
    binary = {"a": base64.b64encode(b"x" * BIG).decode()}
    await api.create(CONFIGMAPS, {"metadata": {"name": "c"}, "binaryData": binary}, namespace="default")
    with pytest.raises(StatusError) as caught:
        await api.create(
            CONFIGMAPS, {"metadata": {"name": "d"}, "binaryData": binary, "data": {"b": "x"}}, namespace="default"
        )
    assert mistakes_of(caught.value) == {("[]", "TooLong")}


async def test_a_tls_secret_without_a_certificate_is_taken_with_a_warning(api: Api) -> None:
    options = WriteOptions()
    obj = secret("kubernetes.io/tls", **{"tls.crt": "x", "tls.key": "y"})
    await api.create(SECRETS, obj, namespace="default", options=options)
    assert options.warnings == ["tls: failed to find any PEM data in certificate input"]
