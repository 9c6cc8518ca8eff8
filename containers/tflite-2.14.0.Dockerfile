# tflite 2.14.0 on Python 3.11. Written by containers/generate.py.
FROM python:3.11-slim
# where the packages come from, if not from pip's own index
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
LABEL org.mlmodelscope.framework="tflite" org.mlmodelscope.version="2.14.0"
RUN printf '%s\n' 'numpy<=1.26.4' > /tmp/bounds.txt \
 && python -m pip install --no-cache-dir --disable-pip-version-check -c /tmp/bounds.txt 'tflite-runtime==2.14.0' 'numpy<2' \
 && rm /tmp/bounds.txt
