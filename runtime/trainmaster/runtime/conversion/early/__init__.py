"""What the kinds of early versions of Trainer are in today's words."""
