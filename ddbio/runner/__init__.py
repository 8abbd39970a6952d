"""Runner of jobs that write files: plan, stage, run, commit, register."""
