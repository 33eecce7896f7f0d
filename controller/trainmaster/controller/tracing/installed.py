"""Whether anything is traced: where the configuration names a collector, and OpenTelemetry is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from trainmaster.controller.configuration import Tracing as Settings
from trainmaster.controller.configuration import traces_url

if TYPE_CHECKING:
    from trainmaster.controller.tracing.tracing import Tracing

log = structlog.get_logger(__name__)

INSTALLATION: Final = "`pip install 'trainmaster[tracing]'`"

_UNTRACED: Final = "traces are configured, but nothing is traced"


def new_tracing(settings: Settings) -> Tracing | None:
    """Return what records; None: nothing is recorded. That something is missing for it ends no manager."""
    if not settings.endpoint:
        return None
    try:
        from trainmaster.controller.tracing.tracing import Tracing  # noqa: PLC0415 - an extra
    except ImportError as error:
        log.error(
            _UNTRACED,
            reason=f"the package of {error.name} is not installed",
            hint=f"{INSTALLATION} in the image, or take tracing.endpoint out of the configuration",
        )
        return None
    url, rate = traces_url(settings.endpoint), settings.sampling_rate_per_million
    try:
        tracing = Tracing(url, rate_per_million=rate)
    except ValueError as error:
        log.error(_UNTRACED, reason=str(error), hint="correct the variables OTEL_* of the environment")
        return None
    log.info("traces are recorded", endpoint=url, sampling_rate_per_million=rate)
    return tracing
