"""CustomResourceDefinitions that a cluster starts with: JobSet's, Trainer's and those of the gang schedulers."""
