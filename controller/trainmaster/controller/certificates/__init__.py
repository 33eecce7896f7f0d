"""The certificates of the manager's servers, with `certManagement.enable`: a certificate authority and a serving
certificate of our own, where they are kept, who trusts them, and how they are renewed.

`pki` makes and reads certificates, `secret` is what the Secret holds, and `rotation` decides what is to be done: pure
functions of what there is. On the leader `rotator` writes what they decide, with `ca_injector`, which knows whom the
webhook configurations have to trust, and by the time of the API server (`server_time`). Every replica has a
`controller`, which watches (`watched`), puts the files where the servers look for them (`certdir`), and knows what is
missing.

Rights that this needs: `get`, `list`, `watch` and `patch` of one Secret by its name, in the namespace of the manager
(`certManagement.webhookSecretName`), and `list`, `watch` and `patch` of the MutatingWebhookConfiguration
`defaulter.trainer.kubeflow.org` and the ValidatingWebhookConfiguration `validator.trainer.kubeflow.org` by their names.
Nothing is created or deleted.
"""
