"""Lists: pages, consistency, resource versions and selectors."""

import pytest
from support.conformance import Client, Collection, new_namespace
from support.samples import GROUP, configmap, job, pod, secret, widget


@pytest.fixture
async def five(configmaps: Collection) -> Collection:
    """Five ConfigMaps, `n0` to `n4`, beside whatever a real cluster puts into a namespace."""
    for index in range(5):
        await configmaps.made(configmap(f"n{index}", labels={"five": "yes", "index": str(index)}))
    return configmaps


async def test_a_list_names_its_kind_and_the_members_of_a_built_in_one_do_not(five: Collection) -> None:
    document = (await five.list(labelSelector="five")).ok(200)
    assert (document["kind"], document["apiVersion"]) == ("ConfigMapList", "v1")
    assert document["metadata"]["resourceVersion"].isdigit()
    assert not any({"kind", "apiVersion"} & item.keys() for item in document["items"])
    assert (await five.list(labelSelector="no=such")).ok(200)["items"] == []


async def test_the_members_of_a_custom_list_repeat_their_kind(widgets: Collection) -> None:
    await widgets.made(widget("a"))
    document = (await widgets.list()).ok(200)
    assert (document["kind"], document["apiVersion"]) == ("WidgetList", f"{GROUP}/v1")
    assert [(item["kind"], item["apiVersion"]) for item in document["items"]] == [("Widget", f"{GROUP}/v1")]


async def test_a_list_is_sorted_by_name(configmaps: Collection) -> None:
    for name in ("b", "c", "a"):
        await configmaps.made(configmap(name, labels={"l": "1"}))
    assert await configmaps.names(labelSelector="l") == ["a", "b", "c"]


async def test_a_list_shows_a_write_that_was_answered(configmaps: Collection) -> None:
    version = int((await configmaps.made(configmap("a")))["metadata"]["resourceVersion"])
    document = (await configmaps.list()).ok(200)
    assert "a" in [item["metadata"]["name"] for item in document["items"]]
    assert int(document["metadata"]["resourceVersion"]) >= version


async def test_a_namespace_that_does_not_exist_is_an_empty_list(client: Client) -> None:
    assert await client.collection("v1", "configmaps", "no-such-namespace").names() == []


async def test_all_namespaces_are_listed_at_once(client: Client, configmaps: Collection, namespace: str) -> None:
    async with new_namespace(client) as other:
        await configmaps.made(configmap("a", labels={"all": namespace}))
        await client.collection("v1", "configmaps", other).made(configmap("b", labels={"all": namespace}))
        items = (await client.collection("v1", "configmaps").list(labelSelector=f"all={namespace}")).ok(200)["items"]
        found = {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in items}
        assert found == {(namespace, "a"), (other, "b")}


async def test_a_list_comes_in_pages(five: Collection) -> None:
    names: list[str] = []
    sizes: list[int] = []
    token = ""
    while True:
        page = (await five.list(labelSelector="five", limit=2, **{"continue": token} if token else {})).ok(200)
        names += [item["metadata"]["name"] for item in page["items"]]
        sizes.append(len(page["items"]))
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert names == ["n0", "n1", "n2", "n3", "n4"]
    assert sizes == [2, 2, 1]


