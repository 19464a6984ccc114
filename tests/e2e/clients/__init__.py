"""Real SDKs and instrumentations against a stand-in for the model APIs: `make test-clients`."""
