"""A scenario: what happens in the cluster, step by step, and what the cluster is like."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from support.sim.actors import Fate
from support.sim.pods import PodFate
from support.sim.world import World


@dataclass(frozen=True, slots=True)
class Scenario:
    """One life, or several at once."""

    name: str
    play: Callable[[World], Awaitable[None]]
    fates: Mapping[str, Fate] = field(default_factory=dict)
    """What becomes of JobSets, by name; the others complete after a few seconds."""
    managers: int = 1
    """More than one: with leader election."""
    counted: bool = True
    """Whether each object is created and deleted exactly as often as in the reference run."""

    gangs: bool = False
    """Whether the cluster serves the kinds of gang schedulers."""

    collected_after: float = 2.0
    """Seconds that the garbage collector takes at most."""

    faults: tuple[str, ...] = ()
    """Those that it is run with; by default all that fit the number of managers."""

    watched: tuple[str, ...] = ("trainjobs", "jobsets", "configmaps", "clustertrainingruntimes")
    """The resources whose watches are disturbed."""

    pods: Mapping[str, Sequence[PodFate]] | None = None
    """What becomes of pods, by name; None: the cluster has no node, and does not serve V1 jobs."""

    attempts: bool = False
    """Whether JobSets make Jobs, and these pods, which start anew: by the controllers of the embedded cluster."""

    plain_jobs: bool = False
    """Whether TrainJobs become Jobs, by a plugin, in a cluster that serves no JobSets."""

    gang_scheduler: str = ""
    """That of V1 jobs."""

    kinds: tuple[str, ...] = ()
    """The kinds of V1 jobs that managers are told to serve; by default all, each with its caches and its controller."""
