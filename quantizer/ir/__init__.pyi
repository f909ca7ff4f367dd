from .graph import Graph, Node, Tensor

__all__ = [
    "Graph",
    "Node",
    "Tensor",
]
