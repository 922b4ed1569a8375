# One image for every process: supervisor, workers, Flower. The command says which.
# The digest names the bytes of the base image. docs/how-to/compose.md says how to take a newer one.
ARG PYTHON_IMAGE=python:3.12.12-slim@sha256:f3fa41d74a768c2fce8016b98c191ae8c1bacd8f1152870a3f9f87d350920b7c
FROM ${PYTHON_IMAGE}

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    HANDOFF_READY_FILE=/tmp/ready \
    HANDOFF_CACHE_DIR=/var/cache/handoff

RUN useradd --system --uid 10001 --home-dir /nonexistent --shell /usr/sbin/nologin handoff \
    && install -d -o handoff -g handoff /var/cache/handoff \
    && install -d -o handoff -g handoff -m 700 /etc/handoff/keys \
    && install -d -o handoff -g handoff -m 700 /var/lib/flower

WORKDIR /app
COPY requirements.txt requirements-otel.txt ./
RUN pip install -r requirements.txt -r requirements-otel.txt

COPY pyproject.toml README.md ./
COPY handoff_queue handoff_queue
COPY shared shared
COPY supervisor supervisor
COPY workers workers
COPY chaos chaos
RUN pip install --no-deps --editable . && python -m compileall -q handoff_queue/testing shared supervisor workers chaos

USER handoff
# A container that starts again finds the file of its killed process. The new process needs minutes on a slow machine until it is ready.
ENTRYPOINT ["sh", "-c", "rm -f \"$HANDOFF_READY_FILE\"; exec handoff \"$@\"", "handoff"]
CMD ["--help"]

# A worker touches the file with each heartbeat (every 2 s); older than a minute means stuck, or without a broker.
# The imports of a worker took 5 minutes on 2 cores with a load of 40.
HEALTHCHECK --interval=5s --timeout=5s --start-period=600s --retries=6 \
    CMD test -n "$(find /tmp/ready -mmin -1 2>/dev/null)"
