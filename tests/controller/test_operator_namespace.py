"""The namespace that the manager runs in."""

from __future__ import annotations

import pytest

from trainmaster.controller.operator_namespace import operator_namespace


def test_outside_of_a_cluster_the_namespace_is_that_of_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    monkeypatch.delenv("MY_POD_NAMESPACE", raising=False)
    assert operator_namespace() == "kubeflow-system"


def test_the_pod_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "kubeflow")
    assert operator_namespace() == "kubeflow"


def test_a_deployment_of_the_training_operator_says_it_by_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    monkeypatch.setenv("MY_POD_NAMESPACE", "kubeflow")
    assert operator_namespace() == "kubeflow"
