"""Plain data that everything else speaks in; imports neither torch nor pytest."""
