"""`spindle batch`: tasks, workspaces, attempts, results. Programs import `spindle.batch`."""
