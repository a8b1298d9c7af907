"""Search methods at test time. They request rollouts, and never see a gold."""
