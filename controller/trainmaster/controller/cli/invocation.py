"""Commands of this program as they are to be typed after one of it, on the same cluster; pure."""

from __future__ import annotations

import shlex


def invocation(
    verb: str, job: str, *options: str, namespace: str, default_namespace: str | None, kubeconfig: str | None
) -> str:
    """Return the command that does something with a job.

    Args:
        verb: The command.
        job: What names the job.
        options: Options of the command.
        namespace: Of the job.
        default_namespace: The one that the command takes if none is named.
        kubeconfig: The one that has to be named; None if it needs none.
    """
    words = ["trainmaster", verb, job, *options]
    if namespace != (default_namespace or "default"):
        words += ["-n", namespace]
    if kubeconfig:
        words += ["--kubeconfig", kubeconfig]
    return shlex.join(words)
