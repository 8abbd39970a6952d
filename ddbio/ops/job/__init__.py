"""Hold what every verb is made of: its clock, its target, what it stages and what it reports."""
