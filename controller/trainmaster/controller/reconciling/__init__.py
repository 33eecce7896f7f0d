"""Reconciling: the generic controller loop and one package for each kind that is reconciled."""
