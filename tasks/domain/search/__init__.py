"""Test-time search: one file a method, none of which ever sees a gold."""
