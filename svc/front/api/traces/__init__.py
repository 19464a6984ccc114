"""What is said of traces and kept of them: payloads, feedback, sets, charts."""
