"""The admission webhooks that API servers call about TrainJobs and runtimes.

`review` decodes and encodes AdmissionReviews, `handlers` decides about their requests, and `server` is the application
that serves both over HTTPS. What takes long is done by `workers`.
"""

from trainmaster.controller.webhooks.handlers import AdmissionHandlers
from trainmaster.controller.webhooks.server import WebhookServer
from trainmaster.controller.webhooks.workers import Workers

__all__ = ["AdmissionHandlers", "WebhookServer", "Workers"]
