"""What `trainmaster diff` consists of: trial writes, facts that are fetched when asked for, and texts."""
