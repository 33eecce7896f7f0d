"""How that looks: live on a terminal of any size, and as plain lines."""
