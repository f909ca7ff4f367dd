"""Malformed specs: each is answered with the exact place, the value and the rule, and with all that is wrong at once."""
# ruff: noqa: E501 - a row shows a message as it is printed

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import quantizer
from quantizer.core.domains import draw_order
from quantizer.core.errors import SpecError
from quantizer.core.library import (
    MAX_LINES,
    load_library,
    load_schemes,
    load_spec,
    read_platform,
    read_spec,
    shipped_folder,
    shipped_platforms,
)
from quantizer.core.linting import FAMILY_KEYS, FAMILY_LISTS, unused_names
from quantizer.core.model import meanings
from quantizer.core.platforms import Platform
from quantizer.core.schema import SCHEMAS, schema_text, stale_schemas
from quantizer.core.schemes import all_schemes
from quantizer.core.spec import Spec
from quantizer.core.yaml_source import Mark

BASE = """\
op: pool
version: "1.0"
summary: Mean over windows.
names: {onnx: AveragePool}
dims:
  n: {min: 1, max: 3, bins: {one: {max: 1}, batch: {min: 2}}}
  c: {multiple_of: groups, min: groups, max: 2 * groups}
  h: {min: kernel, max: kernel + 4}
attrs:
  kernel: {min: 1, max: 3}
  padding: {length: 2, min: 0, max: 2, default: [0, 0], bins: {none: {max: 0}, uneven: {value: [0, 1]}}}
  groups: {min: 1, max: 2, default: 1}
  mode: {type: enum, choices: [mean, sum], default: mean, bins: {mean: {value: mean}, sum: {value: sum}}}
  exact: {type: bool, default: false}
  slope: {type: float, min: 0.5, max: 2.0, default: 1.0}
inputs:
  x: {axes: [n, c, h]}
  bias: {axes: [c], role: bias, optional: true}
outputs:
  y: {axes: [n, c, oh]}
shape:
  y: [n, c, "h + padding[0] + padding[1] - kernel + 1"]
constraints:
  - {require: c % groups == 0, error: "groups={groups} must divide c={c}"}
  - {require: kernel <= h, error: "kernel={kernel} must fit h={h}"}
error_model: {kind: linear, terms: kernel}
quantization: {family: pooling, outputs: {y: calibrated}}
tiling:
  n: {rule: independent}
  oh: {rule: halo, axis: h, stride: 1, window: kernel, before: [padding, 0], after: [padding, 1]}
data: [zeros, ties, random]
examples:
  - {id: one, values: {n: 1, c: 1, h: 3, kernel: 3}, omit: [bias], data: ties}
properties:
  - {relation: equivariant, axis: n}
excludes:
  - {scheme: a16, reason: no table}
oracle: torch.nn.functional.avg_pool1d
formats:
  compass:
    type: Pooling
    inputs: {bias: biases}
    attrs: {padding: [pad_left, pad_right], kernel: kernel_x}
    derived: {channels: c}
"""

