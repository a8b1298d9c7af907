"""What trains: the learner's loop, LoRA, packed attention, checkpoints, processes."""
