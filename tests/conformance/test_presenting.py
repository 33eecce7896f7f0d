"""Forms of an answer: tables, metadata only, and what a client accepts."""

import pytest
from support.conformance import Answer, Client, Collection
from support.samples import GROUP, configmap, pod, widget

from trainmaster.runtime.jsontree import JsonObject
from trainmaster.runtime.yamltext import load_yaml

YAML = "application/yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def _columns(table: JsonObject) -> list[str]:
    return [column["name"] for column in table["columnDefinitions"]]


def _row(table: JsonObject, index: int = 0) -> JsonObject:
    return dict(zip(_columns(table), table["rows"][index]["cells"], strict=True))


async def test_a_list_and_an_object_come_as_tables(configmaps: Collection) -> None:
    made = await configmaps.made(configmap("a", {"x": "1"}, labels={"l": "1"}))
    table = (await configmaps.list(accept=TABLE, labelSelector="l=1")).ok(200)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"]["resourceVersion"].isdigit()
    assert _columns(table) == ["Name", "Data", "Age"]
    name = table["columnDefinitions"][0]
    assert (name["name"], name["type"], name["format"], name["priority"]) == ("Name", "string", "name", 0)
    assert name["description"]
    assert (_row(table)["Name"], _row(table)["Data"]) == ("a", 1)
    [row] = table["rows"]
    assert (row["object"]["kind"], row["object"]["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert row["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert "data" not in row["object"]
    (await configmaps.list(accept=TABLE, includeObject="Everything")).refused(400, "BadRequest")
    table = (await configmaps.get("a", accept=TABLE)).ok(200)
    assert (table["kind"], len(table["rows"])) == ("Table", 1)


@pytest.mark.parametrize(
    ("include", "expected"), [("None", None), ("Metadata", "PartialObjectMetadata"), ("Object", "ConfigMap")]
)
async def test_what_a_row_has_is_up_to_the_client(configmaps: Collection, include: str, expected: str | None) -> None:
    await configmaps.made(configmap("a", labels={"l": "1"}))
    [row] = (await configmaps.list(accept=TABLE, labelSelector="l=1", includeObject=include)).ok(200)["rows"]
    assert (row.get("object") or {}).get("kind") == expected


async def test_a_table_comes_in_pages(widgets: Collection) -> None:
    for name in ("a", "b", "c"):
        await widgets.made(widget(name))
    first = (await widgets.list(accept=TABLE, limit=2)).ok(200)
    assert (len(first["rows"]), first["metadata"]["remainingItemCount"]) == (2, 1)
    rest = (await widgets.list(accept=TABLE, limit=2, **{"continue": first["metadata"]["continue"]})).ok(200)
    assert [_row(rest)["Name"], len(rest["rows"])] == ["c", 1]


async def test_a_custom_resource_shows_its_columns(widgets: Collection) -> None:
    await widgets.made(widget("a", size=5))
    table = (await widgets.list(accept=TABLE)).ok(200)
    assert _columns(table) == ["Name", "Size", "Color", "Ready"]
    assert _row(table) == {"Name": "a", "Size": 5, "Color": "red", "Ready": None}
    color = table["columnDefinitions"][2]
    assert (color["type"], color["description"], color["priority"]) == ("string", "The color", 1)
    conditions = [{"type": "Other", "status": "Unknown"}, {"type": "Ready", "status": "True"}]
    await widgets.patch("a", {"status": {"conditions": conditions}}, subresource="status")
    assert _row((await widgets.list(accept=TABLE)).ok(200))["Ready"] == "True"


async def test_a_pod_shows_its_state(pods: Collection) -> None:
    await pods.made(pod("a"))
    table = (await pods.list(accept=TABLE)).ok(200)
    assert _columns(table)[:5] == ["Name", "Ready", "Status", "Restarts", "Age"]
    row = _row(table)
    assert (row["Name"], row["Ready"], row["Status"]) == ("a", "0/1", "Pending")


async def test_a_watch_comes_as_tables(configmaps: Collection) -> None:
    """The columns are described once."""
    for name in ("a", "b"):
        await configmaps.made(configmap(name, labels={"l": "1"}))
    async with configmaps.watch(accept=TABLE, labelSelector="l=1") as stream:
        first, second = await stream.next(), await stream.next()
    assert (first["object"]["kind"], second["object"]["kind"]) == ("Table", "Table")
    assert _columns(first["object"]) == ["Name", "Data", "Age"]
    assert not second["object"]["columnDefinitions"]
    assert [len(event["object"]["rows"]) for event in (first, second)] == [1, 1]


async def test_only_the_metadata_of_an_object(widgets: Collection) -> None:
    made = await widgets.made(widget("a"))
    obj = (await widgets.get("a", accept=PARTIAL)).ok(200)
    assert obj.keys() == {"kind", "apiVersion", "metadata"}
    assert (obj["kind"], obj["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert obj["metadata"] == made["metadata"]


async def test_only_the_metadata_of_a_list_and_a_watch(configmaps: Collection) -> None:
    await configmaps.made(configmap("a", {"x": "1"}, labels={"l": "1"}))
    document = (await configmaps.list(accept=PARTIAL_LIST, labelSelector="l=1")).ok(200)
    assert (document["kind"], document["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert [item["metadata"]["name"] for item in document["items"]] == ["a"]
    assert "data" not in document["items"][0]
    async with configmaps.watch(accept=PARTIAL, labelSelector="l=1") as stream:
        obj = (await stream.next())["object"]
    assert (obj["kind"], obj["metadata"]["name"]) == ("PartialObjectMetadata", "a")
    assert "data" not in obj


@pytest.mark.parametrize(
    "accept",
    [
        "*/*",
        "application/json",
        "application/json, */*",
        f"{TABLE.replace('v1', 'v9')},application/json",
        "application/json;q=0.5",
    ],
)
async def test_plain_json_is_what_most_clients_get(configmaps: Collection, accept: str) -> None:
    await configmaps.made(configmap("a"))
    answer = await configmaps.get("a", accept=accept)
    assert answer.ok(200)["kind"] == "ConfigMap"
    assert answer.headers["Content-Type"] == "application/json"


async def test_the_first_form_that_is_served_wins(configmaps: Collection) -> None:
    await configmaps.made(configmap("a"))
    assert (await configmaps.get("a", accept=f"{TABLE},application/json")).ok(200)["kind"] == "Table"
    assert (await configmaps.get("a", accept=f"application/json,{TABLE}")).ok(200)["kind"] == "ConfigMap"


async def test_a_custom_resource_is_never_protobuf(widgets: Collection) -> None:
    await widgets.made(widget("a"))
    answer = await widgets.get("a", accept="application/vnd.kubernetes.protobuf,application/json")
    assert answer.ok(200)["apiVersion"] == f"{GROUP}/v1"


def _yaml(answer: Answer, status: int = 200) -> JsonObject:
    assert answer.status == status, answer.body
    assert answer.headers["Content-Type"] == "application/yaml"
    tree: JsonObject = load_yaml(answer.body)
    return tree


async def test_an_object_and_a_list_come_as_yaml(configmaps: Collection) -> None:
    made = await configmaps.made(configmap("a", {"x": "yes", "time": "2026-01-01T00:00:00Z"}, labels={"l": "1"}))
    assert _yaml(await configmaps.get("a", accept=YAML)) == made
    document = _yaml(await configmaps.list(accept=YAML, labelSelector="l=1"))
    assert (document["kind"], [item["metadata"]["name"] for item in document["items"]]) == ("ConfigMapList", ["a"])


async def test_what_was_written_comes_as_yaml(widgets: Collection) -> None:
    assert _yaml(await widgets.create(widget("a"), accept=YAML), 201) == await widgets.read("a")
    assert _yaml(await widgets.patch("a", {"spec": {"size": 7}}, accept=YAML))["spec"]["size"] == 7
    assert _yaml(await widgets.delete("a", accept=YAML))["status"] == "Success"


async def test_a_refusal_comes_as_yaml(configmaps: Collection, widgets: Collection) -> None:
    for collection in (configmaps, widgets):
        status = _yaml(await collection.get("none", accept=YAML), 404)
        assert (status["kind"], status["reason"]) == ("Status", "NotFound")


@pytest.mark.parametrize("path", ["/api", "/apis", "/api/v1", "/apis/batch", "/apis/batch/v1"])
async def test_discovery_comes_as_yaml(client: Client, path: str) -> None:
    plain = (await client.send("GET", path)).ok(200)
    assert _yaml(await client.send("GET", path, accept=YAML)) == plain


async def test_a_watch_does_not_come_as_yaml(configmaps: Collection) -> None:
    answer = await configmaps.list(accept=YAML, watch="true", timeoutSeconds=1)
    assert "application/json;stream=watch" in _yaml(answer, 406)["message"]


@pytest.mark.parametrize("accept", ["text/html", "application/*"])
async def test_what_cannot_be_served_is_not_acceptable(configmaps: Collection, accept: str) -> None:
    await configmaps.made(configmap("a"))
    message = (await configmaps.get("a", accept=accept)).refused(406, "NotAcceptable")["message"]
    assert message.startswith("406: Not Acceptable")
    offered = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    assert message.endswith(f"Available representations: {offered}")


async def test_what_cannot_be_served_of_a_list_is_not_acceptable(configmaps: Collection, widgets: Collection) -> None:
    """The representations of a list hold those of a watch; a custom one comes for any application type."""
    message = (await configmaps.list(accept="text/html")).refused(406, "NotAcceptable")["message"]
    assert "application/json;stream=watch" in message
    message = (await widgets.list(accept="text/html")).refused(406, "NotAcceptable")["message"]
    assert message.startswith("only the following media types are accepted: application/json, application/yaml")
    assert (await widgets.list(accept="application/*")).ok(200)["kind"] == "WidgetList"
