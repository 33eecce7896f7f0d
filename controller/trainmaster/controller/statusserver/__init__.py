"""The status server: trainers report to it how far they are, and it writes that into their TrainJobs.

A report goes through the application in `server` (limits), `handler` (one report, one response), `authorizer` (whose
token is it, by a review and the owners of the pod, within the limits of `server.authentication`) and `payload` (what
was reported). `ca_bundle` is what pods are to trust, and `server` puts everything together for the manager.
"""