MALFORMED: list[tuple[str, str, list[str]]] = [
    ('kernel: {min: 1, max: 3}', 'kernel: {choices: [a, 1], bins: {z: {min: 2}}}', [
        "10:22: attrs.kernel.choices.0: must be an integer, got 'a'.",
    ]),
    ('kernel: {min: 1, max: 3}', 'kernel: {min: "[1]", max: 3, bins: {z: {max: "[h, h]"}}, default: 2}', [
        '8:6: dims.h: domains need each other: h needs kernel, kernel needs h. Break the circle.',
        '10:17: attrs.kernel.min: must be an integer, got [1].',
    ]),
    ('max: 3}\n  padding', 'max: two}\n  padding', [
        "10:25: attrs.kernel.max: must be an integer, got 'two': no dim and no attr has that name. Known: n, c, h, kernel, padding, groups, mode, exact, slope.",
    ]),
    ('max: 3}\n  padding', 'max: 2.5}\n  padding', [
        '10:25: attrs.kernel.max: must be an integer, got 2.5.',
    ]),
    ('max: 3}\n  padding', 'max: [3]}\n  padding', [
        '10:25: attrs.kernel.max: must be a number or an expression, got [3].',
    ]),
    ('max: 3}\n  padding', 'max: kernel +}\n  padding', [
        "10:25: attrs.kernel.max: expression 'kernel +': invalid syntax.",
    ]),
    ('max: 3}\n  padding', 'max: .inf}\n  padding', [
        '10:25: attrs.kernel.max: must be a finite number or an expression, got inf.',
    ]),
    ('max: 3}\n  padding', 'maks: 3}\n  padding', [
        '10:20: attrs.kernel.maks: no such key. Known keys: type...',
    ]),
    ('length: 2', 'length: two', [
        "11:21: attrs.padding.length: must be an integer, got 'two': no dim and no attr has that name. Known: n, c, h, kernel, padding, groups, mode, exact, slope.",
    ]),
    ('length: 2', 'length: 9', [
        '11:21: attrs.padding.length: must lie between 1 and 8, got 9.',
        '43:22: formats.compass.attrs.padding: names 2 keys; padding has 9 entries.',
    ]),
    ('op: pool', 'op: 3', [
        '1:5: op: must be text, got 3. Write "3" in quotes.',
    ]),
    ('op: pool', 'op: Pool', [
        "1:5: op: must be snake_case: small letters, digits and _, a letter first, got 'Pool'.",
    ]),
    ('op: pool', 'op: pol', [
        "1:5: op: must equal the file's name, got 'pol'. Write op: pool or rename the file to pol.yaml.",
    ]),
    ('version: "1.0"', 'version: 1.0', [
        '2:10: version: must be text, got 1.0. Write "1.0" in quotes.',
    ]),
    ('version: "1.0"', 'version: one', [
        '2:10: version: must be numbers joined by dots, such as "1.0", got \'one\'.',
    ]),
    ('summary: Mean over windows.\n', '', [
        '1:1: summary: must be given: what it computes, in one line.',
    ]),
    ('summary: Mean over windows.', 'summary: " "', [
        '3:10: summary: must say in one line what the operator computes.',
    ]),
    ('names: {onnx: AveragePool}', 'names: [AveragePool]', [
        "4:8: names: must be a mapping, got ['AveragePool'].",
    ]),
    ('names: {onnx: AveragePool}', 'names:', [
        '4:7: names: has no value. Give one or remove the key.',
    ]),
    ('role: bias', 'role: baes', [
        '18:27: inputs.bias.role: must be one of activation...',
    ]),
    ('optional: true', 'optional: yes', [
        "18:43: inputs.bias.optional: must be true or false, got 'yes'.",
    ]),
    ('kind: linear', 'kind: 7', [
        '26:21: error_model.kind: must be one of movement...',
    ]),
    ('quantization: {family: pooling, outputs: {y: calibrated}}', 'quantization: pooling', [
        "27:15: quantization: must be a mapping, got 'pooling'.",
    ]),
    ('family: pooling, ', '', [
        '27:15: quantization.family: must be given: the operator family. Platforms choose requantization variants by family.',
    ]),
    ('tiling:\n  n: {rule: independent}\n', 'tiling:\n  none: [why]\n', [
        "29:9: tiling.none: must be text, got ['why'].",
        '30:3: tiling.oh: no such key. Known keys: none.',
    ]),
    ('rule: halo', 'rule: hallo', [
        '30:14: tiling.oh.rule: must be one of independent...',
    ]),
    ('data: [zeros', 'data: [zero', [
        '31:8: data.0: must be one of zeros...',
    ]),
    ('data: [zeros, ties, random]', 'data: []', [
        '31:7: data: must have a length of at least 1, got [].',
    ]),
    ('data: [zeros, ties, random]', 'data: [zeros, ties, zeros]', [
        "31:21: data.2: 'zeros' is listed before.",
    ]),
    ('before: [padding, 0]', 'before: [padding]', [
        "30:64: tiling.oh.before: must have a length of at least 2, got ['padding'].",
    ]),
    ('  n: {min: 1', '  N: {min: 1', [
        "6:3: dims.N: must be snake_case: small letters, digits and _, a letter first, got 'N'.",
    ]),
    ('derived:', 'drived:', [
        "44:5: formats.compass.drived: no such key. Did you mean 'derived'?",
    ]),
    ('  compass:\n', '  compas:\n', [
        "40:3: formats.compas: no such file format. Did you mean 'compass'?",
    ]),
    ('formats:', 'format:', [
        "39:1: format: no such key. Did you mean 'formats'?",
    ]),
    ('n: {min: 1, max: 3,', 'n: {min: 4, max: 3,', [
        '6:20: dims.n.max: must be at least min=4, got 3.',
        "6:41: dims.n.bins.one.max: 1 is below the domain's min=4: no value reaches this bin.",
    ]),
    ('n: {min: 1, max: 3,', 'n: {min: 1,', [
        '6:6: dims.n: type int must have min and max, or choices.',
    ]),
    ('one: {max: 1}', 'one: {}', [
        '6:35: dims.n.bins.one: must have min, max or value.',
    ]),
    ('one: {max: 1}', 'one: {max: 1, value: 1}', [
        '6:35: dims.n.bins.one: has both value and min or max. Keep one of them.',
    ]),
    ('one: {max: 1}', 'one: {min: 7}', [
        "6:41: dims.n.bins.one.min: 7 is above the domain's max=3: no value reaches this bin.",
    ]),
    ('one: {max: 1}', 'one: {value: 9}', [
        '6:43: dims.n.bins.one.value: must be at most 3, got 9. No value reaches this bin.',
    ]),
    ('one: {max: 1}', 'one: {value: h}', [
        "6:43: dims.n.bins.one.value: must be an integer, got 'h'. Write min and max for an expression.",
    ]),
    ('one: {max: 1}', 'one: {min: 2, max: 1}', [
        '6:49: dims.n.bins.one.max: must be at least min=2, got 1.',
    ]),
    ('sum: {value: sum}', 'sum: {value: som}', [
        "13:100: attrs.mode.bins.sum.value: must be one of 'mean', 'sum', got 'som'. Did you mean 'sum'?",
    ]),
    ('sum: {value: sum}', 'sum: {max: 3}', [
        '13:92: attrs.mode.bins.sum: a bin of type enum must have a value.',
    ]),
    ('choices: [mean, sum], ', '', [
        '13:9: attrs.mode: type enum must list its choices, as in choices: [nearest, linear].',
    ]),
    ('choices: [mean, sum]', 'choices: [mean, mean]', [
        "13:38: attrs.mode.choices.1: 'mean' is listed before.",
    ]),
    ('default: mean', 'default: mid', [
        "13:53: attrs.mode.default: must be one of 'mean', 'sum', got 'mid'.",
    ]),
    ('default: false', 'default: 0', [
        '14:32: attrs.exact.default: must be true or false, got 0.',
    ]),
    ('default: [0, 0]', 'default: [0, 0, 0]', [
        '11:49: attrs.padding.default: must be a list of 2 integers, got [0, 0, 0].',
    ]),
    ('default: [0, 0]', 'default: [0, 3]', [
        '11:49: attrs.padding.default: must be at most 2, got [0, 3].',
    ]),
    ('default: [0, 0]', 'default: 0', [
        '11:49: attrs.padding.default: must be a list of 2 integers, got 0.',
    ]),
    ('default: 1.0', 'default: 3.0', [
        '15:53: attrs.slope.default: must be at most 2.0, got 3.0.',
    ]),
    ('default: 1.0', 'default: true', [
        '15:53: attrs.slope.default: must be a number, got true.',
    ]),
    ('type: bool, ', 'type: bool, min: 0, ', [
        '14:23: attrs.exact.min: does not apply to type bool. Its keys: default and bins only.',
    ]),
    ('multiple_of: groups, ', 'multiple_of: 0, ', [
        '7:20: dims.c.multiple_of: must be at least 1, got 0.',
    ]),
    ('multiple_of: groups, min: groups, max: 2 * groups', 'multiple_of: 4, min: 1, max: 3', [
        '7:20: dims.c.multiple_of: no multiple of 4 lies between 1 and 3.',
    ]),
    ('min: kernel, max: kernel + 4', 'min: kernel, max: kernel - 1', [
        '8:6: dims.h: nothing lies in min=1, max=0 with kernel=1.',
    ]),
    ('min: kernel, max: kernel + 4', 'min: kernel, max: kernel / 2 + 4', [
        "8:6: dims.h: expression 'kernel / 2 + 4': must be an integer, got 4.5 with kernel=1.",
    ]),
    ('kernel: {min: 1', 'kernel: {min: h', [
        '8:6: dims.h: domains need each other: h needs kernel, kernel needs h. Break the circle.',
    ]),
    ('kernel: {min: 1', 'kernel: {min: kernel', [
        '10:11: attrs.kernel: the domain of kernel names kernel itself. Break the circle.',
    ]),
    ('  exact: {', '  n: {', [
        '14:3: attrs.n: is declared in dims too. Choose another name.',
        '33:27: examples.0.values.n: must be true or false, got 1.',
    ]),
    ('  exact: {', '  x: {', [
        '17:3: inputs.x: is declared in attrs too. Choose another name.',
    ]),
    ('  exact: {', '  len: {', [
        '14:3: attrs.len: is a word of the language. Choose another name.',
    ]),
    ('  exact: {', '  lambda: {', [
        '14:3: attrs.lambda: is a word of the language. Choose another name.',
    ]),
    ('x: {axes: [n, c, h]}', 'x: {axes: [n, c, hh]}', [
        '8:3: dims.h: is not an axis of a required input by itself, so its size cannot be read from shapes. Make it an attr.',
        "17:20: inputs.x.axes.2: name 'hh' is neither a dim nor an attr. Did you mean 'h'?",
        "30:26: tiling.oh.axis: no such axis of an input. Did you mean 'hh'?",
    ]),
    ('x: {axes: [n, c, h]}', 'x: {axes: [n, c, h + 1]}', [
        '8:3: dims.h: is not an axis of a required input by itself, so its size cannot be read from shapes. Make it an attr.',
        '30:26: tiling.oh.axis: no such axis of an input. Known: n, c.',
    ]),
    ('x: {axes: [n, c, h]}', 'x: {axes: [n, c, h], role: weight}', [
        '16:1: inputs: must have an input of role activation.',
    ]),
    ('x: {axes: [n, c, h]}', 'x: {axes: [n, c, h], channel_axis: 3}', [
        '17:38: inputs.x.channel_axis: must be the index of an axis of x, got 3.',
    ]),
    ('x: {axes: [n, c, h]}', 'x: {axes: [n, c, h], domain: [1, 1]}', [
        '17:32: inputs.x.domain: must be [smallest, largest], got [1, 1].',
    ]),
    ('y: {axes: [n, c, oh]}', 'y: {axes: [n, oh]}', [
        '20:13: outputs.y.axes: y has 2 axes, its shape has 3.',
    ]),
    ('y: {axes: [n, c, oh]}', 'y: {axes: [n, c, oh]}\n  z: {}', [
        '23:3: shape.z: must be given: the shape of the output.',
    ]),
    ('  y: [n, c, "h +', '  z: [n, c, "h +', [
        '22:3: shape.y: must be given: the shape of the output.',
        '22:3: shape.z: no such output. Known: y.',
    ]),
    ('padding[1] - kernel', 'padding[2] - kernel', [
        "22:13: shape.y.2: expression 'h + padding[0] + padding[2] - kernel + 1': tuple index out of range with the smallest values of the domains (h=1, kernel=1, padding=[0, 0]).",
    ]),
    ('padding[1] - kernel', 'padding - kernel', [
        "22:13: shape.y.2: expression 'h + padding[0] + padding - kernel + 1': only numbers can be computed with, got 1 and (0, 0) with the smallest values of the domains (h=1, kernel=1, padding=[0, 0]).",
    ]),
    ('padding[1] - kernel + 1', 'padding[1] - 9 * kernel', [
        '22:13: shape.y.2: h + padding[0] + padding[1] - 9 * kernel must be a size, got -8 with the smallest values of the domains (h=1, kernel=1, padding=[0, 0]).',
    ]),
    ('terms: kernel', 'terms: kernel / 2', [
        '26:36: error_model.terms: kernel / 2 must be an integer, got 0.5 with the smallest values of the domains (kernel=1).',
    ]),
    ('terms: kernel', 'terms: kernl', [
        "26:36: error_model.terms: name 'kernl' is neither a dim nor an attr. Did you mean 'kernel'?",
    ]),
    ('require: c % groups == 0', 'require: 4 % 2 == 0', [
        '24:15: constraints.0.require: names no dim and no attr, so it says nothing about a graph.',
    ]),
    ('require: c % groups == 0', 'require: c % groups == 0 or true', [
        '24:15: constraints.0.require: is true whatever the graph. Remove it or correct it.',
    ]),
    ('require: c % groups == 0', 'require: c < c', [
        '24:15: constraints.0.require: is false whatever the graph. Remove it or correct it.',
    ]),
    ('require: c % groups == 0', 'require: c % 2 == 0', [
        '24:15: constraints.0.require: c % 2 == 0 is false with the smallest values of the domains (c=1). Narrow a domain so that it always holds.',
    ]),
    ('groups={groups} must', 'groups={group} must', [
        "24:39: constraints.0.error: {group} is neither a dim nor an attr. Did you mean 'groups'?",
    ]),
    ('groups={groups} must', 'groups={groups[0]} must', [
        '24:39: constraints.0.error: {groups[0]} must be a plain name, as in {stride}.',
    ]),
    ('groups={groups} must', 'groups={groups!r} must', [
        '24:39: constraints.0.error: {groups!r} must be a plain name, as in {stride}.',
    ]),
    ('groups={groups} must', 'groups={0} must', [
        '24:39: constraints.0.error: {0} must be a plain name, as in {stride}.',
    ]),
    ('groups={groups} must', 'groups={groups must', [
        "24:39: constraints.0.error: unexpected '{' in field name. Write {{ and }} for braces.",
    ]),
    ('error: "kernel={kernel} must fit h={h}"', 'error: ""', [
        '25:35: constraints.1.error: must say what is wrong.',
    ]),
    ('  n: {rule: independent}', '  m: {rule: independent}', [
        '29:3: tiling.m: no axis of an output has that name. Known: n, c, oh, *.',
    ]),
    ('  n: {rule: independent}', '  n: {rule: accumulate, axis: c}', [
        "29:31: tiling.n.axis: must be n, the axis that is cut, got 'c'.",
    ]),
    ('  n: {rule: independent}', '  n: {rule: accumulate}', [
        '29:6: tiling.n.axis: must be given for rule accumulate.',
    ]),
    ('  n: {rule: independent}', '  n: {rule: independent, axis: n}', [
        '29:26: tiling.n.axis: does not apply to rule independent. Remove it.',
    ]),
    ('  n: {rule: independent}', '  n: {rule: independent, when: i > 1}', [
        "29:32: tiling.n.when: name 'i' is neither a dim nor an attr. Known: n, c, h, kernel, padding, groups, mode, exact, slope.",
    ]),
    ('stride: 1, window: kernel, ', 'window: kernel, ', [
        '30:7: tiling.oh.stride: must be given for rule halo.',
    ]),
    ('axis: h, stride', 'axis: oh, stride', [
        "30:26: tiling.oh.axis: no such axis of an input. Did you mean 'h'?",
    ]),
    ('before: [padding, 0]', 'before: [padding, 2]', [
        '30:74: tiling.oh.before.1: padding has no index 2: its length is 2.',
    ]),
    ('before: [padding, 0]', 'before: [kernel, 0]', [
        '30:73: tiling.oh.before.1: kernel has no index 0: it is not a list.',
    ]),
    ('before: [padding, 0]', 'before: [paddin, 0]', [
        "30:65: tiling.oh.before.0: no such attr. Did you mean 'padding'?",
    ]),
    ('before: [padding, 0]', 'before: [0, padding]', [
        "30:64: tiling.oh.before: must be [attr, index], as in [padding, 0], got [0, 'padding'].",
    ]),
    ('kind: linear', 'kind: piecewise_monotone', [
        '26:14: error_model.critical_points: must be given for piecewise_monotone: where the function turns.',
    ]),
    ('kind: linear', 'kind: poles, critical_points: [1]', [
        '26:14: error_model.period: must be given: poles other than that of a quotient are named by one of each kind and their period.',
    ]),
    ('kind: linear', 'kind: poles, period: 1', [
        '26:14: error_model.critical_points: must be given: poles other than that of a quotient are named by one of each kind and their period.',
    ]),
    ('terms: kernel}', 'terms: kernel, critical_points: [0]}', [
        '26:44: error_model.critical_points: do not apply to kind linear. Remove them.',
    ]),
    ('y: calibrated', 'z: calibrated', [
        '27:43: quantization.outputs.z: no such output. Known: y.',
    ]),
    ('y: calibrated', 'y: same_as(bias)', [
        '27:46: quantization.outputs.y: same_as: no such activation. Known: x.',
    ]),
    ('y: calibrated', 'y: float', [
        "27:46: quantization.outputs.y: must be calibrated, index or same_as(<input>), got 'float'.",
    ]),
    ('n: 1, c: 1, h: 3, kernel: 3', 'n: 1, c: 1, h: 3, kernel: 3, k: 1', [
        '33:53: examples.0.values.k: no such dim or attr. Known: n, c, h, kernel, padding, groups, mode, exact, slope.',
    ]),
    ('n: 1, c: 1, h: 3, kernel: 3', 'n: 1, c: 1, h: 3', [
        '33:23: examples.0.values: must give kernel: there is no default.',
    ]),
    ('n: 1, c: 1, h: 3, kernel: 3', 'n: 1, c: 1, h: 3, kernel: 4', [
        '33:23: examples.0.values: kernel <= h is false with the values of example one (h=3, kernel=4).',
    ]),
    ('n: 1, c: 1, h: 3, kernel: 3', 'n: 1, c: 1, h: [3], kernel: 3', [
        '33:39: examples.0.values.h: must be an integer, got [3].',
    ]),
    ('omit: [bias]', 'omit: [x]', [
        '33:61: examples.0.omit.0: no such optional input. Known: bias.',
    ]),
    ('data: ties', 'data: ties, ranges: {x: [2.0, -1.5]}', [
        '33:92: examples.0.ranges.x: must be [smallest, largest], got [2.0, -1.5]. Write [-1.5, 2.0].',
    ]),
    ('data: ties', 'data: ties, ranges: {z: [0.0, 1.0]}', [
        '33:89: examples.0.ranges.z: no such input or output. Known: x, bias, y.',
    ]),
    ('data: ties', 'data: tie', [
        '33:74: examples.0.data: must be one of zeros...',
    ]),
    ('  - {id: one,', '  - {id: one, values: {n: 1, c: 1, h: 3, kernel: 3}}\n  - {id: one,', [
        "34:10: examples.1.id: another example is called 'one'.",
    ]),
    ('relation: equivariant, axis: n', 'relation: equivariant', [
        '35:5: properties.0.axis: must be given for equivariant.',
    ]),
    ('relation: equivariant, axis: n', 'relation: equivariant, axis: oh', [
        '35:35: properties.0.axis: no such axis of an input and the output. Known: n, c.',
    ]),
    ('relation: equivariant, axis: n', 'relation: commutes, operands: [x]', [
        '35:36: properties.0.operands: must name 2 or more inputs for commutes.',
    ]),
    ('relation: equivariant, axis: n', 'relation: shift_invariant, operands: [z]', [
        '35:44: properties.0.operands.0: no such input. Known: x, bias.',
    ]),
    ('scheme: a16, ', '', [
        '37:5: excludes.0: must name a scheme, a platform or both.',
    ]),
    ('reason: no table', 'reason: ""', [
        '37:27: excludes.0.reason: must say why.',
    ]),
    ('torch.nn.functional.avg_pool1d', 'os.system', [
        "38:9: oracle: must be the dotted name of a torch, numpy, scipy.special or onnx function, or none, got 'os.system'. Write torch.nn.functional.relu, say.",
    ]),
    ('attrs: {padding: [pad_left, pad_right]', 'attrs: {padding: [pad_left]', [
        '43:22: formats.compass.attrs.padding: names 1 key; padding has 2 entries.',
    ]),
    ('attrs: {padding: [pad_left, pad_right]', 'attrs: {pading: [pad_left, pad_right]', [
        "43:13: formats.compass.attrs.pading: no such attr. Did you mean 'padding'?",
    ]),
    ('inputs: {bias: biases}', 'inputs: {b: biases}', [
        '42:14: formats.compass.inputs.b: no such input. Known: x, bias.',
    ]),
    ('channels: c', 'channels: c *', [
        "44:25: formats.compass.derived.channels: expression 'c *': invalid syntax.",
    ]),
    ('channels: c', 'channels: channels', [
        "44:25: formats.compass.derived.channels: name 'channels' is neither a dim nor an attr. Known: n, c, h, kernel, padding, groups, mode, exact, slope.",
    ]),
]  # fmt: skip
"""What is replaced, by what, and the messages: `line:column: location: value and rule`; `...` leaves out the end."""


