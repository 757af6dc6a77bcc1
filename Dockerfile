# The image of the controller. BASE_IMAGE is any Debian-like image with Python >= 3.11, pip and venv: the tests, which
# reach no registry, build on one made by debootstrap (tests/image/build_image.sh). Where builds must be reproducible,
# name it with its digest.
ARG BASE_IMAGE=docker.io/library/python:3.13-slim-bookworm

# What we ship gets no pip of its own. Only wheels: nothing is compiled, so no compiler is needed, here or later. What
# only the extras `report`, `demo`, `advise` and `policies` need is not in this lock.
FROM ${BASE_IMAGE} AS dependencies
COPY requirements.lock /src/
RUN python3 -m venv --without-pip /opt/slopewise \
    && python3 -m pip --python /opt/slopewise/bin/python3 install --no-cache-dir --require-hashes --only-binary :all: \
        -r /src/requirements.lock

# The build backend, apart; then our own two wheels, into a tree of their own below /ours and, to see that everything
# fits together, beside their dependencies.
FROM dependencies AS build
WORKDIR /src
COPY requirements-build.lock ./
RUN python3 -m venv --without-pip /opt/build \
    && python3 -m pip --python /opt/build/bin/python3 install --no-cache-dir --require-hashes --only-binary :all: \
        -r requirements-build.lock
COPY LICENSE README.md pyproject.toml ./
COPY exporters exporters
COPY grafana/dashboards grafana/dashboards
COPY controller controller
RUN /opt/build/bin/python3 -m hatchling build -t wheel -d /wheels \
    && (cd exporters && /opt/build/bin/python3 -m hatchling build -t wheel -d /wheels) \
    && python3 -m pip --python /opt/slopewise/bin/python3 install --no-cache-dir --no-index --no-deps --root /ours \
        /wheels/*.whl \
    && cp -a /ours/opt/slopewise/. /opt/slopewise/ \
    && python3 -m pip --python /opt/slopewise/bin/python3 check

FROM ${BASE_IMAGE}
# Two layers: the dependencies (270 MB) are pulled again only when the lock has changed, and a release is the other one.
COPY --from=dependencies /opt/slopewise /opt/slopewise
COPY --from=build /ours/opt/slopewise /opt/slopewise
# The user has no entry in /etc/passwd and needs none; what asks for a home gets the one folder that can be written.
ENV HOME=/tmp \
    PATH="/opt/slopewise/bin:${PATH}" \
    PYTHONUNBUFFERED=1
# Answers of Prometheus, 20 MB each, go back to the system once they are read: a controller of 10,000 pods took 383 MiB
# with this and 428 without.
ENV MALLOC_ARENA_MAX=2 \
    MALLOC_MMAP_THRESHOLD_=1048576 \
    MALLOC_TRIM_THRESHOLD_=1048576
WORKDIR /tmp
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["slopewise"]
# Last, since they differ from build to build.
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="slopewise" \
    org.opencontainers.image.description="Gives CPU to the training jobs whose loss is still falling" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
