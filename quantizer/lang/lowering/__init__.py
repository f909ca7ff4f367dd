"""What each Top operator computes, in ONNX's standard operators: the one definition that runs and is exported."""
