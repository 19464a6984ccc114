"""What alert rules watch: the figures of a window, their history, and when a rule would have fired."""
