"""Whether tasks get solved: the same model and sampling, several harnesses, one table. See `python -m evals --help`."""
