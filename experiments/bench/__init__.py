"""Benchmarks: what computing costs. experiments/bench/README.md says what is measured.

__main__            the command line
frame               what they share: clocks, processes, tables, verdicts
models              random weights of published dimensions, made-up audio
settings, step, step_table, naive
                    WhisperRT's step beside a naive baseline
methods, policy_cost, u2, plain_ctc
                    what a method adds to the model below it
memory              whether memory stays bounded
chunkformer, chunkformer_table, author, endless
                    ChunkFormer's batches, the author's package, ten hours
star                STAR's memory and its step
"""
