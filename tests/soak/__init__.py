"""Attacks on the real process, for an hour (`make soak`) or for a minute (`test_soak.py`, in every run of the tests).

attack.py      what an attack is, how it is run, what it may look at
kills.py       kill -9 at any moment, and what must be in the session file then
fuzzing.py     broken lines, frames, session files, model streams and tool arguments, from a kept corpus
endurance.py   thousands of turns in one process: memory, descriptors and children stay flat
faults.py      a model server that cuts, stalls, refuses, babbles and lies
disks.py       a full disk
matrix.py      every wire with every feature (tests/matrix)
readers.py     clients that read slowly, not at all, or vanish
corpus/        inputs to start from, and every input that broke something
"""
