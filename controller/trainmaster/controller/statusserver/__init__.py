"""Progress: the server to which trainers report how far they are, and which writes that into their TrainJobs.

A request goes through `serving` (HTTPS), `answering` (one request, one answer), `authorizing` (whose token is it, with
`reviewing` and `kinship`), `payload` (what was reported) and back. `throttling` and `remembering` bound what it costs,
`authority` is what pods are to trust, and `feature` puts everything together for the manager.
"""

from trainmaster.controller.statusserver.feature import Progress

__all__ = ["Progress"]
