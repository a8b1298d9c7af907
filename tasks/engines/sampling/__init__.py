"""Sampling engines: vLLM, transformers, a remote server, and the sampler that drives one of them."""
