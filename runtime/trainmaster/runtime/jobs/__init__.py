"""Training jobs of `kubeflow.org/v1` (Training Operator V1): what a job becomes, decided purely, for all kinds."""
