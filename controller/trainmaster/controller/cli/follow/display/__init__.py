"""What is shown of followed jobs: the live display of a terminal, how far trainings are, and the closing summary."""
