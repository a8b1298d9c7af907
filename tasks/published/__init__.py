"""The published study's files: read, described and checked."""