def heads(error: SpecError, name: str) -> list[str]:
    return [line.removeprefix(f"{name}:") for line in str(error).split("\n") if line.startswith(f"{name}:")]


def agrees(found: str, expected: str) -> bool:
    return found.startswith(expected.removesuffix("...")) if expected.endswith("...") else found == expected


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("old", "new", "expected"), MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_spec(folder: Path, old: str, new: str, expected: list[str]) -> None:
    assert BASE.count(old) >= 1
    path = folder / "pool.yaml"
    path.write_text(BASE.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    found = heads(caught.value, "pool.yaml")
    assert len(found) == len(expected), found
    assert all(map(agrees, found, expected)), found
    assert "Input should" not in str(caught.value)


@pytest.mark.parametrize(("old", "new", "expected"), MALFORMED, ids=range(len(MALFORMED)))
def test_each_message_shows_its_line_and_a_caret_under_the_column(
    folder: Path, old: str, new: str, expected: list[str]
) -> None:
    path = folder / "pool.yaml"
    text = BASE.replace(old, new, 1)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    lines = str(caught.value).split("\n")
    assert len(lines) == 3 * len(expected)
    for head, shown, caret in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        number, column = (int(part) for part in head.split(":")[1:3])
        source = text.split("\n")[number - 1]
        assert shown[4:] in source
        at = caret.index("^")
        assert shown[at : at + 1] == source[column - 1 : column]
        assert shown[at:] == source[column - 1 :][: len(shown) - at]


def test_all_errors_of_a_file_are_reported_in_order(folder: Path) -> None:
    path = folder / "pool.yaml"
    wrong = (
        BASE.replace("optional: true", "optional: yes").replace("op: pool", "op: 3").replace("length: 2", "lenght: 2")
    )
    path.write_text(
        wrong.replace("rule: halo", "rule: hallo").replace("kernel: {min: 1", "kernel: {min: 1 +"), encoding="utf-8"
    )
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    assert [head.split(" ")[1] for head in heads(caught.value, "pool.yaml")] == [
        "op:",
        "attrs.kernel.min:",
        "attrs.padding.lenght:",
        "inputs.bias.optional:",
        "tiling.oh.rule:",
    ]


def test_a_message_counts_the_errors_beyond_the_first_forty(folder: Path) -> None:
    path = folder / "pool.yaml"
    path.write_text(BASE + "".join(f"wrong_{number}: 1\n" for number in range(45)), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    assert len(heads(caught.value, "pool.yaml")) == 40
    assert str(caught.value).endswith("and 5 more errors. Correct these first: the others may follow from them.")


@pytest.mark.parametrize("text", ["", "# nothing\n", "[]\n", "pool\n", "3\n"])
def test_a_file_without_a_mapping(folder: Path, text: str) -> None:
    (folder / "pool.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"^pool\.yaml:1:1: must be a mapping with the keys op, version"):
        load_spec(folder / "pool.yaml")


def test_a_spec_is_bounded(folder: Path) -> None:
    path = folder / "pool.yaml"
    path.write_text(BASE + "#\n" * (MAX_LINES - BASE.count("\n") - 1), encoding="utf-8")
    load_spec(path)
    path.write_text(BASE + "#\n" * (MAX_LINES - BASE.count("\n")), encoding="utf-8")
    with pytest.raises(SpecError, match=f"{MAX_LINES + 1} lines; at most {MAX_LINES} are read"):
        load_spec(path)
    many = "".join(f"  extra{i}: {{type: bool}}\n" for i in range(32))
    examples = BASE.index("examples:"), BASE.index("properties:")
    shorter = BASE[: examples[0]] + BASE[examples[1] :]
    path.write_text(
        shorter.replace("  groups: {min", many[: many.index("  extra31")] + "  groups: {min"), encoding="utf-8"
    )
    load_spec(path)
    path.write_text(shorter.replace("  groups: {min", many + "  groups: {min"), encoding="utf-8")
    with pytest.raises(SpecError, match="41 dims and attrs; at most 40 are read"):
        load_spec(path)


def test_paths_are_relative_to_the_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = folder / "specs" / "deep"
    inner.mkdir(parents=True)
    (inner / "pool.yaml").write_text("op: 3\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"(?m)^specs/deep/pool\.yaml:1:5: op: "):
        load_spec(inner / "pool.yaml")
    monkeypatch.chdir(inner)
    (folder / "pool.yaml").write_text("op: 3\n", encoding="utf-8")
    with pytest.raises(SpecError, match=f"(?m)^{folder}/pool.yaml:1:5: op: "):
        load_spec(folder / "pool.yaml")


def test_a_good_spec_is_read_with_its_positions(folder: Path) -> None:
    (folder / "pool.yaml").write_text(BASE, encoding="utf-8")
    spec, positions = read_spec(folder / "pool.yaml")
    assert spec.op == "pool"
    assert spec.attrs["padding"].default == [0, 0]
    assert positions.keys[("constraints", 1, "error")] == Mark(25, 28)
    assert positions.values[("tiling", "oh", "before", 1)] == Mark(30, 74)
    assert draw_order(spec) in (
        ("n", "kernel", "h", "padding", "groups", "c", "mode", "exact", "slope"),
        ("n", "groups", "c", "kernel", "h", "padding", "mode", "exact", "slope"),
    )


def test_draw_order_puts_dependencies_first() -> None:
    for spec in load_library().specs.values():
        order = draw_order(spec)
        assert sorted(order) == sorted([*spec.dims, *spec.attrs])
    conv = draw_order(load_library().specs["conv2d"])
    for before, after in [("groups", "c_in"), ("groups", "c_out"), ("kh", "h"), ("dilation", "h"), ("padding", "w")]:
        assert conv.index(before) < conv.index(after)
    assert conv.index("n") == 0


SCHEMES = """\
weights:
  w8: {bits: 8}
  w8pt: {bits: 8, granularity: tensor}
activations:
  a8: {bits: 8}
  a16: {bits: 16}
schemes: [w8a8, w8pta16]
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[w8a8,", "[w8a4,", "7:11: schemes.0: 'w8a4' is not a weight part followed by an activation part. Did you mean 'w8a8'?"),
        ("[w8a8,", "[a8,", "7:11: schemes.0: 'a8' is declared before."),
        ("[w8a8,", "[w8pta16,", "7:20: schemes.1: 'w8pta16' is declared before."),
        ("  a16: {bits: 16}", "  pta16: {bits: 16}\n  a16: {bits: 16}", "8:17: schemes.1: 'w8pta16' can be read as w8 + pta16 and as w8pt + a16. Rename a part."),
        ("  a16: {bits: 16}", "  w8: {bits: 16}", "6:3: activations.w8: a part or scheme of that name is declared before."),
        ("w8: {bits: 8}", "w8: {bits: 1}", "2:14: weights.w8.bits: must be at least 2, got 1."),
        ("w8: {bits: 8}", "w8: {bit: 8}", "2:8: weights.w8.bit: no such key. Did you mean 'bits'?"),
        ("w8: {bits: 8}", "w-8: {bits: 8}", "2:3: weights.w-8: must be small letters and digits, a letter first, and at most one suffix after a _, such as w8pt, a16 or a8_pow2, got 'w-8'."),
        ("  a16: {bits: 16}", "  a16_pow2: {bits: 16}", "7:17: schemes.1: 'w8pta16' is not a weight part followed by an activation part. Did you mean 'w8pta8'?"),
        ("granularity: tensor", "granularity: chanel", "3:32: weights.w8pt.granularity: must be one of tensor, channel, block, got 'chanel'. Did you mean 'channel'?"),
        ("bits: 16", "bits: '16'", "6:15: activations.a16.bits: must be an integer, got '16'."),
    ],
)  # fmt: skip
def test_a_malformed_schemes_file(folder: Path, old: str, new: str, expected: str) -> None:
    (folder / "schemes.yaml").write_text(SCHEMES.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_schemes(folder / "schemes.yaml")
    assert expected in heads(caught.value, "schemes.yaml")


def test_scheme_parts_with_one_suffix_combine_under_it(folder: Path) -> None:
    added = "  a8_pow2: {bits: 8, rule: power_of_two}\nschemes: [w8a8_pow2, "
    text = SCHEMES.replace("weights:\n", "weights:\n  w8_pow2: {bits: 8, rule: power_of_two}\n").replace(
        "schemes: [", added
    )
    (folder / "schemes.yaml").write_text(text, encoding="utf-8")
    found = all_schemes(load_schemes(folder / "schemes.yaml"))
    scheme = found["w8a8_pow2"]
    assert scheme.weight is not None
    assert (scheme.weight.rule, scheme.activation.rule) == ("power_of_two", "power_of_two")
    assert found["w8a8"].activation.rule == "linear"


PLATFORM = """\
platform: chip
summary: A chip.
schemes: [w8a8, a8]
requantize: {default: exact, convolution: q31_half_up}
multiplier: {bits: activation}
accumulator: {bits: 32, overflow: wrap}
fixed_outputs: {softmax: {scale: 0.5, zero_point: min}}
index_dtype: int64
defects:
  - {id: a, ops: [softmax], predicate: n > 1, checks: [accuracy], case: a.json, reason: measured}
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("platform: chip", "platform: ship", "1:11: platform: must equal the file's name, got 'ship'. Write platform: chip."),
        ("[w8a8, a8]", "[w8a8, w8a8]", "3:17: schemes.1: 'w8a8' is listed before."),
        ("default: exact, ", "", "4:13: requantize.default: must be given: the variant of families that are not named."),
        ("q31_half_up", "roy", "4:43: requantize.convolution: must be one of exact..."),
        ("bits: activation", "bits: activations", "5:20: multiplier.bits: must be activation, got 'activations'. Did you mean 'activation'?"),
        ("bits: activation", "bits: 3.5", "5:20: multiplier.bits: must be an integer, got 3.5."),
        ("bits: activation", "bits: 99", "5:20: multiplier.bits: must be at most 64, got 99."),
        ("scale: 0.5", "scale: 0", "7:34: fixed_outputs.softmax.scale: must be above 0.0, got 0."),
        ("scale: 0.5", "scale: .nan", "7:34: fixed_outputs.softmax.scale: must be a finite number, got nan."),
        ("scale: 0.5", "scale: yes", "7:34: fixed_outputs.softmax.scale: must be a number, got 'yes'."),
        ("zero_point: min", "zero_point: mid", "7:51: fixed_outputs.softmax.zero_point: must be one of min, middle, got 'mid'. Did you mean 'min'?"),
        ("int64", "intt64", "8:14: index_dtype: 'intt64': no such integer format. Did you mean 'int64'?"),
        ("int64", "float32", "8:14: index_dtype: 'float32': no such integer format. Known: int2, ..."),
        ("n > 1", "n >", "10:40: defects.0.predicate: expression 'n >': invalid syntax."),
        ("[accuracy]", "[acuracy]", "10:56: defects.0.checks.0: no such check. Did you mean 'accuracy'?"),
        (", reason: measured", "", "10:5: defects.0.reason: must be given: what the real system does, and the source of this knowledge."),
    ],
)  # fmt: skip
def test_a_malformed_platform(folder: Path, old: str, new: str, expected: str) -> None:
    (folder / "chip.yaml").write_text(PLATFORM, encoding="utf-8")
    assert read_platform(folder / "chip.yaml")[0].platform == "chip"
    (folder / "chip.yaml").write_text(PLATFORM.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        read_platform(folder / "chip.yaml")
    assert any(agrees(head, expected) for head in heads(caught.value, "chip.yaml")), caught.value


def vendor(folder: Path) -> Path:
    (folder / "platforms").mkdir()
    (folder / "pool.yaml").write_text(BASE, encoding="utf-8")
    (folder / "schemes.yaml").write_text("activations:\n  a6: {bits: 6}\nschemes: [w4a6]\n", encoding="utf-8")
    chip = PLATFORM.replace("[w8a8, a8]", "[w8a8, w4a6, a6, a16, a8]")
    (folder / "platforms" / "chip.yaml").write_text(chip, encoding="utf-8")
    return folder


def test_a_folder_adds_specs_schemes_and_platforms_to_the_library(folder: Path) -> None:
    library = load_library([vendor(folder)])
    assert library.paths["pool"] == folder.resolve() / "pool.yaml"
    assert library.schemes["w4a6"].weight is not None
    assert library.schemes["w4a6"].weight.bits == 4
    assert library.schemes["w4a6"].activation.bits == 6
    assert library.schemes["a6"].weight is None
    chip = library.platforms["chip"]
    assert library.schemes_for(library.specs["pool"], chip) == ["a6", "a8"]
    assert library.schemes_for(library.specs["conv2d"], chip) == ["w8a8", "w4a6"]
    assert library is load_library([folder])
    assert library.positions["pool"].mark(("op",)) == Mark(1, 5)


def test_schemes_for_follows_the_platform_and_the_excludes(folder: Path) -> None:
    library = load_library([vendor(folder)])
    pool, chip = library.specs["pool"], library.platforms["chip"]

    def schemes(**excluded: str) -> list[str]:
        changed = pool.model_copy(update={"excludes": [type(pool.excludes[0])(reason="r", **excluded)]})
        return library.schemes_for(changed, chip)

    assert schemes(scheme="a8") == ["a6", "a16"]
    assert schemes(scheme="a8", platform="chip") == ["a6", "a16"]
    assert schemes(scheme="a8", platform="ideal") == ["a6", "a16", "a8"]
    assert schemes(platform="chip") == []
    assert schemes(platform="ideal") == ["a6", "a16", "a8"]
    assert library.schemes_for(pool, chip.model_copy(update={"ops": ["conv2d"]})) == []
    assert library.schemes_for(pool, chip.model_copy(update={"ops": ["pool"]})) == ["a6", "a8"]


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("pool.yaml", "scheme: a16", "scheme: a17", "pool.yaml:37:14: excludes.0.scheme: no such scheme. Did you mean 'a16'?"),
        ("pool.yaml", "scheme: a16", "platform: chop", "pool.yaml:37:16: excludes.0.platform: no such platform. Did you mean 'chip'?"),
        ("platforms/chip.yaml", "a16,", "a61,", "platforms/chip.yaml:3:27: schemes.3: no such scheme. Did you mean 'a6'?"),
        ("schemes.yaml", "a6:", "a8:", "schemes.yaml:2:3: activations.a8: a part or scheme of that name is declared before."),
    ],
)  # fmt: skip
def test_names_across_files_must_exist(folder: Path, file: str, old: str, new: str, expected: str) -> None:
    path = vendor(folder) / file
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_library([folder])
    assert expected in str(caught.value).split("\n")


def test_an_operator_declared_twice_names_both_files(folder: Path) -> None:
    (folder / "conv2d.yaml").write_bytes((shipped_folder() / "conv2d.yaml").read_bytes())
    with pytest.raises(
        SpecError, match=r"^conv2d\.yaml:2:5: op: operator 'conv2d' is declared in .*op_specs/conv2d\.yaml too"
    ):
        load_library([folder])


def test_problems_of_all_files_are_reported_together(folder: Path) -> None:
    (folder / "one.yaml").write_text("op: 3\n", encoding="utf-8")
    (folder / "two.yaml").write_text("op: [\n", encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_library([folder])
    assert "one.yaml:1:5: op: must be text" in str(caught.value)
    assert "two.yaml:2:1: not YAML" in str(caught.value)
    (folder / "one.yaml").unlink()
    (folder / "two.yaml").unlink()
    assert load_library([folder]).specs.keys() == load_library().specs.keys()


def test_a_path_that_does_not_exist(folder: Path) -> None:
    with pytest.raises(SpecError, match=r"^gone: no such file or folder\.$"):
        load_library([folder / "gone"])


def test_a_single_file_and_a_repeated_folder_count_once(folder: Path) -> None:
    (folder / "pool.yaml").write_text(BASE, encoding="utf-8")
    library = load_library([folder / "pool.yaml", folder, shipped_folder(), shipped_folder() / "conv2d.yaml"])
    assert library.specs.keys() == {*load_library().specs, "pool"}


def test_lookups_name_the_nearest() -> None:
    library = load_library()
    assert library.spec("conv2d").op == "conv2d"
    with pytest.raises(SpecError, match=r"'conv2': no such operator\. Did you mean 'conv2d'\?"):
        library.spec("conv2")
    with pytest.raises(SpecError, match=r"'w8a9': no such scheme\. Did you mean 'w8a"):
        library.scheme("w8a9")
    with pytest.raises(SpecError, match=r"'compas': no such platform\. Did you mean 'compass'\?"):
        library.platform("compas")


def test_rules_for_unknown_operators_or_families_are_found(folder: Path) -> None:
    chip = (
        PLATFORM.replace("softmax: {", "sofmax: {")
        .replace("convolution: q31_half_up", "convolutoin: q31_half_up")
        .replace("[softmax]", "[sofmax]")
    )
    (folder / "platforms").mkdir()
    (folder / "platforms" / "chip.yaml").write_text(chip, encoding="utf-8")
    found = [text.split("\n")[0] for text in unused_names(load_library([folder]))]
    assert found == [
        "platforms/chip.yaml:7:17: fixed_outputs.sofmax: no such operator. Did you mean 'softmax'?",
        "platforms/chip.yaml:10:19: defects.0.ops.0: no such operator. Did you mean 'softmax'?",
        "platforms/chip.yaml:4:30: requantize.convolutoin: no operator is of that family. Did you mean 'convolution'?",
    ]


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("per_channel_weights: [sofmax]", "per_channel_weights.0"),
        ("aligned_within: {sofmax: 2.0}", "aligned_within.sofmax"),
        ("multiplier: {own_shifts: [sofmax]}", "multiplier.own_shifts.0"),
        ("multiplier: {ratio: {sofmax: float32}}", "multiplier.ratio.sofmax"),
        ("tables: {fast: {sofmax: power_of_two}}", "tables.fast.sofmax"),
        ("scheme_families: {a8: [sofmax]}", "scheme_families.a8.0"),
    ],
)
def test_a_misspelt_family_is_found_in_every_rule_for_families(folder: Path, line: str, where: str) -> None:
    (folder / "platforms").mkdir()
    rules = PLATFORM.replace("multiplier: {bits: activation}\n", "") if line.startswith("multiplier") else PLATFORM
    (folder / "platforms" / "chip.yaml").write_text(f"{rules.rstrip()}\n{line}\n", encoding="utf-8")
    (found,) = unused_names(load_library([folder]))
    assert f"{where}: no operator is of that family. Did you mean 'softmax'?" in found


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("linear", "'fully_connected'"),
        ("Gemm", "'fully_connected'"),
        ("BatchNormalization", "'batch_norm'"),
        ("conv2", "'conv2d'"),
    ],
)
def test_operators_are_suggested_by_their_names_elsewhere(name: str, hint: str) -> None:
    with pytest.raises(SpecError, match=rf"no such operator\. Did you mean {hint}"):
        load_library().spec(name)


