"""Paths of requests without the names in them."""

from __future__ import annotations

import pytest

from trainmaster.controller.tracing.requests import url_template


@pytest.mark.parametrize(
    ("path", "template", "namespace"),
    [
        ("/api/v1/namespaces/team/pods/p/log", "/api/v1/namespaces/{namespace}/pods/{name}/log", "team"),
        ("/api/v1/namespaces/team/configmaps", "/api/v1/namespaces/{namespace}/configmaps", "team"),
        ("/api/v1/namespaces/team", "/api/v1/namespaces/{name}", ""),
        ("/api/v1/pods", "/api/v1/pods", ""),
        (
            "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/demo/status",
            "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}/status",
            "team",
        ),
        (
            "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch",
            "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/{name}",
            "",
        ),
        ("/apis/kubeflow.org/v1", "/apis/kubeflow.org/v1", ""),
        ("/version", "/version", ""),
        ("/", "/", ""),
    ],
)
def test_names_of_objects_become_placeholders(path: str, template: str, namespace: str) -> None:
    assert url_template(path) == (template, namespace)
