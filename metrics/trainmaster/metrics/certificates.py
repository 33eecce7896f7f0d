"""The families of certificates: when they end, and of the webhook configurations that trust them: which are missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, get_args

from trainmaster.metrics.registry import REGISTRY
from trainmaster.metrics.series import Gauge

Certificate: TypeAlias = Literal["serving", "ca"]
"""That which the servers of this process show, and the authority that signs it, where it is of our own."""

EXPIRY: Final = Gauge(
    "trainmaster_certificate_expiry_timestamp_seconds",
    "When a certificate ends, in seconds since the epoch; 0 while there is none",
    ("certificate",), registry=REGISTRY,
)  # fmt: skip

MISSING: Final = Gauge(
    "trainmaster_webhook_configuration_missing",
    "1 for a webhook configuration that should exist and does not",
    ("configuration",), registry=REGISTRY,
)  # fmt: skip
_was_missing: Final = set[str]()

for _certificate in get_args(Certificate):
    EXPIRY.labels(_certificate)


def set_expiry(certificate: Certificate, moment: float) -> None:
    """Note when a certificate ends."""
    EXPIRY.labels(certificate).set(moment)


def set_missing(configurations: Iterable[str]) -> None:
    """Note which webhook configurations are missing now."""
    missing = set(configurations)
    for each in missing | _was_missing:
        MISSING.labels(each).set(each in missing)
    _was_missing.update(missing)
