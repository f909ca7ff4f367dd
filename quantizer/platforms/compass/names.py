"""Names of the files of a case that the Compass flow reads."""

GRAPH, BLOB, DATA, CFG = "graph.txt", "graph.bin", "data.npz", "opt.cfg"
