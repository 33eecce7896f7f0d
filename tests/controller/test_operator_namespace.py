"""The namespace that the manager runs in."""

from __future__ import annotations

import pytest

from trainmaster.controller.operator_namespace import operator_namespace


def test_the_pod_or_a_deployment_of_the_training_operator_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of a cluster it is the namespace of the original."""
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    monkeypatch.delenv("MY_POD_NAMESPACE", raising=False)
    assert operator_namespace() == "kubeflow-system"
    monkeypatch.setenv("MY_POD_NAMESPACE", "kubeflow")
    assert operator_namespace() == "kubeflow"
    monkeypatch.setenv("POD_NAMESPACE", "trainer")
    assert operator_namespace() == "trainer"
