# caffe 1.0.0.20210829 on Python 3.9. Written by containers/generate.py.
FROM python:3.9-slim
# where the packages come from, if not from pip's own index
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
LABEL org.mlmodelscope.framework="caffe" org.mlmodelscope.version="1.0.0.20210829"
RUN python -m pip install --no-cache-dir --disable-pip-version-check 'kendryte-caffe==1.0.0.20210829' 'numpy<1.24' 'protobuf==3.20.3'
