"""The webhook configurations of Trainer, by name: which count, and the rights that it takes to keep them trusted.

Guarantee: nothing here reads a certificate. A manager that makes none does not load the library for them, which is an
eighth of its memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainmaster.controller.kube.rest.resources import SECRETS, Resource
from trainmaster.controller.policyrule import TRAINING_OPERATOR, PolicyRule

if TYPE_CHECKING:
    from trainmaster.controller.configuration import Configuration

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


def policy_rules(configuration: Configuration, *, namespace: str) -> Iterator[PolicyRule]:
    """The rights that this needs."""
    yield PolicyRule(
        resource=SECRETS,
        verbs=("get", "list", "watch", "patch"),
        needed_by="certManagement",
        reason="keep the certificates of the webhooks",
        names=(configuration.cert_management.webhook_secret_name,),
        namespace=namespace,
    )
    for each in webhook_configurations(configuration):
        yield PolicyRule(
            resource=each.resource,
            verbs=("list", "watch", "patch"),
            needed_by="certManagement",
            reason="tell the API server by which authority it knows the webhooks",
            names=(each.name,),
            role=TRAINING_OPERATOR if each == JOB_VALIDATOR else "",
        )


def webhook_configurations(configuration: Configuration) -> list[ConfigurationName]:
    """Return the webhook configurations that count."""
    if not configuration.webhook.enabled:
        return []
    has_jobs = configuration.training_operator.enabled
    return [each for each in CONFIGURATIONS if each != JOB_VALIDATOR or has_jobs]
