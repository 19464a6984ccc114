"""A span as it is kept, and the readers of what it says: values, messages, documents, its call site."""
