"""`spindle batch`: tasks, workspaces, attempts, results. `spindle.batch` is the door for programs."""
