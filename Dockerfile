# The proxy and nothing else: no compiler, no package index, no root. How to build, run and pin it: docs/how-to/deploy-with-docker.md

# Version and distribution; fixes come with a new build. For a build that can be repeated, give the digest too, as
# --build-arg PYTHON_IMAGE=python:3.13-slim-trixie@sha256:…
ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
WORKDIR /build
RUN python -m venv /build/backend && python -m venv --without-pip /opt/idemproxy
COPY requirements/build.txt requirements/runtime.txt requirements/
# Wheels only: nothing of a dependency runs here, and no compiler is needed on any platform that has them (amd64 and arm64 do).
RUN backend/bin/pip install --no-cache-dir --disable-pip-version-check --only-binary :all: --require-hashes -r requirements/build.txt \
    && backend/bin/pip --python /opt/idemproxy/bin/python install --no-cache-dir --disable-pip-version-check \
        --only-binary :all: --require-hashes -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY idemproxy idemproxy
RUN backend/bin/hatchling build -t wheel -d dist \
    && backend/bin/pip --python /opt/idemproxy/bin/python install --no-cache-dir --disable-pip-version-check \
        --no-index --no-deps dist/*.whl

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="idemproxy" \
    org.opencontainers.image.description="An idempotency proxy: one write, one effect, and the same answer to every retry." \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.source="${SOURCE}"
COPY --from=build /opt/idemproxy /opt/idemproxy
ENV PATH=/opt/idemproxy/bin:${PATH}
# The base comes without compiled modules, and a read-only root can keep none: without this line every start, and every health
# check, compiles what it imports of the standard library.
RUN python -c 'import idemproxy.config.load, idemproxy.config.show, idemproxy.demo.agent, idemproxy.demo.command, idemproxy.lifecycle' \
    && install -d -m 0700 -o 10001 -g 10001 /var/lib/idemproxy
# Records (idemproxy.db) and the spool (idemproxy-spool) are named relative to the current directory.
WORKDIR /var/lib/idemproxy
VOLUME /var/lib/idemproxy
# Numbers, so that Kubernetes can see that it is not root; no name is needed.
USER 10001:10001
EXPOSE 8080 8081
# It asks where IDEMPROXY_ADMIN_LISTEN says, else the file IDEMPROXY_CONFIG, else 127.0.0.1:8081, in the container itself.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["idemproxy", "healthcheck"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["idemproxy"]
CMD ["run"]
