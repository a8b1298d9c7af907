"""What `varband serve` starts."""
