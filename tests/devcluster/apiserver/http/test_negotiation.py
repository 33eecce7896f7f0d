"""What a client accepts, without a server."""

from __future__ import annotations

import pytest

from trainmaster.devcluster.apiserver.errors import StatusError
from trainmaster.devcluster.apiserver.http.negotiation import (
    OBJECT,
    YAML,
    MediaTypeOptions,
    accepts_aggregated_discovery,
    check_representations,
    negotiate_media_type,
    prefers_yaml,
)

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


@pytest.mark.parametrize("accept", ["application/vnd.kubernetes.protobuf", "text/html", "application/json;as=Chart"])
def test_a_client_that_accepts_nothing_of_ours_is_refused(accept: str) -> None:
    with pytest.raises(StatusError) as refusal:
        negotiate_media_type(accept)
    assert refusal.value.code == 406


def test_aggregated_discovery_is_given_to_those_who_prefer_it() -> None:
    v2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    beta = v2.replace("v=v2", "v=v2beta1")
    assert accepts_aggregated_discovery(f"{v2},{beta},application/json") == "v2"
    assert accepts_aggregated_discovery(f"{beta},application/json") == "v2beta1"
    assert accepts_aggregated_discovery(f"application/json,{v2}") is None
    assert accepts_aggregated_discovery("") is None


def test_a_watch_is_never_yaml() -> None:
    assert negotiate_media_type("application/yaml, application/json;stream=watch", watching=True) == OBJECT
    with pytest.raises(StatusError, match="application/json;stream=watch"):
        negotiate_media_type("application/yaml", watching=True)


@pytest.mark.parametrize("accept", ["", "*/*", "text/html, */*;q=0.1", "application/yaml", "application/json;as=Chart"])
def test_routes_lead_to_media_types_by_name(accept: str) -> None:
    check_representations(accept, collection=False)


def test_routes_know_no_family_of_media_types() -> None:
    with pytest.raises(StatusError, match="Available representations: application/json, application/yaml, "):
        check_representations("application/*", collection=True)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [("application/yaml", True), ("application/json, application/yaml", False), ("text/html", False), ("", False)],
)
def test_yaml_is_for_those_who_prefer_it(accept: str, expected: bool) -> None:
    assert prefers_yaml(accept) is expected
