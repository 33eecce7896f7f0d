"""The Trainmaster manager as a child process of the cluster: its configuration, webhooks, readiness and health."""
