"""The webhook configurations of Trainer, by name.

They are apart from what they have to trust, so that whoever only names them needs no library of certificates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.controller.kube.rest.resources import Resource

MUTATING: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
)
VALIDATING: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)


@dataclass(frozen=True, slots=True)
class ConfigurationName:
    """The kind and the name of a webhook configuration.

    Attributes:
        resource: The kind.
        name: The name, which is the original's.
        switch: The option without which it does not count.
        optional: Whether it may be absent, or somebody else's, without anything being wrong here.
    """

    resource: Resource
    name: str
    switch: str
    optional: bool = False

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.name}"


DEFAULTER: Final = ConfigurationName(MUTATING, "defaulter.trainer.kubeflow.org", "webhook.enabled")
VALIDATOR: Final = ConfigurationName(VALIDATING, "validator.trainer.kubeflow.org", "webhook.enabled")
JOB_VALIDATOR: Final = ConfigurationName(
    VALIDATING, "validator.training-operator.kubeflow.org", "trainingOperator.enabled", optional=True
)
"""Of the jobs of `kubeflow.org/v1`; until ours is applied over it, it is the Training Operator's."""

CONFIGURATIONS: Final = (DEFAULTER, VALIDATOR, JOB_VALIDATOR)
"""The only objects that are ever written."""
