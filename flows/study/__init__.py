"""Studies: profiles, questions about them, settings of users, and the resolved study."""
