"""What is remembered: bytes and columns, never how a row is made."""
