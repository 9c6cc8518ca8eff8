"""KServe's own server with y = x w + b, z = max(y, 0): `python kserve_server.py REST_PORT GRPC_PORT` where it is."""

import sys

import numpy as np
from kserve import InferOutput, InferResponse, Model, ModelServer

WEIGHTS = np.float32([[1, -2, 3], [0.5, 0, -1], [2, 2, 2], [-1, 1, 0]])
BIAS = np.float32([0.25, -0.5, 0])


class Linear(Model):
    def __init__(self):
        super().__init__("linear")
        self.ready = True

    async def get_input_types(self):
        return [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]

    async def get_output_types(self):
        return [{"name": name, "datatype": "FP32", "shape": [-1, 3]} for name in ("y", "z")]

    async def predict(self, payload, headers=None, response_headers=None):
        sums = payload.inputs[0].as_numpy() @ WEIGHTS + BIAS
        found = {"y": sums, "z": np.maximum(sums, 0)}
        outputs = []
        for name in [output.name for output in payload.request_outputs or []] or list(found):
            output = InferOutput(name=name, shape=list(sums.shape), datatype="FP32")
            output.set_data_from_numpy(found[name], binary_data=bool(payload.use_binary_outputs))
            outputs.append(output)
        return InferResponse(response_id=payload.id, model_name=self.name, infer_outputs=outputs)


if __name__ == "__main__":
    ModelServer(http_port=int(sys.argv[1]), grpc_port=int(sys.argv[2]), workers=1).start([Linear()])
