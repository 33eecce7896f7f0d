"""Requests to an API server: client, transport, retries, rate limit, errors and watches."""
