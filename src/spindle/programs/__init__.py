"""A program that we run: started, watched, fenced and ended."""
