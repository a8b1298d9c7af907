"""External components: vLLM, transformers, peft, encoders, worker processes. They are imported inside functions."""
