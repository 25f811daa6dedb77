"""Models that run on this machine, from GGUF files, without a server to set up and without a key.

Nothing here is imported until a local model is asked for. The weights live in a child process (`worker`), so a load
that takes seconds, a broken file or a lack of memory never stalls or harms the agent; `server` owns that process,
`adapter` is the model API `local`. Small models cannot call tools by themselves: `prompts`, `grammar` and `reply` are
the short prompt, the grammar that leaves them no other way, and the reading of what they then write.
"""
