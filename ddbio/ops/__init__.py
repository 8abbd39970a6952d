"""Carry out the verbs: describe, plan, run, report; know no engine and no outside library."""
