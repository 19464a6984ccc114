"""Pure rules: mapping, pricing, roll-up, datasets. Time and chance are arguments; nothing here does I/O."""
