"""`trainmaster cluster up|status|down`: the embedded cluster from the command line."""
