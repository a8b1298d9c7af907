"""Reward models: how good an answer is, or what of it is written so far."""
