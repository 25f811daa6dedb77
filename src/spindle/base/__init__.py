"""What everything else stands on: async flow, time limits, processes, children, names, spelling."""
