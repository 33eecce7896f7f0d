"""Gang scheduling: pods of a PodGroup start together or not at all, in the dialects of coscheduling and Volcano."""
