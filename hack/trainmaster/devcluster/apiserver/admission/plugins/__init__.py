"""Admission plugins: what a real API server does to pods between their validation and webhooks.

They are hooks of the API and need no controller; only the status of quotas is kept by one.
"""
