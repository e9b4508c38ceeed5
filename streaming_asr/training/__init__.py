"""What trainings share: the loop, its cache, training windows, batched greedy decoding."""
