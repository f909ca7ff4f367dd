"""tosa: avg_pool_int16_sums_wrap

the sum of a window of int16 codes is kept in 32 bits that wrap, and the run is called valid, where the specification
leaves the result open: the mean of 65,792 codes of 32767 is -32514 (tosa-tools 2026.8)
Severity: wrong. Seen in tosa 2026.8.0.
Cause: AVG_POOL2D accumulates int16 in INT32, and no check says that a sum left it.
Case: avg_pool2d(x: [1, 1, 256, 257]) ceil_mode=False count_include_pad=True kernel=[256, 257] padding=[0, 0, 0, 0]
stride=[1, 1] channels_first, data accumulator_limit, found by generated cases of quantizer.
"""

from importlib.metadata import version
import base64
import sys
import zlib

import numpy as np
import tosa_reference_model

x = np.full([1, 1, 256, 257], 32767, np.int16)
s_x, z_x = 0.00012207217514514923, 0
s_y, z_y = 0.00012207217514514923, 0

# Right: the value of the codes in integers and float64, rounded once.
X = s_x * (x.astype(np.int64) - z_x)
X = np.pad(X, [(0, 0), (0, 0), (0, 0), (0, 0)])
windows = np.lib.stride_tricks.sliding_window_view(X, (256, 257), (2, 3))[:, :, ::1, ::1, ::1, ::1]
real = windows.sum((-2, -1)) / 65792
steps = real / s_y
expected = np.clip(np.rint(steps) + z_y, -32768, 32767).astype(np.int64)

print(f"tosa-tools {version('tosa-tools')}, numpy {np.__version__}")
print("expected", expected.ravel().tolist(), flush=True)
model = zlib.decompress(base64.b64decode(
    "eNqVUjFOAzEQHB9HsNAVLiiiKEIpKCgIOiRERYPyAIqkoCQCikhwRBAK/sCDEO+hQPwBzNhekyU6hLA09treXc/s2gKYnI5PXj+8P6N9SewRJXHE"
    "s7Di0/v3DcAijRLL0f/1bhOOO4uKFmAEkLUC4l3wsEjxTuJvprMm+23F875kctx3o99TAQxMuj+nPSmWb68Rz0GX5Gu898dcd2Tflfe1Dij+ZgWU"
    "h+vp49Xd8AAvzHXI/e4fuQqlNee4uG3uF8OaVk8pgqhEzNbj/F+uYTIm2R1i1swfFnXi8KZqaMlC1zDQLKTfc+l9yLnvpe8yKkZktpX0KfAaEOtZ"
    "q3AolOY2zrmnoUe15HArNda10rbW5rDdpmc0Ej25R1U87tC3jPHlj/qV3zXM/1e/l/+paeGoueg/+wVQn0Ot"
))
outputs, status = tosa_reference_model.run(model, [np.moveaxis(x, 1, -1)])
print("status  ", status)
got = outputs[0]
got = got.astype(np.int64)
assert got.shape == expected.shape, f"shape {got.shape}, right is {expected.shape}"
wrong = np.abs(got - np.clip(steps + z_y, -32768, 32767)) > 0.501
print("got     ", got.ravel().tolist())
print("differs" if wrong.any() else "agrees")
sys.exit(int(wrong.any()))
