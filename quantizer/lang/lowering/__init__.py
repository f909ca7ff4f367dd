"""What each Top operator computes, said in ONNX's standard operators: the one definition that runs and that is exported."""
