"""The kinds of training jobs of `kubeflow.org/v1`: a module for each, and what several of them share."""
