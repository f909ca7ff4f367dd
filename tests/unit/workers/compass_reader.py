"""Our own reader and functions as an engine of the form `compass-ir`."""

import dataclasses
import io
import zipfile

import torch

from quantizer.core.library import load_library
from quantizer.ir.formats import compass
from quantizer.ir.formats.compass_read_back import with_parameters
from quantizer.ops import load_built_ins
from quantizer.runtime.executor import execute

NAME, VERSION, FORM = "compass_reader", "1.0", "compass-ir"
load_built_ins()
LIBRARY = load_library()


def load(model, options):
    files = zipfile.ZipFile(io.BytesIO(model))
    read = compass.from_bytes(files.read("graph.txt").decode(), files.read("graph.bin"))
    graph = with_parameters(compass.native(read, LIBRARY.specs), LIBRARY.specs, LIBRARY.platform("compass"))
    tensors = dict(graph.tensors)
    for node in graph.nodes:  # the constants of a layer as the functions read them: a bias without the zero point
        held = dict(zip(LIBRARY.specs[node.op].inputs, node.inputs)) if node.op in LIBRARY.specs else {}
        for key, constant in getattr(node.parameters, "constants", {}).items():
            spatial = LIBRARY.specs[node.op].inputs[key].spatial
            codes = constant.codes.movedim(1, -1) if spatial else constant.codes
            tensors[held[key]] = dataclasses.replace(tensors[held[key]], data=codes)
    return graph.with_(tensors=tensors)


def run(graph, feeds):
    codes = {name: torch.from_numpy(values).long() for name, values in feeds.items()}
    return [execute(graph, codes, LIBRARY.specs).values[graph.outputs[0]].numpy()]
