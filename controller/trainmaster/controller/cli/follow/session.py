"""Following TrainJobs in the foreground, until they have ended, time is up, or Ctrl-C: what `run` and `attach` do.

Exit codes: 0 all jobs are complete; 1 a job failed, was deleted or lacks its runtime; 3 time is up; 130 interrupted.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Collection, Sequence
from typing import Final

from trainmaster.controller.cli.cluster import watch_manager
from trainmaster.controller.cli.follow.follower import Follower
from trainmaster.controller.cli.follow.job_status import FollowedJob
from trainmaster.controller.cli.follow.reporter import Reporter
from trainmaster.controller.kube.rest.client import KubeClient

FAILURE: Final = 1
TIMED_OUT: Final = 3
INTERRUPTED: Final = 130


async def follow_jobs(
    client: KubeClient,
    jobs: Sequence[FollowedJob],
    reporter: Reporter,
    *,
    ranks: Collection[int] | None = (0,),
    tail_lines: int | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - running out of time is an outcome here, not an error
) -> int:
    """Follow jobs; returns the exit code. Ctrl-C ends the following, and nothing else.

    Args:
        client: Of the cluster.
        jobs: The jobs.
        reporter: Where everything is reported.
        ranks: Whose logs are passed on; None: those of all.
        tail_lines: How many lines of logs that are there already are passed on; None: all.
        timeout: Seconds to follow at most; None: as long as it takes.

    Raises:
        KubeError: The cluster cannot be used.
    """
    interrupted = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupted.set)
    try:
        with reporter:
            follower = Follower(client, jobs, reporter, ranks=ranks, tail_lines=tail_lines)
            return await _follow(follower, client, reporter, interrupted, timeout)
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def _follow(
    follower: Follower,
    client: KubeClient,
    reporter: Reporter,
    interrupted: asyncio.Event,
    timeout: float | None,  # noqa: ASYNC109 - as above
) -> int:
    following = asyncio.create_task(follower.run())
    watching = asyncio.create_task(watch_manager(client, report=reporter.report))
    interruption = asyncio.create_task(interrupted.wait())
    await asyncio.wait([following, interruption], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    interruption.cancel()
    watching.cancel()
    if following.done():
        following.result()
        reporter.close(follower.jobs)
        return 0 if follower.succeeded else FAILURE
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    if interrupted.is_set():
        return INTERRUPTED
    reporter.report(f"gave up waiting after {timeout:g} s", bad=True)
    reporter.close(follower.jobs)
    return TIMED_OUT
