"""What `trainmaster run` consists of: finding a cluster, submitting objects, following jobs and telling about them."""
