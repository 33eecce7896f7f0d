"""The families of certificates: when they end."""

from __future__ import annotations

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

for _certificate in get_args(Certificate):
    EXPIRY.labels(_certificate)


def set_expiry(certificate: Certificate, moment: float) -> None:
    """Note when a certificate ends."""
    EXPIRY.labels(certificate).set(moment)
