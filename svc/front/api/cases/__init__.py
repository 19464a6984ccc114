"""What detectors found, what people and agents do with it, and how detectors are set."""
