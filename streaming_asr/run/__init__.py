"""One method over one corpus, or a sweep of them: configuration -> method -> simulate -> score."""
