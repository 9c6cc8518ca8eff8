# tflite 2.3.0 on Python 3.11. Written by containers/generate.py.
FROM python:3.11-slim
# where the packages come from, if not from pip's own index
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
LABEL org.mlmodelscope.framework="tflite" org.mlmodelscope.version="2.3.0"
RUN python -m pip install --no-cache-dir --disable-pip-version-check 'ai-edge-litert==2.3.0' 'numpy'
