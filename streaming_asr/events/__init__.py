"""The log of events: what happened, the contract between running and scoring."""
