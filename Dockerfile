# The image of the controller; docs/image.md tells what is in it, how it is made again, and how to add plugins.
#
# A tag moves. The release workflow looks up what these two name on that day and passes them by digest, which the
# labels of the image record: --build-arg PYTHON_IMAGE=python@sha256:...
ARG PYTHON_IMAGE=python:3.13-slim-bookworm
ARG BUILD_IMAGE=python:3.13-bookworm

FROM ${BUILD_IMAGE} AS build
ARG SOURCE_DATE_EPOCH=0
RUN --mount=type=bind,target=/src \
    sh /src/hack/image/install.sh /usr/local/bin/python3 /src /usr/local/lib/trainmaster

FROM ${PYTHON_IMAGE}
ARG PYTHON_IMAGE
ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="trainmaster" \
      org.opencontainers.image.description="Controller manager for TrainJobs of Kubeflow Trainer v2" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /usr/local/lib/trainmaster /usr/local/lib/trainmaster
# PIP_PYTHON: `pip install` in a derived image installs beside the controller, which has no pip of its own.
# PYTHONPYCACHEPREFIX: where its bytecode is. HOME: nobody has said where that of 65532 is.
ENV PATH=/usr/local/lib/trainmaster/bin:/usr/local/bin:/usr/bin:/bin \
    PIP_PYTHON=/usr/local/lib/trainmaster/bin/python \
    PYTHONPYCACHEPREFIX=/usr/local/lib/trainmaster/pycache \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/
USER 65532:65532
WORKDIR /
ENTRYPOINT ["trainmaster", "manager"]
