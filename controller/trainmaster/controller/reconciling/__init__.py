"""The generic controller (its loop, outcomes, expectations, conditions; like controller-runtime it knows no TrainJob)
and the reconcilers that it runs: `trainjobs`, and `runtimes` for both kinds of runtime."""
