"""The web page: jobs and what became of them, to be read in a browser; see docs/web.md.

`handlers` answer requests, `login` finds out who asks, `jobs` gathers what there is to show, `pages` writes it as HTML,
`charts` draws what a job reported. Nothing is ever changed from here.
"""
