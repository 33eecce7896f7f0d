"""`trainmaster explain`: what is gathered of a job, and how its causes are printed."""
