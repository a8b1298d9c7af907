"""Advantages: objectives turn the rewards of a group into one weight for each of its rollouts."""