async def test_the_pages_of_a_list_show_one_state(five: Collection) -> None:
    first = (await five.list(labelSelector="five", limit=2)).ok(200)
    await five.made(configmap("n3a", labels={"five": "yes"}))
    await five.delete("n4")
    rest = (await five.list(labelSelector="five", limit=10, **{"continue": first["metadata"]["continue"]})).ok(200)
    assert [item["metadata"]["name"] for item in rest["items"]] == ["n2", "n3", "n4"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_page_tells_how_many_follow(widgets: Collection) -> None:
    for index in range(5):
        await widgets.made(widget(f"n{index}"))
    assert (await widgets.list(limit=2)).ok(200)["metadata"]["remainingItemCount"] == 3


async def test_a_page_of_a_selection_does_not_tell_how_many_follow(five: Collection) -> None:
    metadata = (await five.list(labelSelector="five", limit=2)).ok(200)["metadata"]
    assert metadata["continue"]
    assert "remainingItemCount" not in metadata
    assert not (await five.list(labelSelector="five", limit=5)).ok(200)["metadata"].get("continue"), "the last page"


async def test_a_token_that_is_none_and_what_is_no_number_are_refused(configmaps: Collection) -> None:
    """Tolerance: a version that is no number by 400, 422 or, in some versions, 500."""
    status = (await configmaps.list(limit=1, **{"continue": "nonsense"})).refused(400, "BadRequest")
    assert "continue key is not valid" in status["message"]
    (await configmaps.list(limit="many")).refused(400, "BadRequest")
    assert (await configmaps.list(resourceVersion="abc")).status in {400, 422, 500}


@pytest.mark.parametrize("version", ["", "0"])
async def test_any_version_is_good_enough(five: Collection, version: str) -> None:
    """Version 0 may be an older state; of objects that were there a moment ago it knows at least a part."""
    assert set(await five.names(labelSelector="five", resourceVersion=version)) <= {f"n{index}" for index in range(5)}


async def test_a_list_is_not_older_than_asked_for(five: Collection) -> None:
    version = (await five.made(configmap("n5", labels={"five": "yes"})))["metadata"]["resourceVersion"]
    document = (await five.list(labelSelector="five", resourceVersion=version, resourceVersionMatch="NotOlderThan")).ok(
        200
    )
    assert int(document["metadata"]["resourceVersion"]) >= int(version)
    assert len(document["items"]) == 6


async def test_an_exact_version_is_that_one_or_expired(five: Collection) -> None:
    """Tolerance: a server may have forgotten the state, and says so; it never shows another one."""
    version = (await five.list()).ok(200)["metadata"]["resourceVersion"]
    await five.delete("n0")
    answer = await five.list(labelSelector="five", resourceVersion=version, resourceVersionMatch="Exact")
    if answer.status == 410:
        answer.refused(410, "Expired")
        return
    document = answer.ok(200)
    assert document["metadata"]["resourceVersion"] == version
    assert len(document["items"]) == 5


async def test_a_version_of_the_future_is_refused(configmaps: Collection) -> None:
    """After a wait: the server may just be behind."""
    future = int((await configmaps.list()).ok(200)["metadata"]["resourceVersion"]) + 1_000_000
    status = (await configmaps.list(resourceVersion=future, resourceVersionMatch="NotOlderThan")).refused(
        504, "Timeout"
    )
    assert "Too large resource version" in status["message"]
    assert "ResourceVersionTooLarge" in {cause["reason"] for cause in status["details"]["causes"]}
    assert status["details"]["retryAfterSeconds"] >= 1


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"resourceVersionMatch": "Exact"}, "resourceVersionMatch"),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, "resourceVersionMatch"),
        ({"resourceVersionMatch": "Newest", "resourceVersion": "1"}, "resourceVersionMatch"),
        ({"sendInitialEvents": "true"}, "sendInitialEvents"),
    ],
)
async def test_options_that_do_not_fit_are_refused(configmaps: Collection, query: dict[str, str], field: str) -> None:
    assert field in {path for path, _ in (await configmaps.list(**query)).causes()}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("tier=a", ["x"]),
        ("tier==a", ["x"]),
        ("tier!=a", ["y", "z"]),
        ("tier in (a, b)", ["x", "y"]),
        ("tier notin (a,b)", ["z"]),
        ("tier", ["x", "y"]),
        ("!tier", ["z"]),
        ("number>5", ["y"]),
        ("number<5", ["x"]),
        ("tier=a,number=1", ["x"]),
        ("tier=a,number=9", []),
        ("empty=", ["z"]),
        ("example.com/key=v", ["z"]),
        ("tier in (a),tier notin (a)", []),
    ],
)
async def test_label_selectors(configmaps: Collection, selector: str, expected: list[str]) -> None:
    await configmaps.made(configmap("x", labels={"set": "1", "tier": "a", "number": "1"}))
    await configmaps.made(configmap("y", labels={"set": "1", "tier": "b", "number": "9"}))
    await configmaps.made(configmap("z", labels={"set": "1", "empty": "", "example.com/key": "v"}))
    assert await configmaps.names(labelSelector=f"set=1,{selector}") == expected


