"""How a training's rollouts are sampled: in one turn or three, with one answer or several, by one agent or two."""
