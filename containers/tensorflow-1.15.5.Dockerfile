# tensorflow 1.15.5 on Python 3.7. Written by containers/generate.py.
FROM python:3.7-slim
# where the packages come from, if not from pip's own index
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
LABEL org.mlmodelscope.framework="tensorflow" org.mlmodelscope.version="1.15.5"
RUN printf '%s\n' 'absl-py<=2.1.0' 'astor<=0.8.1' 'gast<=0.2.2' 'google-pasta<=0.2.0' 'grpcio<=1.62.3' 'h5py<=2.10.0' 'importlib-metadata<=6.7.0' 'keras-applications<=1.0.8' 'keras-preprocessing<=1.1.2' 'markdown<=3.4.4' 'markupsafe<=2.1.5' 'numpy<=1.18.5' 'opt-einsum<=3.3.0' 'protobuf<=3.20.3' 'setuptools<=68.0.0' 'six<=1.17.0' 'tensorboard<=1.15.0' 'tensorflow-estimator<=1.15.1' 'termcolor<=2.3.0' 'typing-extensions<=4.7.1' 'werkzeug<=2.2.3' 'wheel<=0.42.0' 'wrapt<=1.16.0' 'zipp<=3.15.0' > /tmp/bounds.txt \
 && python -m pip install --no-cache-dir --disable-pip-version-check -c /tmp/bounds.txt 'tensorflow==1.15.5' 'numpy<1.19' 'protobuf<3.21' \
 && rm /tmp/bounds.txt
