"""What the author of a sound pod is told."""

from __future__ import annotations

from typing import Any

import pytest
from support.podrules import container, pod_spec

from trainmaster.devcluster.apiserver.registry.core.pod_warnings import pod_warnings

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ARCH = 'deprecated since v1.14; use "kubernetes.io/arch" instead'
NULL = "a null labelSelector results in matching no pod"


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ({"nodeSelector": {"beta.kubernetes.io/arch": "amd64"}}, [f"nodeSelector[beta.kubernetes.io/arch]: {ARCH}"]),
        (
            {"topologySpreadConstraints": [{"topologyKey": "beta.kubernetes.io/arch"}]},
            [
                f"topologySpreadConstraints[0].topologyKey: beta.kubernetes.io/arch is {ARCH}",
                f"topologySpreadConstraints[0].labelSelector: {NULL}",
            ],
        ),
        (
            {"affinity": {"podAffinity": {REQUIRED: [{}]}}},
            [f"affinity.podAffinity.{REQUIRED}[0].labelSelector: {NULL}"],
        ),
        ({"hostAliases": [{"ip": "1.1.1.1"}] * 2}, ['hostAliases[1].ip: duplicate ip "1.1.1.1"']),
        (
            {"terminationGracePeriodSeconds": -1},
            ["terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"],
        ),
        (
            {"volumes": [{"name": "v", "glusterfs": {}}]},
            ["volumes[0].glusterfs: deprecated in v1.25, non-functional in v1.26+"],
        ),
        (
            {
                "volumes": [
                    {
                        "name": "v",
                        "projected": {
                            "sources": [
                                {"serviceAccountToken": {"path": "t"}},
                                {"secret": {"name": "s", "items": [{"key": "k", "path": "t"}]}},
                            ]
                        },
                    }
                ]
            },
            ['volumes[0].projected.sources.secrets[0]: has duplicated path with ServiceAccountToken "t"'],
        ),
        (
            {"containers": [container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}])]},
            [],
        ),
        (
            {"containers": [container(ports=[{"containerPort": 1}, {"containerPort": 1, "hostPort": 2}])]},
            ["containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]"],
        ),
        (
            {
                "containers": [
                    container(
                        ports=[
                            {"containerPort": 1, "hostPort": 2},
                            {"containerPort": 1, "hostPort": 2, "hostIP": "::1"},
                        ]
                    )
                ]
            },
            ["containers[0].ports[1]: dangerously ambiguous port definition with spec.containers[0].ports[0]"],
        ),
    ],
)
def test_what_is_legal_and_probably_meant_otherwise(fields: Any, texts: list[str]) -> None:
    assert pod_warnings({"spec": pod_spec(**fields)}) == [f"spec.{text}" for text in texts]


def test_warnings_about_a_template_name_its_place() -> None:
    text = 'non-functional in v1.16+; use the "priorityClassName" field instead'
    key = "scheduler.alpha.kubernetes.io/critical-pod"
    template = {"metadata": {"annotations": {key: ""}}, "spec": pod_spec(imagePullSecrets=[{}])}
    assert pod_warnings(template, "spec.template.") == [
        f"spec.template.metadata.annotations[{key}]: {text}",
        'spec.template.spec.imagePullSecrets[0].name: invalid empty name ""',
    ]
