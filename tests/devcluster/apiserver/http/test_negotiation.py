"""What requests ask for: paths, methods, formats."""

import pytest

from trainmaster.devcluster.apiserver.http.negotiation import (
    OBJECT,
    YAML,
    MediaTypeOptions,
    negotiate_media_type,
    prefers_yaml,
)
from trainmaster.devcluster.apiserver.http.request_info import parse_request_info

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


@pytest.mark.parametrize(
    ("accept", "expected"),
    [("application/yaml", True), ("application/json, application/yaml", False), ("text/html", False), ("", False)],
)
def test_yaml_is_for_those_who_prefer_it(accept: str, expected: bool) -> None:
    assert prefers_yaml(accept) is expected


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/apis/batch/v1", "/healthz", "/api/v1//pods", "/apis//v1/pods"]
)
def test_other_paths_name_nothing(path: str) -> None:
    assert parse_request_info(path) is None
