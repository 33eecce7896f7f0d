"""Probes and lifecycle hooks of containers: their handlers, when a result counts, and what follows from it."""
