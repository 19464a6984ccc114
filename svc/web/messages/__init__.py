"""What spans said: messages as parts, the files inside them, and how a page draws both."""
