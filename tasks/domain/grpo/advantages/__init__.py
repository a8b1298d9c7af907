"""Advantages: how a group's rewards weight each of its rollouts."""
