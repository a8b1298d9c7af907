"""What is asked: profiles, questions over them, a person's wishes, and what they come to."""
