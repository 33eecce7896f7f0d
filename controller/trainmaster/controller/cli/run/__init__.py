"""`trainmaster run`: submitting the objects of files, and following their TrainJobs."""
