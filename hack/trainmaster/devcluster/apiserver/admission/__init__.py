"""hack/trainmaster/devcluster/apiserver/admission: TODO."""
