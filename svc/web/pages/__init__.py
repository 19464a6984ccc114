"""One file a page: its routes, who may see it, what it reads, what its template is given."""