def test_an_activation_given_as_operator_gets_a_suggestion() -> None:
    with pytest.raises(SpecError, match=r"no such operator\. Operators fuse relu6; on its own it is the operator clip"):
        load_library().spec("relu6")


def test_an_operator_given_as_family_gets_the_family(folder: Path) -> None:
    (folder / "platforms").mkdir()
    text = f"{PLATFORM.rstrip()}\nper_channel_weights: [conv2d]\n"
    (folder / "platforms" / "chip.yaml").write_text(text, encoding="utf-8")
    (found,) = unused_names(load_library([folder]))
    assert "no operator is of that family. Write convolution: conv2d is of that family." in found


def test_every_rule_for_families_is_looked_through() -> None:
    """Lint checks names in each field whose docstring mentions operator families."""
    fields = {name for name, text in meanings(Platform).items() if "perator famil" in text}
    assert fields - {"output_signs", "scheme_families"} == {*FAMILY_LISTS, *FAMILY_KEYS} - {"output_signs"}


def test_shipped_files_name_only_existing_things() -> None:
    assert list(unused_names(load_library())) == []


def test_the_committed_schemas_are_fresh() -> None:
    assert stale_schemas(shipped_folder()) == []


def test_schemas_explain_every_key() -> None:
    for model in SCHEMAS.values():
        schema = json.loads(schema_text(model))
        for part in [schema, *schema["$defs"].values()]:
            assert part["description"]
            for name, entry in part["properties"].items():
                assert "$ref" in entry or entry.get("description"), (part["description"], name)


