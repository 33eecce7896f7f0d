"""Causes of containers that failed: by pods, by what programs said last, and by what the manager tells of them."""