@pytest.mark.parametrize("selector", ["a in b", "a=b=c", "=a", "a b", "a in (", "!", "a=b c", "a>x"])
async def test_a_label_selector_that_cannot_be_read_is_a_bad_request(configmaps: Collection, selector: str) -> None:
    (await configmaps.list(labelSelector=selector)).refused(400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=x", ["x"]),
        ("metadata.name==x", ["x"]),
        ("metadata.name!=x", ["y"]),
        ("metadata.name=x,metadata.name=y", []),
    ],
)
async def test_field_selectors(configmaps: Collection, selector: str, expected: list[str]) -> None:
    for name in ("x", "y"):
        await configmaps.made(configmap(name, labels={"set": "1"}))
    assert await configmaps.names(labelSelector="set=1", fieldSelector=selector) == expected


async def test_objects_are_selected_by_namespace(client: Client, configmaps: Collection, namespace: str) -> None:
    await configmaps.made(configmap("a"))
    found = await client.collection("v1", "configmaps").names(
        fieldSelector=f"metadata.namespace={namespace},metadata.name=a"
    )
    assert found == ["a"]


async def test_an_unknown_field_of_a_plain_kind_is_a_bad_request(configmaps: Collection) -> None:
    status = (await configmaps.list(fieldSelector="data.x=1")).refused(400, "BadRequest")
    text = '"data.x" is not a known field selector: only "metadata.name", "metadata.namespace"'
    assert text in status["message"]


@pytest.mark.parametrize("collection", ["pods", "widgets"])
async def test_an_unknown_field_of_a_kind_with_fields_is_a_bad_request(
    request: pytest.FixtureRequest, pods: Collection, widgets: Collection, collection: str
) -> None:
    things = pods if collection == "pods" else widgets
    status = (await things.list(fieldSelector="spec.size=1")).refused(400, "BadRequest")
    assert "field label not supported: spec.size" in status["message"]


async def test_pods_are_selected_by_phase_node_and_policy(pods: Collection) -> None:
    await pods.made(pod("a", restartPolicy="Never"))
    for selector in ("status.phase=Pending", "spec.nodeName=", "spec.restartPolicy=Never", "spec.schedulerName=nobody"):
        assert await pods.names(fieldSelector=selector) == ["a"], selector
    assert await pods.names(fieldSelector="status.phase!=Pending") == []


async def test_secrets_are_selected_by_type(secrets: Collection) -> None:
    await secrets.made(secret("a", type="example.com/one"))
    await secrets.made(secret("b", type="example.com/two"))
    assert await secrets.names(fieldSelector="type=example.com/two") == ["b"]


async def test_jobs_are_selected_by_success(jobs: Collection) -> None:
    await jobs.made(job("a"))
    assert await jobs.names(fieldSelector="status.successful=0") == ["a"]


async def test_custom_resources_are_selected_by_the_fields_of_their_definition(widgets: Collection) -> None:
    """Tolerance: selectable fields are on by default since 1.31; where they are off the field is unknown."""
    await widgets.made(widget("a"))
    await widgets.made(widget("b", color="green"))
    answer = await widgets.list(fieldSelector="spec.color=green")
    if answer.status == 400:
        pytest.skip("the server has no selectable fields")
    assert [item["metadata"]["name"] for item in answer.ok(200)["items"]] == ["b"]