def test_schemas_are_the_same_bytes_every_time() -> None:
    command = "from quantizer.core.schema import schema_text; from quantizer.core.spec import Spec; print(schema_text(Spec), end='')"
    texts = {
        subprocess.run(
            [sys.executable, "-c", command],
            capture_output=True,
            check=True,
            text=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": package_parent()},
        ).stdout
        for seed in ("0", "1")
    }
    assert texts == {schema_text(Spec)}


def package_parent() -> str:
    return str(Path(quantizer.__file__).parents[1])


def test_every_shipped_file_names_its_schema_for_editors() -> None:
    folder = shipped_folder()
    for path in [*folder.glob("*.yaml"), *shipped_platforms()]:
        first = path.read_text(encoding="utf-8").split("\n", 1)[0]
        target = first.removeprefix("# yaml-language-server: $schema=")
        assert (path.parent / target).resolve().parent == folder.resolve(), path
        assert (path.parent / target).is_file(), path


def test_core_needs_neither_torch_nor_numpy() -> None:
    command = (
        "import sys; import quantizer.core.library as l; import quantizer.core.schema, quantizer.cli, quantizer.commands.spec; "
        "l.load_library(); print([m for m in ('torch', 'numpy', 'hypothesis', 'pytest', 'ruamel') if m in sys.modules])"
    )
    env = {"PYTHONPATH": package_parent()}
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, check=True, text=True, env=env)
    assert done.stdout.strip() == "[]"
