"""Paths and methods, without a server."""

from __future__ import annotations

import pytest

from trainmaster.devcluster.apiserver.http.request_info import RequestInfo, parse_request_info, verb_of


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


@pytest.mark.parametrize(
    ("method", "named", "watching", "verb"),
    [
        ("GET", True, False, "get"),
        ("GET", False, False, "list"),
        ("GET", False, True, "watch"),
        ("GET", True, True, "watch"),
        ("POST", False, False, "create"),
        ("POST", True, False, None),
        ("PUT", True, False, "update"),
        ("PUT", False, False, None),
        ("PATCH", True, False, "patch"),
        ("DELETE", True, False, "delete"),
        ("DELETE", False, False, "deletecollection"),
        ("TRACE", True, False, None),
    ],
)
def test_a_method_becomes_a_verb(method: str, named: bool, watching: bool, verb: str | None) -> None:
    assert verb_of(method, named=named, watching=watching) == verb
