"""`trainmaster top`: jobs, nodes and managers of a cluster, on a screen that is kept current or as tables."""
