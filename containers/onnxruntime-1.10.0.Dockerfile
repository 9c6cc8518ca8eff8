# onnxruntime 1.10.0 on Python 3.7. Written by containers/generate.py.
FROM python:3.7-slim
# where the packages come from, if not from pip's own index
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
LABEL org.mlmodelscope.framework="onnxruntime" org.mlmodelscope.version="1.10.0"
RUN printf '%s\n' 'flatbuffers<=25.12.19' 'numpy<=1.21.6' 'protobuf<=3.20.3' > /tmp/bounds.txt \
 && python -m pip install --no-cache-dir --disable-pip-version-check -c /tmp/bounds.txt 'onnxruntime==1.10.0' 'numpy<1.24' 'protobuf<3.21' \
 && rm /tmp/bounds.txt
