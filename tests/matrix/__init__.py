"""One task on every wire with every feature, and the same sentences about each.

task.py       the repository, the script of the model, and what the user answers
wires.py      one driver per wire: starts, prompts, answers, and returns what the wire told
cells.py      the tables: features, cells that make no sense, and the selection of every run of the tests
sentences.py  what must be true of every cell
program.py    the program of the wire `in process`
"""
