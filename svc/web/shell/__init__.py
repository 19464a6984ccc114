"""What all pages share: the frame, forms, filters, ranges, charts, words, and how a page is sent."""
