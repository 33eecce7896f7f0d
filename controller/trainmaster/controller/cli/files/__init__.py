"""Commands for objects in files that ask no cluster: `render`, `validate`, `convert`; and reading such files."""
