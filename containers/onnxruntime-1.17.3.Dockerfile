# onnxruntime 1.17.3 on Python 3.11. Written by containers/generate.py.
FROM python:3.11-slim
# where the packages come from, if not from pip's own index
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
LABEL org.mlmodelscope.framework="onnxruntime" org.mlmodelscope.version="1.17.3"
RUN python -m pip install --no-cache-dir --disable-pip-version-check 'onnxruntime==1.17.3' 'numpy<2'
