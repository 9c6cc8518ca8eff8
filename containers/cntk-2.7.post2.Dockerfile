# cntk 2.7.post2 on Python 3.6. Written by containers/generate.py.
FROM python:3.6-slim
# where the packages come from, if not from pip's own index
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
LABEL org.mlmodelscope.framework="cntk" org.mlmodelscope.version="2.7.post2"
RUN apt-get update \
 && apt-get install -y --no-install-recommends libgomp1 libopenmpi3 \
 && rm -rf /var/lib/apt/lists/*
RUN ln -s libmpi.so.40 /usr/lib/x86_64-linux-gnu/libmpi.so.12 \
 && ln -s libmpi_cxx.so.40 /usr/lib/x86_64-linux-gnu/libmpi_cxx.so.1
RUN printf '%s\n' 'pip<=21.3.1' > /tmp/bounds.txt \
 && python -m pip install --no-cache-dir --disable-pip-version-check -c /tmp/bounds.txt 'cntk==2.7.post2' 'numpy==1.19.5' 'scipy==1.5.4' 'pip' \
 && rm /tmp/bounds.txt
