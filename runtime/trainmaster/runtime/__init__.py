"""Trainmaster's runtime: what a TrainJob becomes, decided purely. This package is also the SDK of plugin authors."""
