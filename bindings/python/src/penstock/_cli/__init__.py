"""The command `penstock`: docs/cli.md. It stands on the package's public names alone, as any program does."""
