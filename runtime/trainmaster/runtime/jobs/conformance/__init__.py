"""The conformance kit of job kinds: what a kind has to keep to, checked as the manager will meet it.

For the tests of kinds, ours and others':

    def test_my_kind() -> None:
        check_job_kind("myjob", [load("small.yaml"), load("everything.yaml")])

The samples are jobs as their authors write them, all of which can be admitted. From each, many odd ones are made: a
kind has to say what is wrong with them, or to make something of them, but never to raise. What is checked:

- it loads by its entry point, its attributes are such that the API server takes what is named by them, and its
  definition agrees with them;
- samples are admitted; reading a job again that was defaulted changes nothing;
- every method returns the same for the same, and changes nothing but what it is given to change;
- pods have names of their own, and keep the labels, the owner and the restart policy that they are given; the API
  server would take them, and their Services;
- what `build` returns is of kinds that `watches` has;
- whatever state replicas are in, the conditions make sense of it.
"""

from trainmaster.runtime.jobs.conformance.kit import check_job_kind, nonconformities

__all__ = ["check_job_kind", "nonconformities"]
