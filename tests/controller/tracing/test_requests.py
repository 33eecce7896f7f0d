"""Paths of requests without the names in them."""

from __future__ import annotations

from trainmaster.controller.tracing.requests import url_template


def test_names_of_objects_become_placeholders() -> None:
    trainer = "/apis/trainer.kubeflow.org/v1alpha1"
    status = f"{trainer}/namespaces/{{namespace}}/trainjobs/{{name}}/status"
    for path, template, namespace in (
        ("/api/v1/namespaces/team/pods/p/log", "/api/v1/namespaces/{namespace}/pods/{name}/log", "team"),
        ("/api/v1/namespaces/team/configmaps", "/api/v1/namespaces/{namespace}/configmaps", "team"),
        ("/api/v1/namespaces/team", "/api/v1/namespaces/{name}", ""),
        ("/api/v1/pods", "/api/v1/pods", ""),
        (f"{trainer}/namespaces/team/trainjobs/demo/status", status, "team"),
        (f"{trainer}/clustertrainingruntimes/torch", f"{trainer}/clustertrainingruntimes/{{name}}", ""),
        ("/apis/kubeflow.org/v1", "/apis/kubeflow.org/v1", ""),
        ("/version", "/version", ""),
        ("/", "/", ""),
    ):
        assert url_template(path) == (template, namespace)
