# caffe2 1.4.0 on Python 3.7. Written by containers/generate.py.
FROM python:3.7-slim
# where the packages come from, if not from pip's own index
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
LABEL org.mlmodelscope.framework="caffe2" org.mlmodelscope.version="1.4.0"
RUN printf '%s\n' 'future<=1.0.0' 'numpy<=1.21.6' 'protobuf<=3.20.3' 'six<=1.17.0' > /tmp/bounds.txt \
 && python -m pip install --no-cache-dir --disable-pip-version-check -c /tmp/bounds.txt 'torch==1.4.0' 'future' 'six' 'protobuf<3.21' 'numpy<1.22' \
 && rm /tmp/bounds.txt
