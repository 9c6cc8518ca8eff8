# jax 0.10.2 on Python 3.11. Written by containers/generate.py.
FROM python:3.11-slim
# where the packages come from, if not from pip's own index
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
LABEL org.mlmodelscope.framework="jax" org.mlmodelscope.version="0.10.2"
RUN python -m pip install --no-cache-dir --disable-pip-version-check 'jax==0.10.2' 'jaxlib' 'numpy' 'flatbuffers'
