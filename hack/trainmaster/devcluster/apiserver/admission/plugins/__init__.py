"""Admission plugins: what a real API server does to pods between their validation and webhooks."""
