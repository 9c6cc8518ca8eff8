"""A model for MLServer: y = x w + b, z = max(y, 0). Runs inside that server's environment, where nothing of ours is."""

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

WEIGHTS = np.float32([[1, -2, 3], [0.5, 0, -1], [2, 2, 2], [-1, 1, 0]])
BIAS = np.float32([0.25, -0.5, 0])


class Linear(MLModel):
    async def load(self):
        return True

    async def predict(self, payload):
        x = NumpyCodec.decode_input(payload.inputs[0])
        if x.shape[1:] != (4,):
            raise ValueError("x must be [any, 4]")
        sums = x @ WEIGHTS + BIAS
        found = {"y": sums, "z": np.maximum(sums, 0)}
        names = [output.name for output in payload.outputs or []] or list(found)
        outputs = [NumpyCodec.encode_output(name, found[name]) for name in names]
        return InferenceResponse(model_name=self.name, outputs=outputs)
