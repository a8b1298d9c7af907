"""Group-relative policy optimisation without a model: types, losses, packing, order."""
