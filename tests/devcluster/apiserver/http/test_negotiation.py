"""What requests ask for: paths, methods, formats."""

from __future__ import annotations

import pytest

from trainmaster.devcluster.apiserver.http.negotiation import (
    OBJECT,
    YAML,
    MediaTypeOptions,
    accepts_aggregated_discovery,
    negotiate_media_type,
    prefers_yaml,
)
from trainmaster.devcluster.apiserver.http.request_info import RequestInfo, parse_request_info

_KUBECTL_TABLES = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)


@pytest.mark.parametrize(
    ("accept", "shape"),
    [
        ("", OBJECT),
        ("*/*", OBJECT),
        ("application/json", OBJECT),
        ("application/vnd.kubernetes.protobuf,application/json", OBJECT),
        ("text/html, application/json;q=0.9", OBJECT),
        ("application/yaml;q=0.5, application/json", OBJECT),
        ("application/yaml", MediaTypeOptions(serializer=YAML)),
        ("application/yaml;as=Table;v=v1;g=meta.k8s.io", MediaTypeOptions("Table", "v1", YAML)),
        ("application/json;stream=watch, application/yaml", MediaTypeOptions(serializer=YAML)),
        (_KUBECTL_TABLES, MediaTypeOptions("Table", "v1")),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", MediaTypeOptions("Table", "v1beta1")),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", OBJECT),
        (
            'application/json; as="PartialObjectMetadata"; v=v1; g=meta.k8s.io',
            MediaTypeOptions("PartialObjectMetadata", "v1"),
        ),
    ],
)
def test_the_first_shape_that_can_be_made_wins(accept: str, shape: MediaTypeOptions) -> None:
    assert negotiate_media_type(accept) == shape


def test_aggregated_discovery_is_given_to_those_who_prefer_it() -> None:
    v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    beta = v2.replace("v=v2", "v=v2beta1")
    assert accepts_aggregated_discovery(f"{v2},{beta},application/json") == "v2"
    assert accepts_aggregated_discovery(f"{beta},application/json") == "v2beta1"
    assert accepts_aggregated_discovery(f"application/json,{v2}") is None
    assert accepts_aggregated_discovery("") is None


@pytest.mark.parametrize(
    ("accept", "expected"),
    [("application/yaml", True), ("application/json, application/yaml", False), ("text/html", False), ("", False)],
)
def test_yaml_is_for_those_who_prefer_it(accept: str, expected: bool) -> None:
    assert prefers_yaml(accept) is expected


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1/pods", RequestInfo("", "v1", "pods")),
        ("/api/v1/namespaces", RequestInfo("", "v1", "namespaces")),
        ("/api/v1/namespaces/a", RequestInfo("", "v1", "namespaces", name="a")),
        ("/api/v1/namespaces/a/finalize", RequestInfo("", "v1", "namespaces", name="a", subresource="finalize")),
        ("/api/v1/namespaces/a/status", RequestInfo("", "v1", "namespaces", name="a", subresource="status")),
        ("/api/v1/namespaces/a/pods", RequestInfo("", "v1", "pods", namespace="a")),
        ("/api/v1/namespaces/a/pods/p/log", RequestInfo("", "v1", "pods", "a", "p", "log")),
        ("/apis/batch/v1/namespaces/a/jobs/j", RequestInfo("batch", "v1", "jobs", "a", "j")),
        ("/api/v1/nodes/n/proxy/some/page", RequestInfo("", "v1", "nodes", name="n", subresource="proxy")),
        ("/apis/x.io/v1/things/a%2Fb", RequestInfo("x.io", "v1", "things", name="a/b")),
        ("/apis/x.io/v1/namespaces/status/things", RequestInfo("x.io", "v1", "things", namespace="status")),
    ],
)
def test_a_path_names_its_target(path: str, target: RequestInfo) -> None:
    assert parse_request_info(path) == target


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/apis/batch/v1", "/healthz", "/api/v1//pods", "/apis//v1/pods"]
)
def test_other_paths_name_nothing(path: str) -> None:
    assert parse_request_info(path) is None
