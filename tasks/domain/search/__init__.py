"""Test-time search: methods by what they ask for, none of which ever sees a gold."""
