# paddle 3.3.1 on Python 3.11. Written by containers/generate.py.
FROM python:3.11-slim
# where the packages come from, if not from pip's own index
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
LABEL org.mlmodelscope.framework="paddle" org.mlmodelscope.version="3.3.1"
RUN apt-get update \
 && apt-get install -y --no-install-recommends libgomp1 \
 && rm -rf /var/lib/apt/lists/*
RUN python -m pip install --no-cache-dir --disable-pip-version-check 'paddlepaddle==3.3.1' 'numpy' 'setuptools'
