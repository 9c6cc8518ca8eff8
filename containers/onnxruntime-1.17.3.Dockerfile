# onnxruntime 1.17.3 on Python 3.11. Written by containers/generate.py.
FROM python:3.11-slim
# where the packages come from, if not from pip's own index
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
LABEL org.mlmodelscope.framework="onnxruntime" org.mlmodelscope.version="1.17.3"
RUN printf '%s\n' 'coloredlogs<=15.0.1' 'flatbuffers<=25.12.19' 'humanfriendly<=10.0' 'mpmath<=1.3.0' 'numpy<=1.26.4' 'packaging<=26.3' 'protobuf<=7.36.2' 'sympy<=1.14.0' > /tmp/bounds.txt \
 && python -m pip install --no-cache-dir --disable-pip-version-check -c /tmp/bounds.txt 'onnxruntime==1.17.3' 'numpy<2' \
 && rm /tmp/bounds.txt
