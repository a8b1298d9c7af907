"""Search methods at test time. A method requests rollouts, and never sees a gold."""
