"""Group-relative policy optimisation (GRPO) without a model: data types, losses, packing, order of problems."""
