"""Jobs that are there: `list`, `attach`, `logs`, `delete`, `suspend`, `resume` and `restart`."""
