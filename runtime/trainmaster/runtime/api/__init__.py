"""The Trainer API (`trainer.kubeflow.org/v1alpha1`) as Python types, and reading them from JSON.

Each module is imported where it is needed: most of the command line takes constants alone, without pydantic.
"""
