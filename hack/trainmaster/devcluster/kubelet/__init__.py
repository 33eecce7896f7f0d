"""The node of the embedded cluster: runs the pods bound to it as local processes and reports what becomes of them."""
