"""Admission webhooks: the server that API servers ask about TrainJobs and runtimes.

`reviews` reads and writes AdmissionReviews, `answering` decides about them, `certificates` keeps the certificate
current, and `serving` puts these together.
"""

from trainmaster.controller.webhooks.handlers import Admission
from trainmaster.controller.webhooks.server import WebhookServer

__all__ = ["Admission", "WebhookServer"]
