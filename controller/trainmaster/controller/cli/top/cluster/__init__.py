"""What is known of the jobs, nodes and managers of a cluster, and which of it needs attention first."""
