"""`trainmaster diff`: dry runs, listers that read a cluster without a cache, and unified diffs."""
