"""Whole networks: judged node by node, compared on two engines, cut into cases."""
