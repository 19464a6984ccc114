"""What several copies of the service share beside data: certificates, and who does what."""
