from .models.graph_check import NodeVerdicts, check_graph

__all__ = [
    "NodeVerdicts",
    "check_graph",
]
