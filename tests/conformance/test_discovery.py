"""Discovery: what a server says it serves, in both forms, and OpenAPI."""

import pytest
from support.commands import eventually
from support.conformance import Client
from support.samples import GROUP

from trainmaster.runtime.jsontree import JsonObject

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

SERVED = [
    ("v1", "namespaces", "Namespace", False, ["ns"]),
    ("v1", "pods", "Pod", True, ["po"]),
    ("v1", "configmaps", "ConfigMap", True, ["cm"]),
    ("v1", "secrets", "Secret", True, []),
    ("v1", "services", "Service", True, ["svc"]),
    ("v1", "serviceaccounts", "ServiceAccount", True, ["sa"]),
    ("v1", "events", "Event", True, ["ev"]),
    ("v1", "nodes", "Node", False, ["no"]),
    ("v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, ["pvc"]),
    ("v1", "limitranges", "LimitRange", True, ["limits"]),
    ("batch/v1", "jobs", "Job", True, []),
    ("coordination.k8s.io/v1", "leases", "Lease", True, []),
    ("events.k8s.io/v1", "events", "Event", True, ["ev"]),
    ("apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", False, ["crd", "crds"]),
    ("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", False, ["pc"]),
    ("node.k8s.io/v1", "runtimeclasses", "RuntimeClass", False, []),
    ("rbac.authorization.k8s.io/v1", "roles", "Role", True, []),
    ("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", False, []),
]


def _root(group_version: str) -> str:
    return f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"


async def _resource(client: Client, group_version: str, name: str) -> JsonObject:
    found = (await client.send("GET", _root(group_version))).ok(200)["resources"]
    entry: JsonObject = next(each for each in found if each["name"] == name)
    return entry


async def _aggregated(client: Client, path: str, group: str) -> JsonObject:
    items = (await client.send("GET", path, accept=AGGREGATED)).ok(200)["items"]
    item: JsonObject = next(each for each in items if each["metadata"].get("name", "") == group)
    return item


@pytest.mark.parametrize("served", SERVED, ids=lambda served: f"{served[0]}/{served[1]}")
async def test_resources_are_listed_with_names(client: Client, served: tuple[str, str, str, bool, list[str]]) -> None:
    group_version, plural, kind, namespaced, short = served
    entry = await _resource(client, group_version, plural)
    assert (entry["kind"], entry["namespaced"], entry["singularName"]) == (kind, namespaced, kind.lower())
    assert entry.get("shortNames", []) == short
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(entry["verbs"])


async def test_each_level_has_a_document_of_its_own(client: Client) -> None:
    document = (await client.send("GET", "/api")).ok(200)
    assert (document["kind"], document["versions"]) == ("APIVersions", ["v1"])
    assert document["serverAddressByClientCIDRs"]
    assert (await client.send("GET", "/api/v1")).ok(200)["groupVersion"] == "v1"
    document = (await client.send("GET", "/apis/batch")).ok(200)
    assert (document["kind"], document["apiVersion"], document["name"]) == ("APIGroup", "v1", "batch")
    assert document["preferredVersion"]["version"] == "v1"
    document = (await client.send("GET", "/apis/batch/v1")).ok(200)
    assert (document["kind"], document["groupVersion"]) == ("APIResourceList", "batch/v1")


async def test_the_groups_are_listed_with_their_preferred_versions(client: Client) -> None:
    document = (await client.send("GET", "/apis")).ok(200)
    assert (document["kind"], document["apiVersion"]) == ("APIGroupList", "v1")
    assert "authorization.k8s.io" in {group["name"] for group in document["groups"]}
    batch = next(group for group in document["groups"] if group["name"] == "batch")
    assert batch["preferredVersion"] == {"groupVersion": "batch/v1", "version": "v1"}
    assert {"groupVersion": "batch/v1", "version": "v1"} in batch["versions"]


@pytest.mark.parametrize(
    ("group_version", "name", "verbs"),
    [
        ("v1", "pods/status", {"get", "patch", "update"}),
        ("v1", "pods/log", {"get"}),
        ("v1", "namespaces/status", {"get", "patch", "update"}),
        ("v1", "namespaces/finalize", {"update"}),
        ("batch/v1", "jobs/status", {"get", "patch", "update"}),
    ],
)
async def test_subresources_have_entries_too(client: Client, group_version: str, name: str, verbs: set[str]) -> None:
    assert set((await _resource(client, group_version, name))["verbs"]) == verbs


async def test_namespaces_cannot_be_deleted_as_a_collection(client: Client) -> None:
    assert "deletecollection" not in (await _resource(client, "v1", "namespaces"))["verbs"]
    (await client.send("DELETE", "/api/v1/namespaces", labelSelector="no=such")).refused(405, "MethodNotAllowed")


async def test_pods_belong_to_the_category_all(client: Client) -> None:
    assert (await _resource(client, "v1", "pods"))["categories"] == ["all"]


@pytest.mark.parametrize(("path", "group"), [("/api", ""), ("/apis", "batch")])
async def test_aggregated_discovery_describes_all_groups_at_once(client: Client, path: str, group: str) -> None:
    answer = await client.send("GET", path, accept=f"{AGGREGATED},application/json")
    document = answer.ok(200)
    assert (document["kind"], document["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    assert group in {item["metadata"].get("name", "") for item in document["items"]}
    # Clients take the answer for the older form unless the media type says otherwise.
    parameters = {part.strip() for part in answer.headers["Content-Type"].split(";")}
    assert parameters >= {"application/json", "g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"}


async def test_aggregated_discovery_describes_resources_with_scope_and_subresources(client: Client) -> None:
    version = next(each for each in (await _aggregated(client, "/api", ""))["versions"] if each["version"] == "v1")
    assert version["freshness"] == "Current"
    resources = {each["resource"]: each for each in version["resources"]}
    pods = resources["pods"]
    assert pods["responseKind"]["kind"] == "Pod"
    assert (pods["scope"], pods["singularResource"], pods["shortNames"]) == ("Namespaced", "pod", ["po"])
    assert "status" in {each["subresource"] for each in pods["subresources"]}
    assert resources["nodes"]["scope"] == "Cluster"


@pytest.mark.parametrize("accept", ["application/json", AGGREGATED])
async def test_discovery_is_not_sent_again_to_who_has_it(client: Client, accept: str) -> None:
    first = await client.send("GET", "/api", accept=accept)
    if "ETag" not in first.headers:
        # Tolerance: only the aggregated form needs a tag.
        assert accept == "application/json"
        return
    again = await client.send("GET", "/api", accept=accept, headers={"If-None-Match": first.headers["ETag"]})
    assert again.status == 304
    assert again.body == b""


async def test_a_custom_resource_is_discoverable(client: Client, widget_definition: JsonObject) -> None:
    async def listed() -> bool:
        return (await client.send("GET", f"/apis/{GROUP}/v1")).status == 200

    await eventually(listed)
    entry = await _resource(client, f"{GROUP}/v1", "widgets")
    assert (entry["kind"], entry["singularName"], entry["namespaced"]) == ("Widget", "widget", True)
    assert set(entry["verbs"]) >= {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
    assert set((await _resource(client, f"{GROUP}/v1", "widgets/status"))["verbs"]) == {"get", "patch", "update"}


async def test_a_custom_resource_is_in_the_aggregated_discovery(client: Client, widget_definition: JsonObject) -> None:
    async def listed() -> bool:
        items = (await client.send("GET", "/apis", accept=AGGREGATED)).ok(200)["items"]
        return GROUP in {item["metadata"]["name"] for item in items}

    await eventually(listed)
    version = (await _aggregated(client, "/apis", GROUP))["versions"][0]
    assert version["resources"][0]["responseKind"] == {"group": GROUP, "version": "v1", "kind": "Widget"}


async def test_the_version_is_that_of_a_recent_server(client: Client) -> None:
    version = (await client.send("GET", "/version")).ok(200)
    assert version["major"] == "1"
    assert int(version["minor"].rstrip("+")) >= 31
    assert version["gitVersion"].startswith("v1.")


@pytest.mark.parametrize("check", ["healthz", "livez", "readyz"])
async def test_a_healthy_server_says_ok(client: Client, check: str) -> None:
    answer = await client.send("GET", f"/{check}", accept="*/*")
    assert (answer.status, answer.body) == (200, b"ok")


@pytest.mark.parametrize("check", ["livez", "readyz"])
async def test_a_verbose_health_check_lists_its_parts(client: Client, check: str) -> None:
    text = (await client.send("GET", f"/{check}", accept="*/*", verbose="true")).body.decode()
    assert "[+]ping ok" in text
    assert f"{check} check passed" in text


async def test_openapi_lists_the_documents_of_the_group_versions(client: Client) -> None:
    paths = (await client.send("GET", "/openapi/v3")).ok(200)["paths"]
    assert {"api/v1", "apis/batch/v1"} <= paths.keys()
    assert paths["api/v1"]["serverRelativeURL"].startswith("/openapi/v3/api/v1?hash=")


async def test_openapi_has_the_schema_of_a_built_in_kind_and_says_that_fields_are_validated(client: Client) -> None:
    """Clients leave validation to a server whose PATCH operation has the parameter `fieldValidation`."""
    document = (await client.send("GET", "/openapi/v3/apis/batch/v1")).ok(200)
    path = document["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs/{name}"]
    kind = {"group": "batch", "version": "v1", "kind": "Job"}
    assert path["patch"]["x-kubernetes-group-version-kind"] == kind
    assert "fieldValidation" in {parameter["name"] for parameter in path["patch"]["parameters"]}
    schemas = document["components"]["schemas"]
    assert "parallelism" in schemas["io.k8s.api.batch.v1.JobSpec"]["properties"]
    assert kind in schemas["io.k8s.api.batch.v1.Job"]["x-kubernetes-group-version-kind"]


async def test_openapi_has_the_schema_of_a_custom_resource(client: Client, widget_definition: JsonObject) -> None:
    async def published() -> JsonObject | None:
        answer = await client.send("GET", f"/openapi/v3/apis/{GROUP}/v1")
        return answer.json if answer.status == 200 else None

    document = await eventually(published)
    assert document is not None
    kind = {"group": GROUP, "version": "v1", "kind": "Widget"}
    schemas = document["components"]["schemas"].values()
    schema = next(each for each in schemas if kind in each.get("x-kubernetes-group-version-kind", ()))
    assert schema["properties"]["spec"]["properties"]["color"]["enum"] == ["red", "green"]


async def test_a_document_may_be_kept_under_its_hash(client: Client) -> None:
    """It is not sent again to who has it, and the address of an older one leads to the present one."""
    address = (await client.send("GET", "/openapi/v3")).ok(200)["paths"]["apis/batch/v1"]["serverRelativeURL"]
    path, _, tag = address.partition("?hash=")
    answer = await client.send("GET", path, hash=tag)
    assert answer.status == 200
    assert "immutable" in answer.headers["Cache-Control"]
    again = await client.send("GET", path, hash=tag, headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")
    assert (await client.send("GET", path, hash="0" * 128)).json["info"] == answer.json["info"]
