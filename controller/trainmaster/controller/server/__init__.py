"""The one HTTP(S) server of the manager: certificates that are watched, probes, metrics.

The applications of the other servers, the webhooks and the status server, are in rooms of their own.
"""
