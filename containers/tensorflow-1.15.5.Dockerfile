# tensorflow 1.15.5 on Python 3.7. Written by containers/generate.py.
FROM python:3.7-slim
# where the packages come from, if not from pip's own index
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
LABEL org.mlmodelscope.framework="tensorflow" org.mlmodelscope.version="1.15.5"
RUN python -m pip install --no-cache-dir --disable-pip-version-check 'tensorflow==1.15.5' 'numpy<1.19' 'protobuf<3.21'
