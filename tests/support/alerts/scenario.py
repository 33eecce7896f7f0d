"""What Prometheus sees for a while, as `promtool test rules` reads it."""

from dataclasses import dataclass

from trainmaster.metrics.alerts import JOB

MINUTES = 200
"""How long each scenario lasts; there is a sample each minute."""


def series(family: str, /, **labels: str) -> str:
    """Return the name of a series of a manager."""
    labels = {"job": JOB, "namespace": "kubeflow", "pod": "manager-a"} | labels
    return family + "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}"


def always(value: float) -> str:
    """A gauge that does not change."""
    return f"{value:.10g}x{MINUTES}"


def growing(by: float, start: float = 0) -> str:
    """A counter that grows by so much each minute."""
    return f"{start:g}+{by:.10g}x{MINUTES}"


def then(*parts: tuple[int, float]) -> str:
    """A gauge that has some values, each for so many minutes; the last one stays."""
    return " ".join(f"{value:.10g}x{minutes - 1}" for minutes, value in parts)


def away(value: float) -> str:
    """A counter that stands, of a manager that was not scraped for an hour, until an hour before three hours."""
    return f"{value:.10g}x64 _x59 {value:.10g}x{MINUTES}"


def scraped() -> dict[str, str]:
    """Return the series that say that a manager was scraped all the time."""
    return {series("up"): always(1), series("process_start_time_seconds"): always(-86_400)}


def started(minute: int) -> dict[str, str]:
    """Return the series that say that a manager started, and was scraped from then on."""
    values = f"_x{minute - 1}"
    return {
        series("up"): f"{values} 1x{MINUTES}",
        series("process_start_time_seconds"): f"{values} {60 * minute}x{MINUTES}",
    }


def observed(family: str, buckets: dict[str, float], /, **labels: str) -> dict[str, str]:
    """Return the series of a histogram that observes so much up to each bound, each minute.

    Args:
        family: Its name.
        buckets: The bounds, the last one being +Inf, with what is at most that.
        labels: As of `series`.
    """
    made = {series(f"{family}_bucket", le=bound, **labels): growing(count) for bound, count in buckets.items()}
    return {**made, series(f"{family}_count", **labels): growing(buckets["+Inf"])}


@dataclass(frozen=True, slots=True)
class Scenario:
    """Series, and which alerts there are then."""

    series: dict[str, str]
    labels: tuple[dict[str, str], ...] = ()
    """Those of each alert that fires, besides its severity; none if it stays silent."""

    at: str = "3h"


def fires(made: dict[str, str], /, *, at: str = "3h", **labels: str) -> Scenario:
    """Series by which one alert fires, with these labels."""
    return Scenario(made, (labels,), at)


def silent(made: dict[str, str], /, *, at: str = "3h") -> Scenario:
    """Series by which none fires."""
    return Scenario(made, (), at)
