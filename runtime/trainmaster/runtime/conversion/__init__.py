"""Conversion of older kinds of training jobs to TrainJobs and TrainingRuntimes, with everything that it changes told.

- `training_operator` converts the jobs of Training Operator V1, `kubeflow.org/v1`.
- `early_trainer` rewrites the kinds of early versions of Trainer, `kubeflow.org/v2alpha1` and since.

Each field of the input is found in the output again, with the same meaning, or a note says what becomes of it.
"""
