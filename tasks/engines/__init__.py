"""External components (vLLM, transformers, peft, encoders, worker processes), which are imported inside functions."""
