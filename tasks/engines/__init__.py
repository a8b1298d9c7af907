"""The outside world (vLLM, transformers, peft, encoders, worker processes), imported inside functions."""
