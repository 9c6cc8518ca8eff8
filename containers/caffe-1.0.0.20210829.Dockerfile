# caffe 1.0.0.20210829 on Python 3.9. Written by containers/generate.py.
FROM python:3.9-slim
# where the packages come from, if not from pip's own index
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
LABEL org.mlmodelscope.framework="caffe" org.mlmodelscope.version="1.0.0.20210829"
RUN printf '%s\n' 'imageio<=2.37.2' 'lazy-loader<=0.6' 'networkx<=3.2.1' 'numpy<=1.23.5' 'packaging<=26.3' 'pillow<=11.3.0' 'scikit-image<=0.24.0' 'scipy<=1.13.1' 'six<=1.17.0' 'tifffile<=2024.8.30' > /tmp/bounds.txt \
 && python -m pip install --no-cache-dir --disable-pip-version-check -c /tmp/bounds.txt 'kendryte-caffe==1.0.0.20210829' 'numpy<1.24' 'protobuf==3.20.3' \
 && rm /tmp/bounds.txt
