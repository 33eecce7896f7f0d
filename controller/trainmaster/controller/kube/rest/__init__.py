"""Requests to an API server: client, transport, retries, rate limit, errors, watches; credentials come in by `config`."""
