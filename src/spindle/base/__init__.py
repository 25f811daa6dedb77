"""The foundation of all other packages: async flow, time limits, child processes, settings, files, the trace."""
