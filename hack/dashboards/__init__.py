"""`make dashboards`: managers under load, a Prometheus that scrapes them, and the dashboards drawn from its answers.

- `load` is what happens in those minutes, `jobs` what is submitted, `odd_plugin` a plugin that fails now and then.
- `cluster` runs an embedded cluster with a manager, and a second one that stands by; `prometheus` the server.
- `panels` asks for every panel; `chart` and `page` draw, `browser` makes the pictures.
"""
