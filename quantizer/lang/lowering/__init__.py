"""Defines each Top operator in ONNX's standard operators: the one definition that runs and is exported."""
