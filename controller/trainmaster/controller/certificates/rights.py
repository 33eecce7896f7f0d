"""Whether certificates are for us to make, of which webhook configurations, and the rights that this needs.

Guarantee: nothing here reads a certificate. A manager that makes none does not load the library for them, which is an
eighth of its memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.controller.certificates.webhook_names import CONFIGURATIONS, JOB_VALIDATOR, ConfigurationName
from trainmaster.controller.configuration import Configuration, needs_certificates
from trainmaster.controller.kube.rest.policyrule import TRAINING_OPERATOR, PolicyRule
from trainmaster.controller.kube.rest.resources import SECRETS


def manages_certificates(configuration: Configuration, *, status_server: bool) -> bool:
    """Tell whether certificates are for us to make, and anything is served with one."""
    return configuration.cert_management.enable and needs_certificates(configuration, status_server=status_server)


def policy_rules(configuration: Configuration, *, namespace: str) -> Iterator[PolicyRule]:
    """The rights that this needs.

    Args:
        configuration: The configuration file.
        namespace: That of the manager's pod.
    """
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
