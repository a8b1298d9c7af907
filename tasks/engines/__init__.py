"""External components (vLLM, transformers, peft, encoders, worker processes), imported inside functions."""
