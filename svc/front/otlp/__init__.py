"""The doors for traces: HTTP and gRPC, and the checks that both make before they offer a batch (`intake`)."""
