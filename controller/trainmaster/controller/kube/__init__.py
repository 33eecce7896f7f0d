"""A small client runtime in the rooms of client-go; it knows Kubernetes, and nothing of TrainJobs."""
