"""Checks of rights: those of whoever installs, and those of the manager's service account."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from trainmaster.controller.cli.doctor.facts import Facts, Review
from trainmaster.controller.cli.doctor.findings import Fact, Finding, fail, ok, warn
from trainmaster.controller.kube.rest.policyrule import VERBS
from trainmaster.controller.manager.roles import NAME

_ESCALATE: Final = "escalate"
"""The verb that lets somebody create roles with rights that he has not."""


def check_installer(facts: Facts) -> Iterator[Finding]:
    """The rights of whoever asks: do they suffice to install?"""
    missing = _missing({review: allowed for review, allowed in facts.may_install.items() if review[0] != _ESCALATE})
    if missing:
        yield fail(f"you may not {'; '.join(missing)}", "have somebody install who may, or ask for these rights")
    elif all(allowed.value for review, allowed in facts.may_install.items() if review[0] == _ESCALATE):
        yield ok("you may apply all that the manifests hold")
    else:
        yield warn(
            "you may apply all that the manifests hold, but roles only with rights that you have yourself",
            f"see that you have all of `trainmaster rbac -n {facts.target.namespace}`, or ask for `escalate` on roles",
        )


def check_service_account(facts: Facts) -> Iterator[Finding]:
    """The rights of the service account: do they suffice for this configuration and its plugins?"""
    namespace = facts.target.namespace
    if facts.service_account.value is None:
        yield ok(f"the service account {namespace}/{NAME} is not there yet; the manifests bring it and its roles")
        return
    missing = missing_rights(facts)
    if missing:
        yield warn(
            f"the service account {namespace}/{NAME} may not {'; '.join(missing)}",
            f"apply our roles, with --config and --feature-gates if you gave them: trainmaster rbac -n {namespace} | "
            "kubectl apply --server-side -f -",
        )
    else:
        yield ok(f"the service account {namespace}/{NAME} may do all that this configuration needs")


def missing_rights(facts: Facts) -> list[str]:
    """Return what the service account may not do and has to, by resource."""
    return _missing(facts.manager_may)


def _missing(reviews: Mapping[Review, Fact[bool]]) -> list[str]:
    """Return what is not allowed, as the end of "may not": verbs by resource."""
    verbs: dict[str, list[str]] = {}
    for (verb, group, resource, subresource, namespace, name), allowed in reviews.items():
        if not allowed.value:
            what = f"{resource}{f'.{group}' if group else ''}{f'/{subresource}' if subresource else ''}"
            place = f"{f' {name}' if name else ''}{f' in namespace {namespace}' if namespace else ''}"
            verbs.setdefault(f"{what}{place}", []).append(verb)
    return [f"{', '.join(sorted(each, key=VERBS.index))} {what}" for what, each in verbs.items()]
