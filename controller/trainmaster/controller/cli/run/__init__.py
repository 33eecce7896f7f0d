"""`trainmaster run`: submitting the objects of files, following their TrainJobs and reporting about them."""
