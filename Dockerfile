# The image of the controller. BASE_IMAGE is any Debian-like image with Python >= 3.11, pip and venv: the tests, which
# reach no registry, build on one made by debootstrap (tests/image/build_image.sh).
ARG BASE_IMAGE=docker.io/library/python:3.13-slim-bookworm

FROM ${BASE_IMAGE} AS build
WORKDIR /src

# What we ship gets no pip of its own. Only wheels: nothing is compiled, so no compiler is needed, here or later. What
# only the trainings of `slopewise demo` import (195 MB) is not in this lock.
RUN python3 -m venv --without-pip /opt/slopewise
COPY requirements.lock ./
RUN python3 -m pip --python /opt/slopewise/bin/python3 install --no-cache-dir --require-hashes --only-binary :all: \
        -r requirements.lock

# The build backend, apart.
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
    && python3 -m pip --python /opt/slopewise/bin/python3 install --no-cache-dir --no-index --no-deps /wheels/*.whl \
    && python3 -m pip --python /opt/slopewise/bin/python3 check

FROM ${BASE_IMAGE}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="slopewise" \
    org.opencontainers.image.description="Gives CPU to the training jobs whose loss is still falling" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/slopewise /opt/slopewise
# The user has no entry in /etc/passwd and needs none; what asks for a home gets the one folder that can be written.
ENV HOME=/tmp \
    PATH="/opt/slopewise/bin:${PATH}" \
    PYTHONUNBUFFERED=1
WORKDIR /tmp
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["slopewise"]
