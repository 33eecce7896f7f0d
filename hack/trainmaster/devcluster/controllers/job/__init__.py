"""The Job controller (batch/v1): pods for Indexed and NonIndexed Jobs, exact counting, terminal conditions, TTL."""
