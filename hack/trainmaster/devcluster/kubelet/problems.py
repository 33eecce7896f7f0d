"""The two ways in which a container can fail to get as far as a process."""

from __future__ import annotations


class NotYetError(Exception):
    """Something is missing that may still come, for instance a ConfigMap: the container waits and tries again."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class ImpossibleError(Exception):
    """The embedded cluster cannot do what the pod asks for; the pod fails at once and says why."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
