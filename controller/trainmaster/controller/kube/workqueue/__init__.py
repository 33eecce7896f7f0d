"""The work queue of a controller, with delays, priorities and the backoff of keys."""
