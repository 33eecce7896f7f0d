"""Refusals: the codes, reasons and details of Status objects, which clients act on."""

import pytest
from support.conformance import Client, Collection
from support.samples import GROUP, configmap, secret, widget


async def test_a_missing_object_is_named_by_its_resource_and_group(
    configmaps: Collection, leases: Collection, widgets: Collection
) -> None:
    status = (await configmaps.get("none")).refused(404, "NotFound")
    assert status["message"] == 'configmaps "none" not found'
    assert status["details"] == {"name": "none", "kind": "configmaps"}
    assert status["metadata"] == {}
    for collection, kind, group in ((leases, "leases", "coordination.k8s.io"), (widgets, "widgets", GROUP)):
        status = (await collection.get("none")).refused(404, "NotFound")
        assert status["message"] == f'{kind}.{group} "none" not found'
        assert status["details"] == {"name": "none", "group": group, "kind": kind}


async def test_an_invalid_custom_resource_is_named_by_kind_and_group(widgets: Collection) -> None:
    status = (await widgets.create(widget("a", size=101))).refused(422, "Invalid")
    assert status["message"].startswith(f'Widget.{GROUP} "a" is invalid: spec.size: Invalid value: 101: ')
    details = status["details"]
    assert (details["group"], details["kind"], details["name"]) == (GROUP, "Widget", "a")


@pytest.mark.parametrize("path", ["/no/such/path", "/apis/no.such.group/v1/things"])
async def test_an_unknown_path_or_group_is_plain_text(client: Client, path: str) -> None:
    answer = await client.send("GET", path)
    assert (answer.status, answer.body.strip()) == (404, b"404 page not found")


async def test_an_unknown_resource_of_a_known_group_is_a_status(client: Client) -> None:
    status = (await client.send("GET", "/api/v1/nothings")).refused(404, "NotFound")
    assert status["message"] == "the server could not find the requested resource"


async def test_an_unknown_subresource_is_not_found(configmaps: Collection) -> None:
    await configmaps.made(configmap("a"))
    assert (await configmaps.get("a", subresource="status")).status == 404


async def test_answers_are_not_for_shared_caches(configmaps: Collection) -> None:
    """Nor do they say what the server is made of."""
    for answer in (await configmaps.list(), await configmaps.get("none")):
        assert answer.headers["Cache-Control"] == "no-cache, private"
        assert "Server" not in answer.headers


@pytest.mark.parametrize(("method", "name"), [("POST", "a"), ("PUT", ""), ("PATCH", ""), ("OPTIONS", "a")])
async def test_a_verb_that_a_path_lacks_is_not_allowed(configmaps: Collection, method: str, name: str) -> None:
    path = f"{configmaps.path}/{name}" if name else configmaps.path
    (await configmaps.client.send(method, path, configmap("a"))).refused(405, "MethodNotAllowed")


async def test_creating_outside_of_a_namespace_is_not_allowed(client: Client) -> None:
    answer = await client.send("POST", "/api/v1/configmaps", configmap("a", namespace="default"))
    answer.refused(405, "MethodNotAllowed")


async def test_a_body_that_is_no_such_object_is_a_bad_request(configmaps: Collection, secrets: Collection) -> None:
    for body in (b"{not json", b"", secret("a")):
        (await configmaps.create(body)).refused(400, "BadRequest")
    (await secrets.create(secret("a", data={"key": "%%%"}))).refused(400, "BadRequest")
    status = (await configmaps.create(configmap("a", {"key": 5}))).refused(400, "BadRequest")
    assert 'ConfigMap in version "v1" cannot be handled as a ConfigMap' in status["message"]
    status = (await configmaps.create({**configmap("a"), "apiVersion": "v2"})).refused(400, "BadRequest")
    assert "v2" in status["message"]


@pytest.mark.parametrize("field", ["apiVersion", "kind"])
async def test_a_custom_resource_must_say_what_it_is(widgets: Collection, field: str) -> None:
    obj = {name: value for name, value in widget("a").items() if name != field}
    (await widgets.create(obj)).refused(400, "BadRequest")


async def test_a_body_of_an_unknown_media_type_is_refused(configmaps: Collection) -> None:
    answer = await configmaps.create(b"a", content_type="text/plain")
    assert "application/json" in answer.refused(415, "UnsupportedMediaType")["message"]


async def test_a_patch_of_an_unknown_media_type_is_refused(configmaps: Collection, widgets: Collection) -> None:
    await configmaps.made(configmap("a"))
    status = (await configmaps.patch("a", {}, form="application/json")).refused(415, "UnsupportedMediaType")
    assert status["message"] == "415: Unsupported Media Type"
    await widgets.made(widget("a"))
    status = (await widgets.patch("a", {}, form="application/json")).refused(415, "UnsupportedMediaType")
    assert "application/merge-patch+json" in status["message"]


async def test_a_body_of_more_than_three_mebibytes_is_too_large(configmaps: Collection) -> None:
    body = b'{"metadata":{"name":"a"},"data":{"k":"%s"}}' % (b"x" * (3 * 1024 * 1024 + 1))
    (await configmaps.create(body)).refused(413, "RequestEntityTooLarge")


async def test_an_unknown_token_is_unauthorized(configmaps: Collection) -> None:
    answer = await configmaps.client.send("GET", configmaps.path, headers={"Authorization": "Bearer wrong"})
    assert answer.refused(401, "Unauthorized")["message"] == "Unauthorized"
