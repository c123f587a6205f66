"""grpcio's names on this package's channels."""
