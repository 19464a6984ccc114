"""Signing in, and who and what belongs to an organization: members, invitations, projects, keys."""
