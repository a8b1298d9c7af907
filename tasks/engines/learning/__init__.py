"""Training: the learner's loop, LoRA, packed attention, checkpoints, processes."""
