"""Gangs: groups of pods that start together or not at all, in the dialects of coscheduling and Volcano."""
