# mxnet 1.9.1 on Python 3.8. Written by containers/generate.py.
FROM python:3.8-slim
# where the packages come from, if not from pip's own index
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
LABEL org.mlmodelscope.framework="mxnet" org.mlmodelscope.version="1.9.1"
RUN apt-get update \
 && apt-get install -y --no-install-recommends libgomp1 libquadmath0 \
 && rm -rf /var/lib/apt/lists/*
RUN printf '%s\n' 'certifi<=2026.10.18' 'charset-normalizer<=3.5.2' 'graphviz<=0.8.4' 'idna<=3.15' 'numpy<=1.23.5' 'requests<=2.32.4' 'urllib3<=2.2.3' > /tmp/bounds.txt \
 && python -m pip install --no-cache-dir --disable-pip-version-check -c /tmp/bounds.txt 'mxnet==1.9.1' 'numpy<1.24' \
 && rm /tmp/bounds.txt
