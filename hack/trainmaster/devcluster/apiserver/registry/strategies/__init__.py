"""Strategies: how the objects of each built-in kind are defaulted, validated, stamped and deleted."""
