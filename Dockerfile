# The server, its client library and its commands in one image. Build with the context at the root of the repository:
#
#     docker build -t topics .
#     docker run -p 4000:4000 -v topics-data:/data -e TOPICS_API_KEYS=change-me topics
#
# The wheel is built in the first stage, so that the image holds no compiler, no source tree and no pip cache.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE CHANGELOG.md requirements.txt requirements-build.txt ./
COPY src ./src
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps -r requirements-build.txt \
 && pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
 && python -m venv /opt/topics \
 && /opt/topics/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps -r requirements.txt \
 && /opt/topics/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps /wheels/*.whl

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin topics \
 && install -d -o topics -g topics -m 0700 /data
COPY --from=build /opt/topics /opt/topics
ENV PATH=/opt/topics/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    TOPICS_HOST=0.0.0.0 \
    TOPICS_PORT=4000 \
    TOPICS_DATA_DIR=/data \
    TOPICS_LOG_FORMAT=json
USER topics
VOLUME /data
EXPOSE 4000
# The server drains and writes a snapshot on SIGTERM; give it more than docker's ten seconds: --stop-timeout 30.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['TOPICS_PORT'] + '/readyz', timeout=2)"]
CMD ["topics", "serve"]
