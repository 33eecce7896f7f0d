"""Causes that are seen in pods: why they do not start, and why they were taken away."""
