"""Specs of the vendor's layer types, as text: a folder of specs below tests would be run as operators of ours."""

SPECS = {
    "v_gelu": """
op: v_gelu
version: "1.0"
summary: Gaussian error linear unit.
names: {compass: VGelu}
dims:
  shape: {type: shape, rank: [1, 3], min: 1, max: 6}
inputs:
  x: {axes: shape}
outputs:
  y: {}
shape:
  y: shape
error_model: {kind: piecewise_monotone, critical_points: [-0.7517915246935645]}
quantization: {family: v_gelu}
tiling:
  "*": {rule: independent}
data: [zeros, one_hot, corners, saturation, zero_point_extremes, small_integers, random]
oracle: torch.nn.functional.gelu
formats:
  compass:
    type: VGelu
""",
    "v_join": """
op: v_join
version: "1.0"
summary: Two vectors one after the other; no public function takes them so.
names: {compass: VJoin}
dims:
  n: {min: 1, max: 5}
  k: {min: 1, max: 5}
  m: {min: 1, max: 5}
inputs:
  a: {axes: [n, k]}
  b: {axes: [n, m]}
outputs:
  y: {axes: [n, k_m]}
shape:
  y: [n, k + m]
error_model: {kind: linear, terms: 1}
quantization: {family: v_join}
oracle: none
tiling:
  n: {rule: independent}
formats:
  compass:
    type: VJoin
""",
    "v_mix": """
op: v_mix
version: "1.0"
summary: Difference of two tensors of one shape, then the larger of 0 and it where fused.
names: {compass: VMix}
dims:
  shape: {type: shape, rank: [1, 3], min: 1, max: 5}
inputs:
  a: {axes: shape}
  b: {axes: shape}
outputs:
  y: {}
fuses: [relu]
shape:
  y: shape
error_model: {kind: linear, terms: 2}
quantization: {family: v_mix}
tiling:
  "*": {rule: independent}
oracle: torch.sub
formats:
  compass:
    type: VMix
    activation: with_activation
""",
    "v_row_mean": """
op: v_row_mean
version: "1.0"
summary: Mean of each row; no public function takes it so.
names: {compass: VRowMean}
dims:
  n: {min: 1, max: 5}
  k: {min: 1, max: 7}
inputs:
  x: {axes: [n, k]}
outputs:
  y: {axes: [n]}
shape:
  y: [n]
error_model: {kind: mean, terms: k}
quantization: {family: v_row_mean}
oracle: none
tiling:
  n: {rule: independent}
data: [zeros, one_hot, corners, ties, saturation, zero_point_extremes, small_integers, random]
formats:
  compass:
    type: VRowMean
""",
    "v_softplus": """
op: v_softplus
version: "1.0"
summary: Softplus.
names: {compass: VSoftplus}
dims:
  shape: {type: shape, rank: [1, 3], min: 1, max: 6}
inputs:
  x: {axes: shape}
outputs:
  y: {}
shape:
  y: shape
error_model: {kind: monotone}
quantization: {family: v_softplus}
tiling:
  "*": {rule: independent}
data: [zeros, one_hot, corners, saturation, zero_point_extremes, small_integers, random]
oracle: torch.nn.functional.softplus
formats:
  compass:
    type: VSoftplus
""",
    "v_times": """
op: v_times
version: "1.0"
summary: Product of two tensors of one shape.
names: {compass: VTimes}
dims:
  shape: {type: shape, rank: [1, 3], min: 1, max: 5}
inputs:
  a: {axes: shape}
  b: {axes: shape}
outputs:
  y: {}
shape:
  y: shape
error_model: {kind: bilinear, terms: 1}
quantization: {family: v_times}
tiling:
  "*": {rule: independent}
oracle: torch.mul
formats:
  compass:
    type: VTimes
""",
}
